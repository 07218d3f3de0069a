"""Tests the records of a script that prints nothing: its updates, the step that fails, its checkpoints."""

import json
import math
import os
import sys
from pathlib import Path

import pytest
from rung_inside.zero_edit.telemetry import step_numbers
from rung_inside.zero_edit.telemetry.async_readback import Numbers

from rung.recovery.detect.detector import Detector
from rung.recovery.logs.lines import Line
from tests import pace

HERE = Path(__file__).parent
INSIDE = HERE.parents[4] / "jobs" / "inside"
LEAN = HERE.parents[3] / "lean"
ASKED = {"RUNG_CHECKPOINT": "FOLDER/asked.pt", "RUNG_CHECKPOINT_STEP": "50"}

AS_ON_A_GPU = (
    *("plain", "quick", "quick_scaled", "second_is_nan", "taking_turns", "one_infinite_batch", "closures"),
    "skipping_among_shared_copies",
)

CASES = {
    "plain": ("plain", {}),
    "accumulating": ("accumulating", {}),
    "killed_at_nan": ("killed_at_nan", {}),
    "taking_turns": ("taking_turns", {}),
    "second_is_nan": ("second_is_nan", {}),
    "folds": ("folds", {}),
    "closures": ("closures", {}),
    "quick": ("quick", {}),
    "quick_scaled": ("quick_scaled", {}),
    "paced": ("paced", {}),
    "slowly_paced": ("slowly_paced", {}),
    "one_infinite_batch": ("one_infinite_batch", {}),
    "skipping_among_shared_copies": ("skipping_among_shared_copies", {}),
    "one_infinite_batch alone": ("one_infinite_batch", {"RUNG_MODE": "off"}),
    "overflowing": ("overflowing", {}),
    "leaving_out": ("leaving_out", {}),
    "pairs": ("pairs", {}),
    "pairs alone": ("pairs", {"RUNG_MODE": "off"}),
    "rough": ("rough", {}),
    "thrown": ("thrown", {}),
    "guarded": ("guarded", {}),
    "layer_by_layer": ("layer_by_layer", {}),
    "layer_by_layer_bad_batch": ("layer_by_layer_bad_batch", {}),
    "behind_a_frozen_layer": ("behind_a_frozen_layer", {}),
    "half_mask": ("half_mask", {}),
    "resumed": ("resuming", {**ASKED, "FILE": "asked.pt"}),
    "resumed from another": ("resuming", {**ASKED, "FILE": "newest.pt"}),
    "resumed from none": ("resuming", ASKED),
    "resumed unasked": ("resuming", {"FILE": "newest.pt"}),
    "from scratch": ("resuming", {}),
    "one_cycle": ("one_cycle", {}),
    "one_cycle lower": ("one_cycle", {"RUNG_KNOBS": '{"lr": 0.002}'}),
    **{f"{name} on a GPU": (name, {"AS_ON_A_GPU": "1"}) for name in AS_ON_A_GPU},
    "lr asked": ("plain", {"RUNG_KNOBS": '{"lr": 0.001}'}),
}


@pytest.fixture(scope="module")
def done(once):
    """All trainings, run once."""
    return once("seen", trained)


def trained():
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RUNG_", "PYTHON"))}
    finished = pace.run(
        [sys.executable, HERE / "forks.py"],
        input=json.dumps([[name, *case] for name, case in CASES.items()]),
        env={**kept, "PYTHONPATH": f"{INSIDE}{os.pathsep}{LEAN}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        usual=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def records(case, kind):
    start = f"rung| {kind} "
    lines = [line.removeprefix(start) for line in case["output"].splitlines() if line.startswith(start)]
    return [dict(pair.split("=", 1) for pair in line.split()) for line in lines]


def losses(case):
    return [float(record["loss"]) for record in records(case, "step")]


def about(values):
    return [pytest.approx(value, rel=1e-4) for value in values]


def test_a_run_that_is_killed_right_after_a_nan_has_written_it_and_all_before(done):
    losses_of_steps = {int(record["step"]): float(record["loss"]) for record in records(done["killed_at_nan"], "step")}
    assert list(losses_of_steps) == list(range(1, 31))
    assert [step for step, loss in losses_of_steps.items() if math.isnan(loss)] == [30]


def test_each_of_the_first_updates_is_reported_with_its_loss_and_lr(done):
    case = done["plain"]
    steps = records(case, "step")
    assert [int(record["step"]) for record in steps[:32]] == list(range(1, 33))
    assert losses(case)[:32] == about(case["result"]["losses"][:32])
    assert [float(record["lr"]) for record in steps[:32]] == about(case["result"]["lrs"][:32])
    assert any(float(record.get("grad_norm", 0)) > 0 for record in steps)
    assert steps[-1]["step"] == "40"


def test_the_lr_reported_is_the_one_that_the_step_used(done):
    reported = [float(record["lr"]) for record in records(done["lr asked"], "step")[:32]]
    assert reported == about(lr / 10 for lr in done["lr asked"]["result"]["lrs"][:32])


def test_the_lr_of_a_schedule_is_its_peak_in_the_knobs_and_the_one_used_in_each_step(done):
    for name, asked, factor in (("one_cycle", "0.02", 1.0), ("one_cycle lower", "0.002", 0.1)):
        case = done[name]
        assert [record["lr"] for record in records(case, "knobs")] == [asked]
        reported = [float(record["lr"]) for record in records(case, "step")]
        assert reported == about(factor * lr for lr in case["result"])
        assert reported[0] == pytest.approx(factor * 0.0008)


def test_the_loss_of_an_update_is_the_sum_over_its_micro_batches(done):
    assert losses(done["accumulating"]) == about(done["accumulating"]["result"])


def test_of_two_nets_trained_in_turns_the_first_is_reported(done):
    case = done["taking_turns"]
    assert losses(case) == about(case["result"])
    assert [int(record["step"]) for record in records(case, "step")] == [1, 2, 3, 4, 5]


def test_a_nan_of_the_second_of_two_optimizers_is_reported_at_once(done):
    lines = [line for line in done["second_is_nan"]["output"].splitlines() if line.startswith("rung| step")]
    # The step before it is that of the first optimizer, and so is the one after.
    assert [line.split()[2] for line in lines if "optimizer=2" in line] == [f"step={step}" for step in range(3, 7)]
    assert [line.split()[2] for line in lines[:5]] == ["step=1", "step=2", "step=3", "step=3", "step=4"]
    fault = fault_of(done["second_is_nan"])
    assert fault is not None and (fault.kind, fault.step) == ("nan_loss", 3)


def test_a_new_net_and_a_new_optimizer_begin_a_new_course(done):
    case = done["folds"]
    courses = [(record["number"], record["why"]) for record in records(case, "course")]
    assert courses == [("2", "new_model"), ("3", "new_model"), ("4", "new_optimizer")]
    lines = case["output"].splitlines()
    for record in records(case, "course"):
        index = next(index for index, line in enumerate(lines) if f"course number={record['number']} " in line)
        assert lines[index + 1].startswith(f"rung| step step={record['step']} "), "its first update is not lost"
    assert len(records(case, "step")) == 84
    assert not records(done["taking_turns"], "course")


def test_an_update_with_a_closure_reports_the_last_loss_of_the_closure(done):
    reported, asked = losses(done["closures"]), done["closures"]["result"]
    assert len(reported) == 3 and reported[-1] == pytest.approx(asked[-1], rel=1e-4)


def test_a_long_run_is_reported_by_the_number_of_its_updates_and_its_nan_at_once(done):
    steps = records(done["quick"], "step")
    due = [number for number in range(1, 2500) if number < 1024 or number % (number // 512) == 0]
    # The updates just before a bad one are reported too, before the replay.
    assert [int(record["step"]) for record in steps] == [*due, *range(due[-1] + 1, 2501)]
    assert math.isnan(float(steps[-1]["loss"]))
    assert done["quick"]["output"].index("step=2499 ") < done["quick"]["output"].index("rung| replay")


def test_a_long_run_with_a_scaler_reports_what_is_due_what_was_skipped_and_how_its_nan_came_about(done):
    steps = records(done["quick_scaled"], "step")
    due = [number for number in range(1, 2500) if number < 1024 or number % (number // 512) == 0]
    # The eight updates before the NaN, which were good and not due, are kept as less than an object each.
    assert [int(record["step"]) for record in steps] == sorted({*due, 2305, *range(2497, 2501)})
    assert [record["step"] for record in steps if record["skipped"] == "1"] == ["2305", "2500"]
    assert math.isnan(float(steps[-1]["loss"])) and steps[-2].keys() == {"step", "loss", "lr", "skipped"}
    assert all(record.keys() > {"grad_norm", "scale"} for record in steps if int(record["step"]) in due)


@pytest.mark.parametrize(
    ("changed", "good"),
    [({}, True), ({"norm": 1.0}, True)]
    + [({name: bad}, False) for name in ("loss", "norm") for bad in (math.nan, math.inf)]
    + [({"loss": None}, False), ({"skipped": True}, False), ({"source": "another"}, False)],
)
def test_updates_are_taken_together_only_if_all_are_good_and_of_one_optimizer(changed, good):
    well = {"step": 1, "source": "optimizer", "loss": 1.0, "lr": 0.1, "norm": None, "scale": None, "skipped": False}
    updates = [Numbers(**well), Numbers(**{**well, **changed})]
    assert step_numbers.are_good(updates, "optimizer") is good and not step_numbers.are_good(updates, None)


def test_the_records_do_not_depend_on_how_long_an_update_takes(done):
    assert done["paced"]["output"] == done["slowly_paced"]["output"]
    assert len(records(done["paced"], "step")) == 100


@pytest.mark.parametrize("name", AS_ON_A_GPU)
def test_numbers_that_are_read_later_make_the_same_records(done, name):
    assert records(done[f"{name} on a GPU"], "step") == records(done[name], "step")
    # As text: a NaN of a batch norm is not equal to itself.
    assert repr(done[f"{name} on a GPU"]["result"]) == repr(done[name]["result"])


def test_a_skipped_update_is_reported_with_its_scale(done):
    steps = records(done["one_infinite_batch"], "step")
    assert [record["skipped"] for record in steps] == ["0"] * 5 + ["1"] + ["0"] * 6
    assert steps[5]["scale"] == "1024.0" and steps[6]["scale"] == "512.0"


def test_updates_that_share_a_copy_from_a_gpu_have_the_loss_scale_of_their_own(done):
    steps = records(done["skipping_among_shared_copies on a GPU"], "step")
    assert [record["scale"] for record in steps] == ["1024.0"] * 14 + ["512.0"] * 6 + ["256.0"] * 10


def test_a_replay_does_not_change_the_run(done):
    assert records(done["one_infinite_batch"], "replay")
    # As text: NaN is not equal to itself.
    assert str(done["one_infinite_batch"]["result"]) == str(done["one_infinite_batch alone"]["result"])


def test_a_batch_that_is_bad_in_every_precision_is_recognized(done):
    (replay,) = records(done["guarded"], "replay")
    assert replay == {"step": "7", "weights": "finite", "inputs": "nonfinite", "fp32": "nonfinite", "where": "0"}


@pytest.mark.parametrize("name", ["layer_by_layer", "behind_a_frozen_layer"])
def test_numbers_that_other_layers_computed_are_not_taken_for_the_batch(done, name):
    replay = records(done[name], "replay")[0]
    assert replay == {"step": "7", "weights": "finite", "inputs": "unknown", "fp32": "unknown"}
    fault = fault_of(done[name])
    assert fault is not None and (fault.kind, fault.step, fault.replay["inputs"]) == ("nan_loss", 7, "unknown")


def test_a_bad_batch_is_recognized_behind_the_layers_that_it_went_through(done):
    replay = records(done["layer_by_layer_bad_batch"], "replay")[0]
    assert (replay["step"], replay["inputs"], replay["fp32"]) == ("7", "nonfinite", "nonfinite")


def test_a_script_that_ends_itself_still_reports_its_last_update(done):
    assert records(done["guarded"], "step")[-1] == {"step": "7", "loss": "nan", "lr": "0.01"}


def test_an_overflow_of_fp16_alone_is_reported_with_its_module(done):
    replay = records(done["overflowing"], "replay")[0]
    assert replay["cost"].endswith("%") and replay["cure"] == "fp32_modules:1"
    seen = {name: value for name, value in replay.items() if name not in ("cure", "cost")}
    assert seen == {"step": "1", "weights": "finite", "inputs": "finite", "fp32": "finite", "where": "1"}
    # The fault may be at a later step than the first bad number, so every replay names its cure.
    assert all(each["cure"] == "fp32_modules:1" for each in records(done["overflowing"], "replay"))


def test_a_script_that_leaves_out_every_batch_gets_a_replay_with_its_cure(done):
    output = done["leaving_out"]["output"]
    (replay,) = records(done["leaving_out"], "replay")
    assert (replay["fp32"], replay["where"], replay["cure"]) == ("finite", "1", "fp32_modules:1")
    assert output.index("Step 4:") < output.index("rung| replay") < output.index("Step 5:")
    fault = fault_of(done["leaving_out"])
    assert fault is not None and fault.kind == "nan_loss" and fault.replay["cure"] == "fp32_modules:1"


def test_calls_without_a_backward_pass_are_no_evidence_where_their_numbers_are_finite(done):
    assert not records(done["pairs"], "replay")
    assert done["pairs"]["result"] == done["pairs alone"]["result"]


def test_a_replay_reports_weights_that_grew_in_the_first_updates(done):
    replay = records(done["thrown"], "replay")[0]
    assert float(replay["grown"]) > 3
    assert all("grown" not in each for each in records(done["overflowing"], "replay"))


def test_an_exception_is_replayed_before_its_traceback(done):
    output = done["half_mask"]["output"]
    (replay,) = records(done["half_mask"], "replay")
    assert replay["fp32"] == "finite" and replay["step"] == "1"
    assert output.index("rung| replay") < output.index("Traceback") < output.index("without overflow")


def test_gradients_that_are_never_finite_are_distinguished_from_an_overflow(done):
    replay = records(done["rough"], "replay")[0]
    assert replay["step"] == "8" and replay["fp32"] == "finite" and replay["grads"] == "nonfinite"


def test_a_checkpoint_is_reported_with_its_update_under_its_final_name(done):
    assert {"step": "40", "file": "epoch2.pt"} in records(done["plain"], "saved")
    assert [record["file"] for record in records(done["plain"], "saved")][1::2] == ["epoch1.pt", "epoch2.pt"]


@pytest.mark.parametrize(
    ("name", "resumed", "first"),
    [
        ("resumed", {"step": "50", "file": "asked.pt"}, 51),
        ("resumed from another", {"step": "70", "file": "newest.pt"}, 71),
        ("resumed from none", {"step": "0", "file": "none"}, 1),
        ("resumed unasked", {"step": "70", "file": "newest.pt"}, 71),
        ("from scratch", {"step": "0", "file": "none"}, 1),
    ],
)
def test_the_step_count_starts_at_the_step_of_the_checkpoint_that_the_script_loads(done, name, resumed, first):
    assert records(done[name], "resumed") == [resumed]
    assert int(records(done[name], "step")[0]["step"]) == first
    assert ("rung| note" in done[name]["output"]) == (name not in ("resumed", "from scratch"))


def test_the_trainings_write_no_other_notes_and_no_warnings(done):
    for name, case in done.items():
        if not name.startswith("resumed"):
            assert "rung| note" not in case["output"], name
        assert "Warning" not in case["output"], name


def fault_of(case):
    detector = Detector()
    for number, line in enumerate(case["output"].splitlines(), 1):
        detector.feed(Line(number, line))
    return detector.first_fault(ended=True)


def test_the_detector_builds_a_fault_with_its_replay_from_the_records(done):
    fault = fault_of(done["guarded"])
    assert fault is not None and (fault.kind, fault.step) == ("nan_loss", 7)
    assert fault.replay["inputs"] == "nonfinite"
