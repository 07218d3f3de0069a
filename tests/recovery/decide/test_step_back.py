"""Tests stepping back: when it is due, to which knobs, what a fault then does, and that each is tried once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rung.jobs.job import Attempt, Job, Outcome, Verdict
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.knobs import Knobs, Precision
from rung.jobs.model.saturation import Saturation
from rung.recovery.decide.decide import Relaunch, decide
from rung.recovery.decide.incident import incident_after
from rung.recovery.decide.step_back import Tried, decide_step_back, faster_knobs, is_due, is_possible, tried_before
from tests.support.jobs_in_trouble import a_checkpoint, a_fault, a_job, an_attempt

FIRST = Knobs(lr=1e-3, clip=5.0, growth_interval=2000, precision=Precision.AMP_FP16)
FP32 = FIRST.but(precision=Precision.FP32)
BEYOND = [a_checkpoint(80), a_checkpoint(2000)]


def job(knobs: dict[str, Any] | None = None, **recovery: Any) -> Job:
    return a_job(knobs=knobs or {}, recovery={"step_back": "after 2000 clean steps", **recovery})


def faulty() -> Attempt:
    return an_attempt(1, FIRST, a_fault(FaultKind.NAN_LOSS))


def cured(furthest: int = 2100, **fields: Any) -> Attempt:
    made = an_attempt(2, FP32, None, rung="fp32", resumed_step=80, verdict=Verdict.RECOVERED)
    return replace(made, **{"furthest_step": furthest, "outcome": Outcome.PENDING, **fields})


def stopped() -> Attempt:
    return cured(outcome=Outcome.STOPPED)


def back(kind: FaultKind | None = FaultKind.NAN_LOSS, step: int = 2500, number: int = 3) -> Attempt:
    return an_attempt(number, FIRST, a_fault(kind, step) if kind else None, stepped_back=True, resumed_step=2000)


def test_a_step_back_is_due_after_the_number_of_clean_steps_and_not_before() -> None:
    assert is_due(job(), [faulty(), cured(2100)])
    assert not is_due(job(), [faulty(), cured(2099)])
    assert not is_due(a_job(), [faulty(), cured(9000)])


def test_no_step_back_is_due_for_a_run_that_is_not_known_to_learn() -> None:
    assert not is_due(job(), [faulty(), cured(verdict=None)])
    assert not is_due(job(), [faulty(), cured(fault=a_fault(FaultKind.NAN_LOSS, 2050))])


def test_fp32_values_for_the_optimizer_of_a_script_in_plain_fp16_are_no_wider_precision() -> None:
    own = job(knobs={"mode": "zero-edit", "lr": None, "clip": None})
    plain = an_attempt(1, own.knobs, a_fault(FaultKind.NAN_LOSS), effective={"lr": 0.1, "precision": "native_fp16"})
    asked = own.knobs.but(precision=Precision.NATIVE_FP16)
    assert not is_due(own, [plain, cured(asked=asked, rung="native_fp16")])
    assert is_due(own, [plain, cured(asked=asked.but(precision=Precision.FP32))])
    lower = cured(asked=asked.but(lr=0.01), rung="native_fp16", outcome=Outcome.STOPPED)
    back = decide_step_back(own, [plain, lower], BEYOND)
    assert isinstance(back, Relaunch) and back.knobs == asked


def test_a_step_back_leaves_matmuls_as_they_were() -> None:
    assert faster_knobs(FIRST, FP32.but(matmul="tf32")) == FIRST
    places = FIRST.but(fp32_modules="head,loss", matmul="tf32")
    fewer = faster_knobs(FIRST, places)
    assert fewer == places.but(fp32_modules="head")
    assert faster_knobs(FIRST, fewer) == FIRST


def test_a_step_back_happens_once() -> None:
    again = replace(cured(9000), number=4, rung=None)
    assert not is_due(job(), [faulty(), stopped(), back(), again])


def test_no_step_back_is_due_without_a_fault_or_without_a_knob_that_slows_the_run() -> None:
    assert not is_due(job(), [replace(cured(), number=1, rung=None)])
    assert not is_due(job(), [faulty(), cured(asked=FIRST.but(clip=1.0))])


def test_a_step_back_restores_the_precision_first_then_the_lr_and_keeps_the_clip() -> None:
    now = FP32.but(lr=1e-4, clip=1.0)
    assert faster_knobs(FIRST, now) == FIRST.but(lr=1e-4, clip=1.0)
    assert faster_knobs(FIRST, FIRST.but(lr=1e-4)) == FIRST
    assert faster_knobs(FIRST, FIRST.but(params="fp32")) == FIRST
    assert faster_knobs(FIRST, FIRST.but(clip=1.0)) is None


@pytest.mark.parametrize(
    ("checkpoints", "can"),
    [(BEYOND, True), ([a_checkpoint(100)], False), ([a_checkpoint(2000, "nonfinite")], False), ([], False)],
)
def test_a_step_back_needs_a_healthy_checkpoint_after_the_fault(checkpoints: list[Any], can: bool) -> None:
    assert is_possible(job(), [faulty(), cured()], checkpoints) is can


def test_a_step_back_resumes_with_the_first_knobs_from_the_newest_checkpoint() -> None:
    made = decide_step_back(job(), [faulty(), stopped()], BEYOND)
    assert made is not None and made.checkpoint is not None
    assert (made.rung, made.knobs, made.checkpoint.step, made.stepped_back) == (None, FIRST, 2000, True)
    assert made.because.startswith("2000 clean steps since the fault at step 100: stepping back (precision fp32")


def test_a_step_back_gives_a_knob_back_to_the_script() -> None:
    plain = replace(job(), knobs=Knobs())
    fp32 = replace(stopped(), asked=Knobs(precision=Precision.FP32))
    made = decide_step_back(plain, [replace(faulty(), asked=Knobs()), fp32], BEYOND)
    assert made is not None and made.knobs == Knobs()
    assert "(precision fp32 -> not set)" in made.because


def test_a_run_without_a_checkpoint_after_the_fault_keeps_its_knobs() -> None:
    made = decide_step_back(job(), [faulty(), stopped()], [a_checkpoint(80)])
    assert made is not None
    assert (made.knobs, made.stepped_back) == (FP32, False)


@pytest.mark.parametrize("kind", [FaultKind.NAN_LOSS, FaultKind.OOM, FaultKind.UNKNOWN_EXIT, FaultKind.UNSCALE_ERROR])
def test_any_fault_of_the_run_after_a_step_back_restores_the_knobs_that_cured_it(kind: FaultKind) -> None:
    made = decide_step_back(job(), [faulty(), stopped(), back(kind)], BEYOND)
    assert made is not None and made.checkpoint is not None
    assert (made.rung, made.knobs, made.checkpoint.step, made.stepped_back) == (None, FP32, 2000, False)


def test_decide_step_back_leaves_faults_of_the_machine_and_other_attempts_to_the_ladder() -> None:
    assert decide_step_back(job(), [faulty(), stopped(), back(FaultKind.INFRA_FAULT)], BEYOND) is None
    assert decide_step_back(job(), [faulty()], BEYOND) is None
    later = an_attempt(4, FP32, a_fault(FaultKind.NAN_LOSS, 4000))
    assert decide_step_back(job(), [faulty(), stopped(), back(), later], BEYOND) is None


def test_after_a_failed_step_back_the_ladder_continues_from_the_knobs_that_cured_the_run() -> None:
    later = an_attempt(4, FP32, a_fault(FaultKind.NAN_LOSS, 4000), effective=FP32.to_dict())
    made = decide(job(), [faulty(), stopped(), back(), later], BEYOND, None)
    assert isinstance(made, Relaunch)
    assert made.knobs.precision is Precision.FP32 and made.rung is not None


def test_a_step_back_and_its_failure_use_no_budget_and_reject_no_rung() -> None:
    later = an_attempt(4, FP32, a_fault(FaultKind.NAN_LOSS, 4000), effective=FP32.to_dict())
    attempts = [faulty(), stopped(), back(), later]
    assert isinstance(decide(job(max_attempts=3), attempts, BEYOND, None), Relaunch)
    assert not isinstance(decide(job(max_attempts=2), attempts, BEYOND, None), Relaunch)
    standing = incident_after(attempts[:3], FIRST)
    assert (standing.proven_knobs, standing.rejected_rungs, standing.furthest_fault_step) == (FP32, {}, 2500)


# Places in FP32 are taken off their list one by one.

NARROW = FIRST.but(fp32_modules="head.norm,head.out.*,loss")
SHORTER = FIRST.but(fp32_modules="head.norm,head.out.*")


def with_places(number: int = 2, asked: Knobs = NARROW, **fields: Any) -> Attempt:
    return replace(cured(), number=number, asked=asked, rung="fp32_modules", **fields)


def shorter(number: int, asked: Knobs, resumed: int, furthest: int, fault: bool = False) -> Attempt:
    """Return a run with a shorter list that was stopped in health, or failed."""
    made = an_attempt(number, asked, a_fault(FaultKind.NAN_LOSS, furthest) if fault else None, stepped_back=True)
    outcome = Outcome.FAULT if fault else Outcome.STOPPED
    return replace(made, resumed_step=resumed, furthest_step=furthest, outcome=outcome)


def running(attempt: Attempt) -> Attempt:
    return replace(attempt, outcome=Outcome.PENDING)


def returned(number: int, asked: Knobs, furthest: int) -> Attempt:
    """Return the run with the list from before a step back that failed."""
    return with_places(number, asked, furthest_step=furthest, resumed_step=2000)


HEALTHY = [faulty(), with_places(outcome=Outcome.STOPPED)]


def test_a_step_back_takes_the_last_place_off_the_list() -> None:
    assert is_due(job(), [faulty(), with_places()])
    made = decide_step_back(job(), HEALTHY, BEYOND)
    assert made is not None and (made.knobs, made.stepped_back, made.rung) == (SHORTER, True, None)
    said = "2000 clean steps since the fault at step 100: stepping back (the loss in FP16 again; "
    assert made.because.startswith(f"{said}head.norm and head.out.* stay in FP32)")


def test_places_go_one_after_another_each_after_as_many_clean_steps_as_asked() -> None:
    second = shorter(3, SHORTER, 2000, 4000)
    assert not is_due(job(), [*HEALTHY, running(replace(second, furthest_step=3999))])
    assert is_due(job(), [*HEALTHY, running(second)])
    checkpoints = [*BEYOND, a_checkpoint(3900)]
    assert is_possible(job(), [*HEALTHY, running(second)], checkpoints)
    assert not is_possible(job(), [*HEALTHY, running(second)], BEYOND)
    made = decide_step_back(job(), [*HEALTHY, second], checkpoints)
    assert made is not None and made.checkpoint is not None and made.checkpoint.step == 3900
    assert made.knobs.fp32_modules == "head.norm" and made.stepped_back
    said = "2000 clean steps since the step back at step 2000: stepping back (head.out.* in FP16 again; "
    assert made.because.startswith(f"{said}head.norm stays in FP32)")
    third = shorter(4, made.knobs, 3900, 5900)
    made = decide_step_back(job(), [*HEALTHY, second, third], [*checkpoints, a_checkpoint(5800)])
    assert made is not None and made.knobs == FIRST and "head.norm in FP16 again; no place is left" in made.because
    last = running(shorter(5, FIRST, 5800, 9999))
    assert not is_due(job(), [*HEALTHY, second, third, last])


def test_a_relapse_puts_the_place_back_and_tries_the_next_one_and_never_that_one_again() -> None:
    relapse = [*HEALTHY, shorter(3, SHORTER, 2000, 2500, fault=True)]
    made = decide_step_back(job(), relapse, BEYOND)
    assert made is not None and (made.knobs, made.stepped_back) == (NARROW, False)
    assert "nan_loss at step 2500 after stepping back: FP32 in the loss again, for good; " in made.because
    assert not is_due(job(), [*relapse, returned(4, NARROW, 4499)])
    assert not is_due(job(), [*relapse, replace(returned(4, NARROW, 4500), verdict=None)])
    assert is_due(job(), [*relapse, returned(4, NARROW, 4500)])
    back_again = replace(returned(4, NARROW, 4500), outcome=Outcome.STOPPED)
    made = decide_step_back(job(), [*relapse, back_again], [*BEYOND, a_checkpoint(4400)])
    assert made is not None and made.knobs.fp32_modules == "head.norm,loss"
    # The second place fails too: only it comes back, and the third is tried.
    relapse = [*relapse, back_again, shorter(5, made.knobs, 4400, 4600, fault=True)]
    made = decide_step_back(job(), relapse, BEYOND)
    assert made is not None and made.knobs == NARROW and "FP32 in head.out.* again, for good" in made.because
    assert faster_knobs(FIRST, NARROW, tried_before(relapse)) == FIRST.but(fp32_modules="head.out.*,loss")


def test_a_relapse_after_a_place_that_was_not_needed_returns_only_the_last_one() -> None:
    smaller = SHORTER.but(fp32_modules="head.norm")
    attempts = [*HEALTHY, shorter(3, SHORTER, 2000, 4000), shorter(4, smaller, 3900, 4100, fault=True)]
    made = decide_step_back(job(), attempts, BEYOND)
    assert made is not None and made.knobs == SHORTER
    # A rung may bring the loss back later. It has been tried.
    assert faster_knobs(FIRST, NARROW, tried_before(attempts)) == FIRST.but(fp32_modules="head.out.*,loss")


def test_places_of_the_job_file_are_never_taken_off() -> None:
    own = FIRST.but(fp32_modules="loss")
    assert faster_knobs(own, FIRST.but(fp32_modules="loss,head.norm")) == own
    assert faster_knobs(own, own) is None


def test_the_precision_goes_before_the_places_and_the_lr_after_them() -> None:
    now = NARROW.but(precision=Precision.NATIVE_FP16, lr=1e-4)
    assert faster_knobs(FIRST, now) == NARROW.but(lr=1e-4)
    assert faster_knobs(FIRST, now, Tried(knobs=True)) == now.but(fp32_modules=SHORTER.fp32_modules)
    assert faster_knobs(FIRST, NARROW.but(lr=1e-4)) == SHORTER.but(lr=1e-4)
    places = frozenset({"head.norm", "head.out.*", "loss"})
    assert faster_knobs(FIRST, NARROW.but(lr=1e-4), Tried(places)) == NARROW
    assert faster_knobs(FIRST, NARROW.but(lr=1e-4), Tried(places, knobs=True)) is None


def test_a_run_that_saturates_keeps_its_places() -> None:
    assert is_due(job(), [faulty(), with_places(saturation=Saturation(2000, 2))])
    assert not is_due(job(), [faulty(), with_places(saturation=Saturation(2000, 3))])


def test_shorter_lists_use_no_budget_whether_they_hold_or_not() -> None:
    second, third = shorter(3, SHORTER, 2000, 4000), shorter(4, FIRST.but(fp32_modules="head.norm"), 3900, 6000, True)
    later = replace(an_attempt(5, SHORTER, a_fault(FaultKind.NAN_LOSS, 7000)), effective=SHORTER.to_dict())
    attempts = [*HEALTHY, second, third, later]
    assert isinstance(decide(job(max_attempts=3), attempts, BEYOND, None), Relaunch)
    assert not isinstance(decide(job(max_attempts=2), attempts, BEYOND, None), Relaunch)
