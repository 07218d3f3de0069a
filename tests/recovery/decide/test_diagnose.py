"""Tests the diagnosis: which rung comes first for the evidence of a fault, and when to stop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rung.jobs.job import Attempt, Job
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs, Precision, RungName
from rung.recovery.decide.decide import Relaunch, Stop, decide
from rung.recovery.decide.diagnose import blew_up_before, diagnose
from rung.recovery.decide.rungs import RungContext, lacks_fp32_values
from rung.recovery.decide.script_values import read_script_values
from tests.support.jobs_in_trouble import a_fault, a_job, an_attempt, carried_out

F, R = FaultKind, RungName
A100, TITAN = Gpu("NVIDIA A100", (8, 0)), Gpu("NVIDIA TITAN RTX", (7, 5))
FURTHER = ["raise_clip", "lower_lr", "increase_growth_interval", "native_fp16", "fp32"]
FURTHER += ["fp32_params", "bf16", "skip_data", "lower_batch"]
FINE = {"weights": "finite", "inputs": "finite"}


def first(fault: Fault, gpu: Gpu | None = None, script_values: dict[str, Any] | None = None, **recovery: Any) -> Any:
    """Return the rung that a zero-edit job takes first for this fault, or the diagnosis it stops with."""
    job = a_job(knobs={"mode": "zero-edit", "lr": None, "clip": None}, recovery=recovery)
    effective = {"lr": 1e-3, "precision": "amp_fp16", **(script_values or {})}
    decision = decide(job, [an_attempt(1, job.knobs, fault, effective=effective)], [], gpu)
    return decision.rung if isinstance(decision, Relaunch) else decision.diagnosis


def nan(step: int | None = 100, kind: FaultKind = F.NAN_LOSS, **fields: Any) -> Fault:
    return a_fault(kind, step, **fields)


# The line in the traceback.


@pytest.mark.parametrize(
    ("line", "rung"),
    [
        ("scores = scores.masked_fill(mask == 0, -1e9)", R.FP32),
        ("att = att.masked_fill(self.bias[:, :, :T] == 0, NEG_INF)", R.FP32),
        ("w.masked_fill_(mask, torch.finfo(torch.float32).min)", R.FP32),
        ("w.masked_fill_(mask, torch.finfo(float32).min)", R.FP32),
        ("w.masked_fill_(mask, np.finfo(np.float64).min)", R.FP32),
        ("scores.masked_fill_(mask, torch.finfo(x.dtype).min)", R.NATIVE_FP16),
        ("scores.masked_fill_(mask, torch.finfo(hidden_states.dtype).min)", R.NATIVE_FP16),
        ("w.masked_fill_(mask, torch.finfo(dtype).min)", R.NATIVE_FP16),
        ("", R.NATIVE_FP16),
    ],
)
def test_a_constant_is_clamped_first_and_then_goes_to_fp32_and_a_dtype_limit_to_native_fp16(
    line: str, rung: RungName
) -> None:
    fault = nan(0, F.FP16_OVERFLOW, source=f"model.py:31: {line}" if line else "")
    assert first(fault) is R.CLAMP_CONSTANTS
    job = a_job(run="python train.py {precision}", knobs={"mode": "flags"})
    decision = decide(job, [an_attempt(1, job.knobs, fault)], [], TITAN)
    assert isinstance(decision, Relaunch) and decision.rung is rung
    skipped = dict(decision.skipped).get("clamp_constants", "")
    assert "it needs zero-edit or rung_inside.attach" in skipped or rung is R.NATIVE_FP16


def test_a_constant_goes_to_bf16_if_the_gpu_has_it_and_a_dtype_limit_does_not() -> None:
    constant = nan(0, F.FP16_OVERFLOW, source="m.py:3: s.masked_fill(mask, -1e9)")
    limit = nan(0, F.FP16_OVERFLOW, source="m.py:3: s.masked_fill(mask, torch.finfo(x.dtype).min)")
    assert first(constant, A100, ladder=["bf16", "fp32"]) is R.BF16
    assert first(constant, TITAN, ladder=["bf16", "fp32"]) is R.FP32
    assert first(limit, A100, ladder=["bf16", "fp32"]) is R.FP32


@pytest.mark.parametrize(
    ("evidence", "ladder", "rung"),
    [
        ("ValueError: Attempting to unscale FP16 gradients.", None, R.NATIVE_FP16),
        ("ValueError: Attempting to unscale FP16 gradients.", FURTHER, R.FP32_PARAMS),
        ("RuntimeError: unscale_() has already been called on this optimizer", FURTHER, R.NATIVE_FP16),
        ("AssertionError: No inf checks were recorded for this optimizer.", None, R.NATIVE_FP16),
    ],
)
def test_fp32_params_is_chosen_for_fp16_gradients_and_not_for_a_wrong_order_of_calls(evidence, ladder, rung) -> None:
    fault = Fault(F.UNSCALE_ERROR, evidence, 7, 0)
    assert first(fault, **({"ladder": ladder} if ladder else {})) is rung


# What a replay shows.


def test_a_replay_that_is_finite_in_fp32_changes_only_the_precision() -> None:
    fault = nan(shape="spike", onset=100, replay={**FINE, "fp32": "finite", "where": "blocks.3.attn"})
    for ladder in ({}, {"ladder": FURTHER}):
        assert first(fault, A100, **ladder) is first(fault, **ladder) is R.BF16
        assert first(fault, TITAN, **ladder) is R.FP32


@pytest.mark.parametrize(
    ("step", "grown", "rung"),
    [(8, "12.5", R.LOWER_LR), (8, "2.5", R.FP32), (8, "rubbish", R.FP32), (300, "12.5", R.FP32)],
)
def test_weights_that_grow_much_in_the_first_updates_lower_the_lr(step: int, grown: str, rung: RungName) -> None:
    assert first(nan(step, replay={**FINE, "fp32": "finite", "grown": grown}), TITAN) is rung


@pytest.mark.parametrize(("replayed", "rung"), [("900", R.FP32), ("8", R.RAISE_CLIP), ("rubbish", R.FP32)])
def test_a_replay_of_a_step_long_before_the_fault_is_ignored(replayed: str, rung: RungName) -> None:
    replay = {**FINE, "step": replayed, "fp32": "finite"}
    fault = nan(1000, shape="spike", onset=1000, replay=replay)
    assert first(fault, TITAN) is rung
    cured = replace(fault, replay={**replay, "cure": "fp32_modules:head"})
    assert first(cured, TITAN) is (R.FP32_MODULES if rung is R.FP32 else rung)


def test_a_script_in_fp32_does_not_get_the_rung_fp32() -> None:
    assert (
        first(nan(shape="spike", replay={**FINE, "fp32": "finite"}), script_values={"precision": "fp32"})
        is R.RAISE_CLIP
    )


@pytest.mark.parametrize("found", [{"fp32": "nonfinite", "where": "head"}, {"fp32": "finite", "grads": "nonfinite"}])
def test_a_replay_that_is_not_finite_in_fp32_with_finite_weights_and_inputs_stops_and_names_the_code(found) -> None:
    end = first(nan(shape="spike", onset=100, replay={**FINE, **found}))
    assert "in FP32" in end and "a bug in the model's code" in end and "What to do: look" in end
    assert "where" not in found or "in head" in end


def test_a_replay_that_is_not_finite_in_fp32_after_a_few_updates_lowers_the_lr_once() -> None:
    replay = {**FINE, "fp32": "nonfinite"}
    job = a_job()
    one = an_attempt(1, job.knobs, nan(4, replay=replay))
    lower = decide(job, [one], [], None)
    assert isinstance(lower, Relaunch) and lower.rung is R.LOWER_LR
    end = decide(job, [one, carried_out(2, lower, nan(4, replay=replay))], [], None)
    assert isinstance(end, Stop) and "a bug in the model's code" in end.diagnosis
    at_once = first(nan(1, replay=replay))
    assert "a bug in the model's code" in at_once


def test_a_huge_gradient_norm_in_the_first_updates_raises_the_clip() -> None:
    job = a_job()
    fault = nan(2, replay={**FINE, "fp32": "nonfinite"}, first_norm=1654.0)
    one = an_attempt(1, job.knobs, fault)
    clip = decide(job, [one], [], None)
    assert isinstance(clip, Relaunch) and clip.rung is R.RAISE_CLIP and "norm was 1654" in clip.because
    small = decide(job, [an_attempt(1, job.knobs, replace(fault, first_norm=7.0))], [], None)
    assert isinstance(small, Relaunch) and small.rung is R.LOWER_LR


def test_a_scale_collapse_after_a_steep_rise_of_the_loss_lowers_the_lr() -> None:
    job = a_job()
    fault = nan(38, F.SCALE_COLLAPSE, replay={**FINE, "fp32": "finite"})
    risen = replace(an_attempt(1, job.knobs, fault), first_loss=1.4, loss=100.0)
    lower = decide(job, [risen], [], None)
    assert isinstance(lower, Relaunch) and lower.rung is R.LOWER_LR and "had soared" in lower.because
    for loss in (1.5, float("inf"), float("nan"), None):
        decision = decide(job, [replace(risen, loss=loss)], [], TITAN)
        assert isinstance(decision, Relaunch) and decision.rung is R.FP32
    still = replace(carried_out(2, lower, fault), first_loss=1.4, loss=100.0)
    again = decide(job, [risen, still], [], None)
    assert isinstance(again, Relaunch) and again.rung is R.LOWER_LR and again.knobs.lr == 1e-5


def test_a_scale_collapse_without_a_rise_of_the_loss_goes_to_fp32() -> None:
    assert first(nan(37, F.SCALE_COLLAPSE, onset=18, replay={**FINE, "fp32": "finite"}), TITAN) is R.FP32


def test_weights_that_grew_a_thousandfold_lower_the_lr_even_if_fp32_is_not_finite() -> None:
    replay = {**FINE, "fp32": "nonfinite", "grown": "1.4e+17"}
    assert first(nan(159, shape="spike", onset=159, replay=replay)) is R.LOWER_LR
    assert "a bug in the model's code" in first(nan(159, shape="spike", onset=159, replay={**replay, "grown": "1.3"}))


def test_an_lr_that_was_lowered_is_lowered_again_while_the_numbers_rise_steeply() -> None:
    job = a_job()
    one = an_attempt(1, job.knobs, nan(8, shape="drift", onset=3))
    lower = decide(job, [one], [], None)
    assert isinstance(lower, Relaunch) and lower.rung is R.LOWER_LR
    for step, onset in ((8, 5), (25, 22), (25, 25)):
        replay = {**FINE, "fp32": "finite"}
        two = carried_out(2, lower, nan(step, shape="spike", onset=onset, replay=replay))
        again = decide(job, [one, two], [], None)
        assert isinstance(again, Relaunch) and again.rung is R.LOWER_LR and again.knobs.lr == 1e-5


def test_not_learning_after_a_drift_lowers_the_lr_again_and_other_rungs_are_replaced() -> None:
    job = a_job()
    drift = nan(10, F.DIVERGENCE, shape="drift", onset=4)
    one = an_attempt(1, job.knobs, drift)
    lower = decide(job, [one], [], None)
    assert isinstance(lower, Relaunch)
    two = carried_out(2, lower, nan(317, F.NOT_LEARNING, onset=10))
    again = decide(job, [one, two], [], None)
    assert isinstance(again, Relaunch) and again.rung is R.LOWER_LR and again.knobs.lr == 1e-5
    assert again.because.startswith("divergence at step 10")
    sudden = an_attempt(1, job.knobs, nan(10))
    clip = decide(job, [sudden], [], None)
    assert isinstance(clip, Relaunch) and clip.rung is R.RAISE_CLIP
    other = decide(job, [sudden, carried_out(2, clip, nan(317, F.NOT_LEARNING, onset=10))], [], None)
    assert isinstance(other, Relaunch) and other.rung is R.LOWER_LR and other.knobs.clip == 5.0


def test_inputs_that_are_not_finite_stop_and_name_the_data_unless_they_can_be_skipped() -> None:
    fault = nan(40, shape="spike", onset=40, replay={"weights": "finite", "inputs": "nonfinite", "fp32": "nonfinite"})
    assert "the data is at fault" in first(fault) and "the inputs of step 40" in first(fault)
    assert first(fault, ladder=FURTHER) is R.SKIP_DATA


def test_inputs_that_are_not_finite_go_to_fp32_if_the_replay_is_finite_there() -> None:
    assert first(nan(replay={"weights": "finite", "inputs": "nonfinite", "fp32": "finite"}), TITAN) is R.FP32


def test_with_weights_that_are_not_finite_the_shape_of_the_fault_decides() -> None:
    state = {"weights": "nonfinite", "inputs": "finite", "fp32": "unknown"}
    assert first(nan(shape="spike", onset=100, replay=state)) is R.RAISE_CLIP
    assert first(nan(shape="drift", onset=60, replay=state)) is R.LOWER_LR
    assert first(nan(2, replay=state)) is R.FP32


@pytest.mark.parametrize("fp32", ["finite", "nonfinite"])
def test_a_fault_with_an_earlier_onset_is_treated_by_its_shape_and_not_by_the_replay(fp32: str) -> None:
    replay = {**FINE, "fp32": fp32}
    assert first(nan(shape="drift", onset=60, replay=replay)) is R.LOWER_LR
    assert first(nan(shape="spike", onset=97, replay=replay)) is R.RAISE_CLIP
    assert blew_up_before(nan(shape="spike", onset=97)) and not blew_up_before(nan(shape="spike", onset=100))


def test_sudden_nan_in_fp32_too_stops_and_names_the_model_or_the_data() -> None:
    job = a_job()
    one = an_attempt(1, job.knobs, nan(shape="spike", onset=100, replay={**FINE, "fp32": "finite", "where": "loss"}))
    fp32 = decide(job, [one], [], TITAN)
    assert isinstance(fp32, Relaunch) and fp32.rung is R.FP32
    later = nan(340, shape="spike", onset=340, replay={"weights": "nonfinite", "inputs": "finite", "fp32": "unknown"})
    end = decide(job, [one, carried_out(2, fp32, later)], [], None)
    assert (
        isinstance(end, Stop)
        and "at step 100 and in FP32 too at step 340: a bug in the model or the data" in end.diagnosis
    )


def test_sudden_nan_twice_in_an_fp32_script_stops_after_one_rung_and_names_a_bug() -> None:
    job = a_job(knobs={"mode": "zero-edit"})
    said = {"precision": "fp32", "lr": 1e-3}
    fault = nan(60, shape="spike", onset=60, replay={"weights": "nonfinite", "inputs": "finite", "fp32": "unknown"})
    one = an_attempt(1, job.knobs, fault, effective=said)
    clip = decide(job, [one], [], None)
    assert isinstance(clip, Relaunch) and clip.rung is R.RAISE_CLIP
    # With a clip the norm is NaN one step before the loss.
    for onset in (60, 59):
        two = carried_out(2, clip, replace(fault, onset=onset), {**said, "clip": 1.0})
        end = decide(job, [one, two], [], None)
        assert isinstance(end, Stop) and "again in FP32 at step 60: a bug in the model or the data" in end.diagnosis


def test_a_bug_that_a_lower_lr_only_delays_is_named() -> None:
    job = a_job()
    replay = {**FINE, "fp32": "nonfinite", "where": "loss"}
    one = an_attempt(1, job.knobs, nan(15, shape="spike", onset=15, replay=replay))
    lower = decide(job, [one], [], None)
    assert isinstance(lower, Relaunch) and lower.rung is R.LOWER_LR
    end = decide(job, [one, carried_out(2, lower, nan(164, shape="spike", onset=164, replay=replay))], [], None)
    assert isinstance(end, Stop) and "in FP32 too in the loss" in end.diagnosis


# The step and the shape of the fault.


@pytest.mark.parametrize(
    ("fault", "rung"),
    [
        (nan(0), R.FP32),
        (nan(2), R.FP32),
        (nan(3), R.RAISE_CLIP),
        (nan(None), R.RAISE_CLIP),
        (nan(1, F.GRAD_NONFINITE), R.FP32),
        (nan(2, shape="drift", onset=1), R.LOWER_LR),
        (nan(40, F.SCALE_COLLAPSE), R.FP32),
        (nan(5000, F.SCALE_COLLAPSE), R.RAISE_CLIP),
        (nan(5000, F.SCALE_COLLAPSE, replay={**FINE, "fp32": "finite"}), R.FP32),
        (nan(120, F.DIVERGENCE, shape="drift", note="10 steps skipped in a row"), R.FP32),
        (nan(120, F.DIVERGENCE, shape="drift", note="the loss scale fell 6 times in 128 reports"), R.LOWER_LR),
        (nan(500, F.SCALE_THRASH), R.INCREASE_GROWTH_INTERVAL),
    ],
)
def test_without_other_evidence_the_step_and_the_scale_decide_the_first_rung(fault: Fault, rung: RungName) -> None:
    assert first(fault, TITAN, script_values={"growth_interval": 1}) is rung


def test_a_script_in_native_fp16_goes_to_fp32() -> None:
    assert first(nan(30, shape="spike", onset=30), script_values={"precision": "native_fp16"}) is R.FP32


def test_without_a_fault_the_diagnosis_names_no_rung() -> None:
    job = a_job()
    assert diagnose(RungContext(job.spec, job.knobs, job.knobs)).rungs == ()


# A bug in the code stops the job within three relaunches.


def relaunches(job: Any, faults: list[Fault]) -> tuple[int, str]:
    attempts = [an_attempt(1, job.knobs, faults[0])]
    for fault in faults[1:]:
        decision = decide(job, attempts, [], None)
        if isinstance(decision, Stop):
            return len(attempts) - 1, decision.diagnosis
        attempts.append(carried_out(len(attempts) + 1, decision, fault))
    end = decide(job, attempts, [], None)
    assert isinstance(end, Stop)
    return len(attempts) - 1, end.diagnosis


@pytest.mark.parametrize("ladder", [FURTHER[:5], FURTHER, "auto"])
@pytest.mark.parametrize("shape", [None, "spike", "drift"])
def test_a_fault_that_no_rung_cures_stops_after_three_relaunches(ladder: Any, shape: str | None) -> None:
    job = a_job(recovery={"ladder": ladder, "max_attempts": 20})
    made, said = relaunches(job, [nan(shape=shape)] * 9)
    assert made == 3 and "What to do" in said
    made, said = relaunches(job, [nan(step, shape=shape) for step in range(100, 1000, 100)])
    assert made == 3 and "every rung only delayed it (steps 100, 200, 300, 400)" in said


def test_a_rung_that_did_not_take_does_not_count_as_one_of_the_three_relaunches() -> None:
    job = a_job()
    attempts = [an_attempt(1, job.knobs, nan())]
    for _ in range(3):
        decision = decide(job, attempts, [], None)
        assert isinstance(decision, Relaunch)
        stubborn = {**Knobs(lr=1e-3, clip=5.0, precision=Precision.AMP_FP16).to_dict()}
        attempts.append(carried_out(len(attempts) + 1, decision, nan(), stubborn))
    end = decide(job, attempts, [], None)
    assert isinstance(end, Stop) and "NaN in FP32 too" not in end.diagnosis
    assert all("did not take" in dict(end.skipped)[rung] for rung in ("raise_clip", "lower_lr", "fp32"))


def test_single_skipped_updates_are_clipped_whatever_the_replay_shows():
    """0.1.0 lowered the lr three times for rare batches with enormous gradients, which the scaler skips."""
    job = a_job(knobs={"precision": "amp_fp16"})
    replay = {"weights": "finite", "inputs": "finite", "fp32": "finite", "step": "300"}
    note = "the loss scale fell 5 times and never grew"
    fault = a_fault(FaultKind.DIVERGENCE, 300, shape="spike", note=note, replay=replay)
    decision = decide(job, [an_attempt(1, job.knobs, fault)], [], None)
    assert isinstance(decision, Relaunch) and decision.rung == "raise_clip"
    assert "the scaler skipped single updates" in decision.because


def test_a_run_that_never_learned_does_not_point_at_the_precision() -> None:
    """Its onset is the first step, as for a NaN that the untrained model computes; that one is cured in FP32."""
    assert first(nan(1, F.NOT_LEARNING, onset=1)) is not R.FP32
    assert first(nan(1, F.NAN_LOSS, onset=1)) is R.FP32


# A script that trains FP16 parameters by itself.

NATIVE = {"lr": 1e-3, "precision": "native_fp16"}
RUINED = {"weights": "nonfinite", "inputs": "finite", "fp32": "unknown"}
INTACT = {**FINE, "fp32": "unknown"}


@pytest.mark.parametrize(
    ("step", "replay", "rung"),
    [
        (2, RUINED, R.NATIVE_FP16),
        (900, RUINED, R.NATIVE_FP16),
        # Without a replay only the first updates show it, and no update comes before the loss of step 1.
        (2, {}, R.NATIVE_FP16),
        (1, {}, R.FP32),
        (900, {}, R.FP32),
        # The updates were well: the forward pass overflows.
        (2, INTACT, R.FP32),
        (300, {**FINE, "fp32": "finite", "cure": "fp32_modules:head"}, R.FP32_MODULES),
    ],
)
def test_the_optimizer_of_a_script_in_plain_fp16_gets_fp32_values_if_updates_ruined_it(
    step: int, replay: dict[str, str], rung: RungName
) -> None:
    assert first(nan(step, shape="spike", onset=step, replay=replay), TITAN, script_values=NATIVE) is rung


def test_what_is_asked_of_a_script_in_plain_fp16_is_said_and_a_relapse_goes_on_to_fp32() -> None:
    job, fault = a_job(knobs={"mode": "zero-edit", "lr": None, "clip": None}), nan(2, onset=2, replay=RUINED)
    attempts = [an_attempt(1, job.knobs, fault, effective=NATIVE)]
    decision = decide(job, attempts, [], TITAN)
    assert isinstance(decision, Relaunch) and decision.knobs == Knobs(precision=Precision.NATIVE_FP16)
    assert "native_fp16 (native_fp16 with FP32 values for the optimizer)" in decision.because
    assert "its optimizer has no FP32 values of them" in decision.because
    for again, why in ((nan(2, onset=2, replay=RUINED), "made them NaN or infinite"), (nan(700, onset=700), "enough")):
        attempt = carried_out(2, decision, again, effective=NATIVE)
        wider = decide(job, [*attempts, attempt], [], TITAN)
        assert isinstance(wider, Relaunch) and wider.rung is R.FP32 and why in wider.because
        assert "fp32 (precision native_fp16 -> fp32)" in wider.because


def test_fp32_values_for_the_optimizer_need_code_of_rung_in_the_job() -> None:
    fault = nan(2, onset=2)
    flags = a_job(run="python train.py {precision}", knobs={"mode": "flags", "lr": None, "clip": None})
    decision = decide(flags, [an_attempt(1, flags.knobs, fault, effective=NATIVE)], [], TITAN)
    assert isinstance(decision, Relaunch) and decision.rung is R.FP32
    job = a_job(run="python train.py {precision}", knobs={"mode": "zero-edit", "lr": None, "clip": None})
    no_hands = an_attempt(1, job.knobs, fault, effective=NATIVE, hands="python -S")
    assert not lacks_fp32_values(context(job, no_hands, fault))
    assert lacks_fp32_values(context(job, replace(no_hands, hands=""), fault))
    attached = a_job(knobs={"precision": "native_fp16"})  # with attach a precision is always asked, and kept up
    assert not lacks_fp32_values(context(attached, replace(no_hands, hands=""), fault))


def context(job: Job, attempt: Attempt, fault: Fault) -> RungContext:
    values = read_script_values([attempt])
    return RungContext(job.spec, job.knobs, job.knobs, values, fault, TITAN, (attempt,))
