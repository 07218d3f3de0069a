"""Tests the choice between FP32 as a whole and places in FP32, by what a step costs on each kind of GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs, Precision, RungName
from rung.jobs.model.trial import SURVIVED, Candidate, Trial
from rung.recovery.decide.decide import Relaunch, climb_of, decide
from rung.recovery.decide.diagnose import diagnose
from rung.recovery.ledger.step_cost import fp32_cost_in_trials
from tests.support.jobs_in_trouble import a_fault, a_job, an_attempt

R = RungName
P100, TITAN, A100 = Gpu("Tesla P100", (6, 0)), Gpu("NVIDIA TITAN RTX", (7, 5)), Gpu("NVIDIA A100", (8, 0))
PLACES = "fp32_modules:head.norm,loss"


def failed(cost: str = "", whole: str = "", cure: str = PLACES, **fields: Any) -> Fault:
    replay = {"weights": "finite", "inputs": "finite", "fp32": "finite", "cure": cure, "cost": cost, "whole": whole}
    kind = fields.pop("kind", FaultKind.NAN_LOSS)
    return a_fault(kind, 100, replay={**replay, **fields.pop("replay", {})}, **fields)


def decided(fault: Fault, gpu: Gpu | None, *trials: Attempt) -> Relaunch:
    job = a_job(knobs={"mode": "zero-edit"})
    attempts = [*trials, an_attempt(len(trials) + 1, job.knobs, fault)]
    decision = decide(job, attempts, [], gpu)
    assert isinstance(decision, Relaunch)
    return decision


@pytest.mark.parametrize(
    ("gpu", "cost", "whole", "rung"),
    [
        # As the replay measured it on this GPU.
        (P100, "25.0%", "30.0%", R.FP32),
        (P100, "1.6%", "30.0%", R.FP32_MODULES),
        (P100, "20.0%", "32.0%", R.FP32),  # 1.32 is a tenth more than 1.2
        (P100, "19.0%", "32.0%", R.FP32_MODULES),
        (P100, "40.0%", "0.0%", R.FP32),
        (TITAN, "25.0%", "280.0%", R.FP32_MODULES),
        (TITAN, "25.0%", "12.0%", R.FP32),  # a model without large matmuls
        # By the table: FP32 costs at most 2x without tensor cores, and at most 8x with them.
        (P100, "25.0%", "", R.FP32_MODULES),
        (P100, "90.0%", "", R.FP32),
        (TITAN, "90.0%", "", R.FP32_MODULES),
        (TITAN, "700.0%", "", R.FP32),
        # What the places cost is not known.
        (P100, "", "0.0%", R.FP32_MODULES),
        (P100, "25.0%", "nan%", R.FP32_MODULES),
        # Where there is bf16 it is the next wider precision; on a CPU no time tells anything.
        (A100, "90.0%", "0.0%", R.FP32_MODULES),
        (None, "90.0%", "0.0%", R.FP32_MODULES),
    ],
)
def test_fp32_as_a_whole_is_taken_where_places_take_as_long(
    gpu: Gpu | None, cost: str, whole: str, rung: RungName
) -> None:
    decision = decided(failed(cost, whole), gpu)
    assert decision.rung is rung
    assert decision.knobs.precision is (Precision.FP32 if rung is R.FP32 else None)


def test_the_sentence_has_the_figures_and_where_they_are_from() -> None:
    measured = decided(failed("25.0%", "30.0%"), P100)
    assert (
        "the same step is finite with either, and FP32 as a whole costs 1.3x (measured in the replay), FP32 in "
        "head.norm and the loss only 1.25x: the same within a tenth, without a list of places that may grow: fp32"
    ) in measured.because
    assert "not first: the same step is finite with either" in dict(measured.skipped)["fp32_modules"]
    by_table = decided(failed("130.0%"), P100).because
    assert (
        "FP32 as a whole costs 2x (the most on Tesla P100), FP32 in head.norm and the loss only 2.3x: less" in by_table
    )
    kept = decided(failed("1.6%", "30.0%"), TITAN).because
    assert "1.6 % slower; the rest stays FP16; FP32 as a whole costs 1.3x (measured in the replay): fp32_m" in kept
    assert "FP32 as a whole costs 2x (the most on Tesla P100): fp32_modules" in decided(failed("1.6%"), P100).because
    assert "FP32 as a whole" not in decided(failed("1.6%"), TITAN).because


def test_fp32_that_does_not_fit_the_memory_leaves_the_places() -> None:
    decision = decided(failed("25.0%", "30.0%", replay={"fits": "no"}), P100)
    assert decision.rung is R.FP32_MODULES and "finite with FP32 in head.norm and the loss only" in decision.because


def test_fp32_is_as_proven_as_the_places_and_needs_no_trials() -> None:
    job = a_job(knobs={"mode": "zero-edit"})
    for falling in (True, False):
        attempt = an_attempt(1, job.knobs, failed("25.0%", "30.0%"), was_falling=falling)
        diagnosis = diagnose(climb_of(job, [attempt], P100).context)
        assert diagnosis.rungs[:2] == (R.FP32, R.FP32_MODULES) and diagnosis.proven is falling


def a_trial(number: int, knobs: Knobs, ms: float | None, *gpus: Gpu) -> Attempt:
    trial = Trial(1, 0, (Candidate("fp32", knobs),), 0, 10, 110, 400, ms=ms, verdict=SURVIVED)
    return an_attempt(number, knobs, None, trial=trial, gpus=gpus)


def trials(plain: float | None, wide: float | None, gpu: Gpu) -> list[Attempt]:
    fp32 = Knobs(precision=Precision.FP32)
    return [a_trial(1, Knobs(lr=1e-4), plain, gpu), a_trial(2, fp32, wide, gpu), a_trial(3, fp32, wide, gpu)]


def test_what_trials_measured_counts_before_the_replay_and_the_table() -> None:
    said = decided(failed("25.0%", "200.0%"), P100, *trials(10.0, 13.0, P100))
    assert said.rung is R.FP32 and "FP32 as a whole costs 1.3x (measured in trials)" in said.because
    assert decided(failed("25.0%", "0.0%"), P100, *trials(10.0, 19.0, P100)).rung is R.FP32_MODULES


def test_trials_tell_the_cost_of_fp32_only_on_such_gpus_and_with_both_times() -> None:
    assert fp32_cost_in_trials(trials(10.0, 13.0, P100), P100) == 1.3
    unleased = [replace(each, gpus=()) for each in trials(10.0, 13.0, P100)]
    assert fp32_cost_in_trials(unleased, P100) == 1.3
    assert fp32_cost_in_trials(unleased, None) is None
    assert fp32_cost_in_trials(trials(10.0, 13.0, TITAN), P100) is None
    assert fp32_cost_in_trials(trials(None, 13.0, P100), P100) is None
    assert fp32_cost_in_trials(trials(10.0, None, P100), P100) is None
    places = a_trial(1, Knobs(fp32_modules="loss"), 12.0, P100)
    assert fp32_cost_in_trials([places, *trials(None, 13.0, P100)], P100) is None


def overflow(gpu: Gpu, **fields: Any) -> Relaunch:
    source = "model.py:31: scores.masked_fill(mask, -1e9)"
    return decided(failed(kind=FaultKind.FP16_OVERFLOW, source=source, **fields), gpu)


def test_an_overflow_without_tensor_cores_goes_to_fp32_unless_something_cheaper_was_measured() -> None:
    plain = overflow(P100, cure="")
    assert plain.rung is R.FP32 and "has no FP16 tensor cores, so FP32 costs 2x at most" in plain.because
    assert overflow(P100, cure="fp32_modules:loss").rung is R.FP32
    assert overflow(P100, cure="clamp_constants", cost="0.0%").rung is R.CLAMP_CONSTANTS
    assert overflow(P100, cost="3.0%").rung is R.FP32_MODULES
    assert overflow(P100, cost="25.0%", whole="30.0%").rung is R.FP32


def test_a_ladder_without_fp32_takes_the_places() -> None:
    own = a_job(knobs={"mode": "zero-edit"}, recovery={"ladder": ["fp32_modules"]})
    decision = decide(own, [an_attempt(1, own.knobs, failed("25.0%", "30.0%"))], [], P100)
    assert isinstance(decision, Relaunch) and decision.knobs.fp32_modules == "head.norm,loss"
