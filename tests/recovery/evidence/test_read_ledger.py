"""Tests what is counted from a job's own runs: as a try, as taken, and as survived, recovered, fell short or failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rung.jobs.job import Attempt, Outcome, Verdict
from rung.jobs.model.engine import DOCKER
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs, Precision
from rung.recovery.evidence.read_ledger import read_ledger
from rung.recovery.evidence.tries import Result, tries
from rung.recovery.ledger.ledger import EMPTY
from rung.recovery.ledger.row import CPU, Row
from tests.support.jobs_in_trouble import a_fault, an_attempt

OWN = Knobs(lr=1e-3, clip=5.0)
LOWER = OWN.but(lr=1e-4)
NAN = FaultKind.NAN_LOSS
TITAN = Gpu("NVIDIA TITAN RTX", (7, 5))


def faulty(**fields: Any) -> Attempt:
    return an_attempt(1, OWN, a_fault(NAN), by_person=True, **fields)


def lowered(fault: Any = None, **fields: Any) -> Attempt:
    values = {"rung": "lower_lr", "resumed_step": 80, "effective": LOWER.to_dict(), **fields}
    changes = {name: values.pop(name) for name in ("furthest_step", "outcome") if name in values}
    return replace(an_attempt(2, LOWER, fault, **values), **changes)


def only(*jobs: list[Attempt], here: Gpu | None = None) -> Row:
    (row,) = read_ledger(jobs, here).rows
    return row


def test_a_rung_survived_if_the_run_then_ends_well_without_a_word_about_learning() -> None:
    assert only([faulty(), lowered()]) == Row(NAN, CPU, "lower_lr", tries=1, took=1, survived=1, lost=20)


def test_a_rung_recovered_if_the_run_was_judged_so() -> None:
    row = only([faulty(), lowered(verdict=Verdict.RECOVERED)])
    assert (row.recovered, row.survived, row.judged) == (1, 0, 1)


@pytest.mark.parametrize(
    ("effective", "took"),
    [
        (LOWER.to_dict(), True),
        ({"lr": 1e-4}, True),
        ({**LOWER.to_dict(), "clip": 7.0}, True),  # the rung does not change the clip
        ({}, None),
        ({"clip": 5.0}, None),
        ({"lr": 1e-3}, False),
    ],
)
def test_a_change_took_only_if_its_value_was_seen_from_inside(effective: dict[str, Any], took: bool | None) -> None:
    row = only([faulty(), lowered(verdict=Verdict.RECOVERED, effective=effective)])
    assert (row.tries, row.took, row.not_known, row.not_taken) == (1, took is True, took is None, took is False)


def test_a_change_of_two_knobs_took_only_if_both_were_seen() -> None:
    halved = OWN.but(batch=4, accumulation=2)
    first = an_attempt(1, OWN.but(batch=8), a_fault(FaultKind.OOM), by_person=True)
    second = an_attempt(2, halved, None, rung="lower_batch", effective={"batch": 4})
    assert only([first, second]).not_known == 1
    assert only([first, replace(second, effective={"batch": 4, "accumulation": 2})]).took == 1


def test_fp32_took_whether_or_not_its_matmuls_were_in_tf32() -> None:
    widened = OWN.but(precision=Precision.FP32, matmul="tf32")
    second = an_attempt(2, widened, None, rung="fp32", effective={"precision": "fp32", "matmul": "strict"})
    assert only([faulty(), second]).took == 1
    assert only([faulty(), replace(second, effective={"precision": "fp32"})]).took == 1
    assert only([faulty(), replace(second, effective={"precision": "amp_fp16", "matmul": "tf32"})]).not_taken == 1


def test_a_change_that_did_not_take_counts_as_a_try_and_shows_nothing_about_the_rung() -> None:
    row = only([faulty(), lowered(a_fault(NAN), effective={"lr": 1e-3})])
    assert (row.tries, row.not_taken, row.failed, row.judged) == (1, 1, 0, 0)


def test_a_rung_of_a_job_without_hands_was_never_tried() -> None:
    """Nothing was set from inside, so the run shows only that the fault came again without a change."""
    no_hands = lowered(a_fault(NAN), hands="silent", effective={})
    assert read_ledger([[faulty(), no_hands]]) == EMPTY
    assert only([faulty(), replace(no_hands, hands="")]).failed == 1


def result(after: Attempt) -> Result:
    (found,) = tries([faulty(), after])
    return found.result


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (lowered(a_fault(NAN)), Result.FAILED),
        (lowered(a_fault(NAN, 399)), Result.FAILED),
        (lowered(a_fault(NAN, 400)), Result.SURVIVED),  # max(300, 3 x 100) steps beyond step 100
        (lowered(a_fault(NAN, 250), verdict=Verdict.RECOVERED), Result.RECOVERED),
        (lowered(a_fault(NAN, 250), verdict=Verdict.SURVIVED), Result.SURVIVED),
        (lowered(a_fault(FaultKind.UNKNOWN_EXIT, 90)), Result.FAILED),
        (lowered(furthest_step=450, outcome=Outcome.PENDING), Result.SURVIVED),
        (lowered(verdict=Verdict.SURVIVED), Result.SURVIVED),
        # None of these learns, however far it came and whatever was said of it before.
        (lowered(a_fault(FaultKind.NOT_LEARNING, 2000)), Result.FELL_SHORT),
        (lowered(a_fault(FaultKind.NOT_LEARNING, 2000), verdict=Verdict.RECOVERED), Result.FELL_SHORT),
        (lowered(verdict=Verdict.NOT_LEARNING), Result.FELL_SHORT),
        (lowered(furthest_step=2000, outcome=Outcome.FELL_SHORT), Result.FELL_SHORT),
        (lowered(outcome=Outcome.FELL_SHORT, verdict=Verdict.RECOVERED), Result.FELL_SHORT),  # as 0.1.0 stored it
    ],
)
def test_each_try_has_one_result(after: Attempt, expected: Result) -> None:
    assert result(after) is expected
    row = only([faulty(), after])
    counts = {name: getattr(row, name) for name in Result}
    assert counts == {name: int(name is expected) for name in Result}


@pytest.mark.parametrize(
    "after",
    [
        lowered(furthest_step=150, outcome=Outcome.PENDING),
        lowered(furthest_step=150, outcome=Outcome.CANCELLED),
        lowered(a_fault(FaultKind.INFRA_FAULT, 150)),
        lowered(furthest_step=150, outcome=Outcome.INTERRUPTED),
    ],
)
def test_a_rung_without_a_known_result_does_not_count(after: Attempt) -> None:
    assert read_ledger([[faulty(), after]]) == EMPTY


@pytest.mark.parametrize(
    "ended",
    [lowered(a_fault(FaultKind.INFRA_FAULT, 150)), lowered(furthest_step=150, outcome=Outcome.INTERRUPTED)],
    ids=["fault of the machine", "interruption"],
)
def test_a_try_continues_after_an_end_that_says_nothing_about_it(ended: Attempt) -> None:
    again = an_attempt(3, LOWER, None)
    assert only([faulty(), ended, again]).survived == 1
    # What was seen before the end is seen.
    assert only([faulty(), ended, again]).took == 1


def test_a_retry_by_a_person_starts_a_new_incident() -> None:
    useless = lowered(a_fault(NAN))
    retried = an_attempt(3, LOWER, a_fault(FaultKind.DIVERGENCE, 60), by_person=True, resumed_step=50)
    clipped = LOWER.but(clip=1.0)
    cured = an_attempt(4, clipped, None, rung="raise_clip", resumed_step=50, effective=clipped.to_dict())
    rows = {row.rung: row for row in read_ledger([[faulty(), useless, retried, cured]]).rows}
    assert (rows["lower_lr"].failed, rows["raise_clip"].survived, rows["raise_clip"].lost) == (1, 1, 10)
    assert (rows["lower_lr"].fault, rows["raise_clip"].fault) == (NAN, FaultKind.DIVERGENCE)


def test_rows_are_separate_for_each_gpu_and_each_fault() -> None:
    here = [faulty(), lowered()]
    there = [replace(each, gpus=(Gpu("Tesla P100-PCIE-16GB", (6, 0)),), engine=DOCKER) for each in here]
    spread = [replace(here[0], fault=a_fault(FaultKind.DIVERGENCE)), here[1]]
    found = {(row.fault.value, row.gpu): row.tries for row in read_ledger([here, there, there, spread], TITAN).rows}
    assert found == {("nan_loss", "TITANRTX"): 1, ("nan_loss", "P100"): 2, ("divergence", "TITANRTX"): 1}


def test_the_steps_lost_are_the_median() -> None:
    jobs = [[faulty(), lowered(resumed_step=step)] for step in (0, 80, 90)]
    assert only(*jobs).lost == 20
