"""Tests what the replay of a failing step shows: data, weights, code or precision, and which rung comes first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rung.jobs.model.fault import FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import RungName
from rung.recovery.decide.decide import Relaunch, Stop, decide
from rung.recovery.decide.diagnose import blew_up_before
from tests.support.jobs_in_trouble import a_job, an_attempt, carried_out, first_rung, nan_fault

F, R = FaultKind, RungName
A100, TITAN = Gpu("NVIDIA A100", (8, 0)), Gpu("NVIDIA TITAN RTX", (7, 5))
FURTHER = ["raise_clip", "lower_lr", "increase_growth_interval", "native_fp16", "fp32"]
FURTHER += ["fp32_params", "bf16", "skip_data", "lower_batch"]
FINE = {"weights": "finite", "inputs": "finite"}


def test_a_replay_that_is_finite_in_fp32_changes_only_the_precision() -> None:
    fault = nan_fault(shape="spike", onset=100, replay={**FINE, "fp32": "finite", "where": "blocks.3.attn"})
    for ladder in ({}, {"ladder": FURTHER}):
        assert first_rung(fault, A100, **ladder) is first_rung(fault, **ladder) is R.BF16
        assert first_rung(fault, TITAN, **ladder) is R.FP32


@pytest.mark.parametrize(
    ("step", "grown", "rung"),
    [(8, "12.5", R.LOWER_LR), (8, "2.5", R.FP32), (8, "rubbish", R.FP32), (300, "12.5", R.FP32)],
)
def test_weights_that_grow_much_in_the_first_updates_lower_the_lr(step: int, grown: str, rung: RungName) -> None:
    assert first_rung(nan_fault(step, replay={**FINE, "fp32": "finite", "grown": grown}), TITAN) is rung


@pytest.mark.parametrize(("replayed", "rung"), [("900", R.FP32), ("8", R.RAISE_CLIP), ("rubbish", R.FP32)])
def test_a_replay_of_a_step_long_before_the_fault_is_ignored(replayed: str, rung: RungName) -> None:
    replay = {**FINE, "step": replayed, "fp32": "finite"}
    fault = nan_fault(1000, shape="spike", onset=1000, replay=replay)
    assert first_rung(fault, TITAN) is rung
    cured = replace(fault, replay={**replay, "cure": "fp32_modules:head"})
    assert first_rung(cured, TITAN) is (R.FP32_MODULES if rung is R.FP32 else rung)


def test_a_script_in_fp32_does_not_get_the_rung_fp32() -> None:
    assert (
        first_rung(nan_fault(shape="spike", replay={**FINE, "fp32": "finite"}), script_values={"precision": "fp32"})
        is R.RAISE_CLIP
    )


@pytest.mark.parametrize("found", [{"fp32": "nonfinite", "where": "head"}, {"fp32": "finite", "grads": "nonfinite"}])
def test_a_replay_that_is_not_finite_in_fp32_with_finite_weights_and_inputs_stops_and_names_the_code(found) -> None:
    end = first_rung(nan_fault(shape="spike", onset=100, replay={**FINE, **found}))
    assert "in FP32" in end and "a bug in the model's code" in end and "What to do: look" in end
    assert "where" not in found or "in head" in end


def test_a_replay_that_is_not_finite_in_fp32_after_a_few_updates_lowers_the_lr_once() -> None:
    replay = {**FINE, "fp32": "nonfinite"}
    job = a_job()
    one = an_attempt(1, job.knobs, nan_fault(4, replay=replay))
    lower = decide(job, [one], [], None)
    assert isinstance(lower, Relaunch) and lower.rung is R.LOWER_LR
    end = decide(job, [one, carried_out(2, lower, nan_fault(4, replay=replay))], [], None)
    assert isinstance(end, Stop) and "a bug in the model's code" in end.diagnosis
    at_once = first_rung(nan_fault(1, replay=replay))
    assert "a bug in the model's code" in at_once


def test_a_huge_gradient_norm_in_the_first_updates_raises_the_clip() -> None:
    job = a_job()
    fault = nan_fault(2, replay={**FINE, "fp32": "nonfinite"}, first_norm=1654.0)
    one = an_attempt(1, job.knobs, fault)
    clip = decide(job, [one], [], None)
    assert isinstance(clip, Relaunch) and clip.rung is R.RAISE_CLIP and "norm was 1654" in clip.because
    small = decide(job, [an_attempt(1, job.knobs, replace(fault, first_norm=7.0))], [], None)
    assert isinstance(small, Relaunch) and small.rung is R.LOWER_LR


def test_a_scale_collapse_after_a_steep_rise_of_the_loss_lowers_the_lr() -> None:
    job = a_job()
    fault = nan_fault(38, F.SCALE_COLLAPSE, replay={**FINE, "fp32": "finite"})
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
    assert first_rung(nan_fault(37, F.SCALE_COLLAPSE, onset=18, replay={**FINE, "fp32": "finite"}), TITAN) is R.FP32


def test_weights_that_grew_a_thousandfold_lower_the_lr_even_if_fp32_is_not_finite() -> None:
    replay = {**FINE, "fp32": "nonfinite", "grown": "1.4e+17"}
    assert first_rung(nan_fault(159, shape="spike", onset=159, replay=replay)) is R.LOWER_LR
    assert "a bug in the model's code" in first_rung(
        nan_fault(159, shape="spike", onset=159, replay={**replay, "grown": "1.3"})
    )


def test_an_lr_that_was_lowered_is_lowered_again_while_the_numbers_rise_steeply() -> None:
    job = a_job()
    one = an_attempt(1, job.knobs, nan_fault(8, shape="drift", onset=3))
    lower = decide(job, [one], [], None)
    assert isinstance(lower, Relaunch) and lower.rung is R.LOWER_LR
    for step, onset in ((8, 5), (25, 22), (25, 25)):
        replay = {**FINE, "fp32": "finite"}
        two = carried_out(2, lower, nan_fault(step, shape="spike", onset=onset, replay=replay))
        again = decide(job, [one, two], [], None)
        assert isinstance(again, Relaunch) and again.rung is R.LOWER_LR and again.knobs.lr == 1e-5


def test_not_learning_after_a_drift_lowers_the_lr_again_and_other_rungs_are_replaced() -> None:
    job = a_job()
    drift = nan_fault(10, F.DIVERGENCE, shape="drift", onset=4)
    one = an_attempt(1, job.knobs, drift)
    lower = decide(job, [one], [], None)
    assert isinstance(lower, Relaunch)
    two = carried_out(2, lower, nan_fault(317, F.NOT_LEARNING, onset=10))
    again = decide(job, [one, two], [], None)
    assert isinstance(again, Relaunch) and again.rung is R.LOWER_LR and again.knobs.lr == 1e-5
    assert again.because.startswith("divergence at step 10")
    sudden = an_attempt(1, job.knobs, nan_fault(10))
    clip = decide(job, [sudden], [], None)
    assert isinstance(clip, Relaunch) and clip.rung is R.RAISE_CLIP
    other = decide(job, [sudden, carried_out(2, clip, nan_fault(317, F.NOT_LEARNING, onset=10))], [], None)
    assert isinstance(other, Relaunch) and other.rung is R.LOWER_LR and other.knobs.clip == 5.0


def test_inputs_that_are_not_finite_stop_and_name_the_data_unless_they_can_be_skipped() -> None:
    fault = nan_fault(
        40, shape="spike", onset=40, replay={"weights": "finite", "inputs": "nonfinite", "fp32": "nonfinite"}
    )
    assert "the data is at fault" in first_rung(fault) and "the inputs of step 40" in first_rung(fault)
    assert first_rung(fault, ladder=FURTHER) is R.SKIP_DATA


def test_inputs_that_are_not_finite_go_to_fp32_if_the_replay_is_finite_there() -> None:
    assert first_rung(nan_fault(replay={"weights": "finite", "inputs": "nonfinite", "fp32": "finite"}), TITAN) is R.FP32


def test_with_weights_that_are_not_finite_the_shape_of_the_fault_decides() -> None:
    state = {"weights": "nonfinite", "inputs": "finite", "fp32": "unknown"}
    assert first_rung(nan_fault(shape="spike", onset=100, replay=state)) is R.RAISE_CLIP
    assert first_rung(nan_fault(shape="drift", onset=60, replay=state)) is R.LOWER_LR
    assert first_rung(nan_fault(2, replay=state)) is R.FP32


@pytest.mark.parametrize("fp32", ["finite", "nonfinite"])
def test_a_fault_with_an_earlier_onset_is_treated_by_its_shape_and_not_by_the_replay(fp32: str) -> None:
    replay = {**FINE, "fp32": fp32}
    assert first_rung(nan_fault(shape="drift", onset=60, replay=replay)) is R.LOWER_LR
    assert first_rung(nan_fault(shape="spike", onset=97, replay=replay)) is R.RAISE_CLIP
    assert blew_up_before(nan_fault(shape="spike", onset=97)) and not blew_up_before(
        nan_fault(shape="spike", onset=100)
    )


def test_sudden_nan_in_fp32_too_stops_and_names_the_model_or_the_data() -> None:
    job = a_job()
    one = an_attempt(
        1, job.knobs, nan_fault(shape="spike", onset=100, replay={**FINE, "fp32": "finite", "where": "loss"})
    )
    fp32 = decide(job, [one], [], TITAN)
    assert isinstance(fp32, Relaunch) and fp32.rung is R.FP32
    later = nan_fault(
        340, shape="spike", onset=340, replay={"weights": "nonfinite", "inputs": "finite", "fp32": "unknown"}
    )
    end = decide(job, [one, carried_out(2, fp32, later)], [], None)
    assert (
        isinstance(end, Stop)
        and "at step 100 and in FP32 too at step 340: a bug in the model or the data" in end.diagnosis
    )


def test_sudden_nan_twice_in_an_fp32_script_stops_after_one_rung_and_names_a_bug() -> None:
    job = a_job(knobs={"mode": "zero-edit"})
    said = {"precision": "fp32", "lr": 1e-3}
    fault = nan_fault(
        60, shape="spike", onset=60, replay={"weights": "nonfinite", "inputs": "finite", "fp32": "unknown"}
    )
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
    one = an_attempt(1, job.knobs, nan_fault(15, shape="spike", onset=15, replay=replay))
    lower = decide(job, [one], [], None)
    assert isinstance(lower, Relaunch) and lower.rung is R.LOWER_LR
    end = decide(job, [one, carried_out(2, lower, nan_fault(164, shape="spike", onset=164, replay=replay))], [], None)
    assert isinstance(end, Stop) and "in FP32 too in the loss" in end.diagnosis
