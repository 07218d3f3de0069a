"""Tests that a job's records reach the fault and the attempt: the results of a replay, the steps of saved files."""

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.saturation import Saturation
from rung.recovery.detect.detector import Detector
from rung.recovery.detect.scan import Scan
from rung.recovery.logs.line_reader import read
from rung.recovery.logs.lines import Line
from rung.recovery.logs.progress import MAX_SAVED
from rung.runner.controller.log_watch import with_progress

STEP = "rung| step step={} loss={} lr=0.001 grad_norm=1.0 scale=1024.0 skipped=0"
REPLAY = "rung| replay step=21 weights=finite inputs=nonfinite fp32=nonfinite where=encoder.3.norm"
REPLAYED = {"step": "21", "weights": "finite", "inputs": "nonfinite", "fp32": "nonfinite", "where": "encoder.3.norm"}


def follow(lines):
    detector = Detector()
    for number, text in enumerate(lines, 1):
        detector.feed(Line(number, text))
    return detector


GOOD = [STEP.format(step, 2.0 - step / 100) for step in range(1, 21)]


def test_the_first_replay_after_a_nan_belongs_to_its_fault():
    later = REPLAY.replace("inputs=nonfinite", "inputs=finite")
    lines = [*GOOD, STEP.format(21, "nan"), REPLAY, STEP.format(22, "nan"), later, STEP.format(23, "nan")]
    fault = follow(lines).first_fault(ended=False)
    assert fault is not None and fault.kind is FaultKind.NAN_LOSS
    assert dict(fault.replay) == REPLAYED


LEFT_OUT = [f"Step {number}: Numerical issue: total_loss=nan" for number in range(1, 20)]
HANDS = "rung| hands torch=2.9.0 python=3.11.7"
CURED = "rung| replay step=1 weights=finite inputs=finite fp32=finite where=norm cure=fp32_modules:norm"


def test_a_script_that_leaves_out_its_batches_is_stopped_when_its_replay_has_come():
    lines = [HANDS, *LEFT_OUT[:5]]
    assert follow(lines).first_fault(ended=False) is None
    fault = follow([*lines, CURED]).first_fault(ended=False)
    assert fault is not None and (fault.kind, fault.step) == (FaultKind.NAN_LOSS, 1)
    assert fault.replay["cure"] == "fp32_modules:norm"


@pytest.mark.parametrize(
    "lines",
    [
        [HANDS, *LEFT_OUT[:8]],
        [HANDS, "Step 0: total_loss=2.5", *LEFT_OUT[:2]],
        LEFT_OUT[:2],
        ["rung| hands none why=no_update", *LEFT_OUT[:2]],
    ],
)
def test_nobody_waits_long_for_a_replay_or_where_none_can_come(lines):
    fault = follow(lines).first_fault(ended=False)
    assert fault is not None and (fault.kind, fault.step) == (FaultKind.NAN_LOSS, 1)


def test_a_script_that_leaves_out_its_batches_and_ends_has_failed_by_their_loss():
    lines = [HANDS, *GOOD, *LEFT_OUT, CURED.replace("step=1", "step=21"), "rung| end updates=20"]
    detector = follow(lines)
    assert detector.first_fault(ended=False) is None
    fault = detector.first_fault(ended=True)
    assert fault is not None and fault.kind is FaultKind.NAN_LOSS and fault.replay["where"] == "norm"
    later = [STEP.format(step, 1.5) for step in range(21, 30)]
    assert follow([*lines[:-1], *later]).first_fault(ended=True) is None


def test_a_replay_before_a_traceback_belongs_to_its_fault():
    error = "RuntimeError: value cannot be converted to type at::Half without overflow"
    lines = [*GOOD, REPLAY, "Traceback (most recent call last):", '  File "x.py", line 3, in <module>', error]
    fault = follow(lines).first_fault(ended=True)
    assert fault is not None and fault.kind is FaultKind.FP16_OVERFLOW and dict(fault.replay) == REPLAYED


def test_a_replay_of_a_bad_batch_does_not_belong_to_a_later_fault():
    later = [STEP.format(step, 1.5) for step in range(22, 40)]
    lines = [*GOOD, STEP.format(21, "nan"), REPLAY, *later, STEP.format(40, "nan"), STEP.format(41, "nan")]
    fault = follow(lines).first_fault(ended=False)
    assert fault is not None and fault.step == 40 and not fault.replay


def test_a_replay_record_is_read_only_in_its_known_keys_and_cut_in_length():
    reading = read('rung| replay step=3 fp32=failed where="a b" password=x')
    assert reading is not None and dict(reading.replay) == {"step": "3", "fp32": "failed", "where": "a b"}
    memory = {"fits": "no", "needs": "30.0GiB", "limit": "24.0GiB"}
    reading = read("rung| replay " + " ".join(f"{name}={text}" for name, text in memory.items()))
    assert reading is not None and dict(reading.replay) == memory
    longest = read("rung| replay where=" + "x" * 5000)
    assert longest is not None and len(longest.replay["where"]) == 255
    assert read("rung| replay password=x") is None


def test_the_cure_of_a_replay_is_read_as_a_whole_or_not_at_all():
    reading = read("rung| replay fp32=finite cure=fp32_modules:head.norm,loss cost=1.6%")
    assert reading is not None
    assert dict(reading.replay) == {"fp32": "finite", "cure": "fp32_modules:head.norm,loss", "cost": "1.6%"}
    places = ",".join(f"{number:02}" + "x" * 198 for number in range(16))
    longest = read(f"rung| replay fp32=finite cure=fp32_modules:{places}")
    assert longest is not None and longest.replay["cure"] == f"fp32_modules:{places}"
    too_long = read(f"rung| replay fp32=finite cure=fp32_modules:{places * 2}")
    assert too_long is not None and "cure" not in too_long.replay


def test_a_place_that_is_a_number_stays_a_text_and_none_is_none():
    for text, value in (("1", "1"), ("1.2", "1.2"), ("1,2", "1,2"), ("none", None)):
        reading = read(f"rung| knobs fp32_modules={text} lr=0.5")
        assert reading is not None and reading.effective == {"fp32_modules": value, "lr": 0.5}


def attempt_after(lines):
    detector = Detector()
    Scan(detector).feed("\n".join([*lines, ""]).encode())

    class Watched:
        mode = "flags"
        links = ()

    watched = Watched()
    watched.detector = detector
    return with_progress(Attempt("job", 1, "here", Knobs(), None, ""), watched, None, 1.0)


def test_what_could_not_be_restored_is_kept_as_it_was_said_first():
    lines = ['rung| not_whole why="the loop begins again"', "rung| not_whole why=later"]
    assert attempt_after([*lines, *GOOD]).not_whole == "the loop begins again"
    assert attempt_after(GOOD).not_whole is None


PLACES = "rung| places updates={} ran=head.norm:{},loss:64 saturated={}"


def test_the_attempt_keeps_how_often_numbers_that_left_a_place_were_saturated():
    assert attempt_after(GOOD).saturation is None
    lines = [PLACES.format(1, 1, 0), *GOOD, PLACES.format(64, 64, 3)]
    assert attempt_after(lines[:1]).saturation == Saturation(1, 0)
    attempt = attempt_after(lines)
    assert attempt.saturation == Saturation(64, 3) and attempt.furthest_step == 20 and attempt.loss == 1.8


def test_a_process_that_begins_anew_does_not_hide_what_was_saturated_before():
    lines = [PLACES.format(64, 64, 3), PLACES.format(1, 1, 0), PLACES.format(128, 128, 0)]
    assert attempt_after(lines).saturation == Saturation(64, 3)
    assert attempt_after([*lines, PLACES.format(256, 256, 3)]).saturation == Saturation(256, 3)


@pytest.mark.parametrize(
    "fields",
    [
        *("", "updates=64", "saturated=3", "updates=0 saturated=0", "updates=2 saturated=3", "updates=64 saturated=-1"),
        *("updates=-2 saturated=-3", "updates=nan saturated=0", "updates=inf saturated=1", "updates=8 saturated=nan"),
        *("updates=64.5 saturated=1", "updates=1e300 saturated=1", "updates=x saturated=1", "updates=64 clamped=3"),
    ],
)
def test_a_record_of_places_that_cannot_be_true_is_ignored(fields):
    assert read(f"rung| places {fields}") is None
    assert attempt_after([PLACES.format(64, 64, 3), f"rung| places {fields}"]).saturation == Saturation(64, 3)


def test_the_attempt_stores_the_steps_of_the_newest_64_saved_files():
    lines = [f"rung| saved step={step} file=epoch-{step // 100}.pt" for step in range(100, 10_100, 100)]
    lines.append('rung| saved step=10100 file="last one.pt"')
    lines.append("rung| saved step=10200 file=epoch-99.pt")
    attempt = attempt_after(lines)
    assert len(attempt.saved) == MAX_SAVED == 64
    assert attempt.saved["last one.pt"] == 10100
    assert attempt.saved["epoch-99.pt"] == 10200 and list(attempt.saved)[-1] == "epoch-99.pt"
    assert "epoch-1.pt" not in attempt.saved


HANDS, END = "rung| hands torch=2.9.0 python=3.11.7", "rung| end updates=20"
CAUGHT = [
    "Traceback (most recent call last):",
    '  File "x.py", line 3, in <module>',
    "RuntimeError: value cannot be converted to type at::Half without overflow",
    "",
    "During handling of the above exception, another exception occurred:",
    "",
    "Traceback (most recent call last):",
    '  File "x.py", line 5, in <module>',
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
]


def test_an_exception_that_a_script_with_hands_caught_does_not_stop_it_and_is_no_fault_once_it_goes_on():
    for before in ([HANDS], [HANDS, *GOOD]):
        assert follow([*before, *CAUGHT]).first_fault(ended=False) is None
        ended = follow([*before, *CAUGHT]).first_fault(ended=True)
        assert ended is not None and ended.kind is FaultKind.FP16_OVERFLOW
    later = [STEP.format(step, 1.5) for step in range(21, 31)]
    went_on = follow([HANDS, *GOOD, *CAUGHT, *later])
    assert went_on.first_fault(ended=False) is None and went_on.first_fault(ended=True) is None
    assert went_on.ending_exception() is None


def test_an_exception_that_ended_the_script_is_acted_on_at_once():
    for before in ([HANDS, *GOOD, END], GOOD):
        fault = follow([*before, *CAUGHT]).first_fault(ended=False)
        assert fault is not None and fault.kind is FaultKind.FP16_OVERFLOW


def test_hands_are_unknown_until_a_process_of_the_job_says_so():
    assert follow(GOOD).progress.hands is None
    assert follow(["rung| hands torch=2.9.0+cu128 python=3.11.7"]).progress.hands == ""
    why = 'rung| hands none why=part_failed part=zero_edit.hooks.forward error="AttributeError: no \\"x\\""'
    hands = follow([why]).progress.hands
    assert hands == 'part_failed; part zero_edit.hooks.forward; error AttributeError: no "x"'


def test_the_newest_word_about_hands_counts_until_updates_come_from_inside():
    launcher, worker = "rung| hands torch=2.9.0 python=3.11.7", "rung| hands none why=isolated flag=-I"
    assert follow([launcher, worker]).progress.hands == "isolated; flag -I"
    assert follow([worker, launcher]).progress.hands == ""
    assert follow([launcher, *GOOD, worker]).progress.hands == "", "a helper after the training"


def test_the_updates_are_those_of_the_process_that_made_the_most():
    assert follow(GOOD).progress.updates is None
    assert follow(["rung| end updates=0"]).progress.updates == 0
    assert follow([*GOOD, "rung| end updates=20", "rung| end updates=0"]).progress.updates == 20


def test_a_second_optimizer_that_is_nan_is_a_fault_although_the_first_is_fine():
    lines = [*GOOD]
    for step in range(21, 26):
        lines += [STEP.format(step, 1.5), f"rung| step step={step} loss=nan lr=0.001 skipped=0 optimizer=2"]
    fault = follow(lines).first_fault(ended=False)
    assert fault is not None and (fault.kind, fault.step) == (FaultKind.NAN_LOSS, 21)
