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
from rung.recovery.decide.diagnose import diagnose
from rung.recovery.decide.rungs import RungContext, lacks_fp32_values
from rung.recovery.decide.script_values import read_script_values
from tests.support.jobs_in_trouble import a_fault, a_job, an_attempt, carried_out, first_rung, nan_fault

F, R = FaultKind, RungName
A100, TITAN = Gpu("NVIDIA A100", (8, 0)), Gpu("NVIDIA TITAN RTX", (7, 5))
FURTHER = ["raise_clip", "lower_lr", "increase_growth_interval", "native_fp16", "fp32"]
FURTHER += ["fp32_params", "bf16", "skip_data", "lower_batch"]
FINE = {"weights": "finite", "inputs": "finite"}


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
    fault = nan_fault(0, F.FP16_OVERFLOW, source=f"model.py:31: {line}" if line else "")
    assert first_rung(fault) is R.CLAMP_CONSTANTS
    job = a_job(run="python train.py {precision}", knobs={"mode": "flags"})
    decision = decide(job, [an_attempt(1, job.knobs, fault)], [], TITAN)
    assert isinstance(decision, Relaunch) and decision.rung is rung
    skipped = dict(decision.skipped).get("clamp_constants", "")
    assert "it needs zero-edit or rung_inside.attach" in skipped or rung is R.NATIVE_FP16


def test_a_constant_goes_to_bf16_if_the_gpu_has_it_and_a_dtype_limit_does_not() -> None:
    constant = nan_fault(0, F.FP16_OVERFLOW, source="m.py:3: s.masked_fill(mask, -1e9)")
    limit = nan_fault(0, F.FP16_OVERFLOW, source="m.py:3: s.masked_fill(mask, torch.finfo(x.dtype).min)")
    assert first_rung(constant, A100, ladder=["bf16", "fp32"]) is R.BF16
    assert first_rung(constant, TITAN, ladder=["bf16", "fp32"]) is R.FP32
    assert first_rung(limit, A100, ladder=["bf16", "fp32"]) is R.FP32


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
    assert first_rung(fault, **({"ladder": ladder} if ladder else {})) is rung


# The step and the shape of the fault.


@pytest.mark.parametrize(
    ("fault", "rung"),
    [
        (nan_fault(0), R.FP32),
        (nan_fault(2), R.FP32),
        (nan_fault(3), R.RAISE_CLIP),
        (nan_fault(None), R.RAISE_CLIP),
        (nan_fault(1, F.GRAD_NONFINITE), R.FP32),
        (nan_fault(2, shape="drift", onset=1), R.LOWER_LR),
        (nan_fault(40, F.SCALE_COLLAPSE), R.FP32),
        (nan_fault(5000, F.SCALE_COLLAPSE), R.RAISE_CLIP),
        (nan_fault(5000, F.SCALE_COLLAPSE, replay={**FINE, "fp32": "finite"}), R.FP32),
        (nan_fault(120, F.DIVERGENCE, shape="drift", note="10 steps skipped in a row"), R.FP32),
        (nan_fault(120, F.DIVERGENCE, shape="drift", note="the loss scale fell 6 times in 128 reports"), R.LOWER_LR),
        (nan_fault(500, F.SCALE_THRASH), R.INCREASE_GROWTH_INTERVAL),
    ],
)
def test_without_other_evidence_the_step_and_the_scale_decide_the_first_rung(fault: Fault, rung: RungName) -> None:
    assert first_rung(fault, TITAN, script_values={"growth_interval": 1}) is rung


def test_a_script_in_native_fp16_goes_to_fp32() -> None:
    assert first_rung(nan_fault(30, shape="spike", onset=30), script_values={"precision": "native_fp16"}) is R.FP32


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
    made, said = relaunches(job, [nan_fault(shape=shape)] * 9)
    assert made == 3 and "What to do" in said
    made, said = relaunches(job, [nan_fault(step, shape=shape) for step in range(100, 1000, 100)])
    assert made == 3 and "every rung only delayed it (steps 100, 200, 300, 400)" in said


def test_a_rung_that_did_not_take_does_not_count_as_one_of_the_three_relaunches() -> None:
    job = a_job()
    attempts = [an_attempt(1, job.knobs, nan_fault())]
    for _ in range(3):
        decision = decide(job, attempts, [], None)
        assert isinstance(decision, Relaunch)
        stubborn = {**Knobs(lr=1e-3, clip=5.0, precision=Precision.AMP_FP16).to_dict()}
        attempts.append(carried_out(len(attempts) + 1, decision, nan_fault(), stubborn))
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
    assert first_rung(nan_fault(1, F.NOT_LEARNING, onset=1)) is not R.FP32
    assert first_rung(nan_fault(1, F.NAN_LOSS, onset=1)) is R.FP32


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
    assert first_rung(nan_fault(step, shape="spike", onset=step, replay=replay), TITAN, script_values=NATIVE) is rung


def test_what_is_asked_of_a_script_in_plain_fp16_is_said_and_a_relapse_goes_on_to_fp32() -> None:
    job, fault = a_job(knobs={"mode": "zero-edit", "lr": None, "clip": None}), nan_fault(2, onset=2, replay=RUINED)
    attempts = [an_attempt(1, job.knobs, fault, effective=NATIVE)]
    decision = decide(job, attempts, [], TITAN)
    assert isinstance(decision, Relaunch) and decision.knobs == Knobs(precision=Precision.NATIVE_FP16)
    assert "native_fp16 (native_fp16 with FP32 values for the optimizer)" in decision.because
    assert "its optimizer has no FP32 values of them" in decision.because
    for again, why in (
        (nan_fault(2, onset=2, replay=RUINED), "made them NaN or infinite"),
        (nan_fault(700, onset=700), "enough"),
    ):
        attempt = carried_out(2, decision, again, effective=NATIVE)
        wider = decide(job, [*attempts, attempt], [], TITAN)
        assert isinstance(wider, Relaunch) and wider.rung is R.FP32 and why in wider.because
        assert "fp32 (precision native_fp16 -> fp32)" in wider.because


def test_fp32_values_for_the_optimizer_need_code_of_rung_in_the_job() -> None:
    fault = nan_fault(2, onset=2)
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
