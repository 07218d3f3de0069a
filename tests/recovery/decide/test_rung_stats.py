"""Tests the ledger: what counts as a try, as taken and as survived, and what order follows from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.jobs.job import Attempt, Outcome, Verdict
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs, RungName
from rung.recovery.decide.decide import Relaunch, decide
from rung.recovery.decide.rung_stats import CPU, EMPTY, Ledger, Row, read_ledger
from rung.recovery.decide.treatments import TREATMENTS, Budget
from tests.support.jobs_in_trouble import a_checkpoint, a_fault, a_job, an_attempt

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


def test_a_rung_survived_if_the_run_then_succeeds() -> None:
    assert only([faulty(), lowered()]) == Row(NAN, CPU, "lower_lr", tries=1, took=1, survived=1, lost=20)


def test_a_rung_that_did_not_take_counts_as_a_try_but_not_as_a_failure() -> None:
    row = only([faulty(), lowered(a_fault(NAN), effective={"lr": 1e-3})])
    assert (row.tries, row.took, row.survived) == (1, 0, 0)
    ledger = Ledger((row,))
    assert ledger.row(NAN, CPU, RungName.LOWER_LR) is None
    order = [RungName.LOWER_LR, RungName.FP32]
    assert ledger.ranked(NAN, CPU, order, diagnosed=False) == order


def test_a_rung_is_not_judged_by_knobs_that_it_does_not_change() -> None:
    row = only([faulty(), lowered(effective={**LOWER.to_dict(), "clip": 7.0})])
    assert (row.took, row.survived) == (1, 1)


@pytest.mark.parametrize(
    ("after", "survived"),
    [
        (lowered(a_fault(NAN)), 0),
        (lowered(a_fault(NAN, 399)), 0),
        (lowered(a_fault(NAN, 400)), 1),  # max(300, 3 x 100) steps beyond step 100
        (lowered(a_fault(NAN, 250), verdict=Verdict.RECOVERED), 1),
        (lowered(a_fault(FaultKind.NOT_LEARNING, 2000)), 0),
        (lowered(a_fault(FaultKind.UNKNOWN_EXIT, 90)), 0),
        (lowered(furthest_step=450, outcome=Outcome.PENDING), 1),
    ],
)
def test_a_rung_survived_if_the_run_learns_or_gets_far_past_the_fault(after: Attempt, survived: int) -> None:
    row = only([faulty(), after])
    assert (row.tries, row.survived) == (1, survived)


@pytest.mark.parametrize(
    "after",
    [
        lowered(furthest_step=150, outcome=Outcome.PENDING),
        lowered(furthest_step=150, outcome=Outcome.CANCELLED),
        lowered(a_fault(FaultKind.INFRA_FAULT, 150)),
    ],
)
def test_a_rung_without_a_known_result_does_not_count(after: Attempt) -> None:
    assert read_ledger([[faulty(), after]]) == EMPTY


def test_a_try_continues_after_a_fault_of_the_machine() -> None:
    crashed = lowered(a_fault(FaultKind.INFRA_FAULT, 150))
    again = an_attempt(3, LOWER, None)
    assert only([faulty(), crashed, again]).survived == 1


def test_a_retry_by_a_person_starts_a_new_incident() -> None:
    useless = lowered(a_fault(NAN))
    retried = an_attempt(3, LOWER, a_fault(FaultKind.DIVERGENCE, 60), by_person=True, resumed_step=50)
    clipped = LOWER.but(clip=1.0)
    cured = an_attempt(4, clipped, None, rung="raise_clip", resumed_step=50, effective=clipped.to_dict())
    rows = {row.rung: row for row in read_ledger([[faulty(), useless, retried, cured]]).rows}
    assert (rows["lower_lr"].survived, rows["raise_clip"].survived, rows["raise_clip"].lost) == (0, 1, 10)
    assert (rows["lower_lr"].fault, rows["raise_clip"].fault) == (NAN, FaultKind.DIVERGENCE)


def test_rows_are_separate_for_each_gpu_and_each_fault() -> None:
    here = [faulty(), lowered()]
    there = [replace(each, gpus=(Gpu("Tesla P100-PCIE-16GB", (6, 0)),), image="x") for each in here]
    spread = [replace(here[0], fault=a_fault(FaultKind.DIVERGENCE)), here[1]]
    found = {(row.fault.value, row.gpu): row.tries for row in read_ledger([here, there, there, spread], TITAN).rows}
    assert found == {("nan_loss", "TITANRTX"): 1, ("nan_loss", "P100"): 2, ("divergence", "TITANRTX"): 1}


def test_the_steps_lost_are_the_median() -> None:
    jobs = [[faulty(), lowered(resumed_step=step)] for step in (0, 80, 90)]
    assert only(*jobs).lost == 20


# Order

ORDER = [RungName.RAISE_CLIP, RungName.LOWER_LR, RungName.FP32, RungName.SKIP_DATA]


def seen(rung: RungName, survived: int, took: int) -> Row:
    return Row(NAN, "TITANRTX", rung.value, took, took, survived, 0)


@given(st.permutations(ORDER), st.booleans())
def test_an_empty_ledger_changes_no_order(order: list[RungName], diagnosed: bool) -> None:
    assert EMPTY.ranked(NAN, CPU, order, diagnosed=diagnosed) == order


def test_many_runs_change_the_order_of_a_diagnosis_and_a_few_do_not() -> None:
    ledger = Ledger((seen(RungName.LOWER_LR, 8, 9), seen(RungName.RAISE_CLIP, 1, 6)))
    assert ledger.ranked(NAN, "TITANRTX", ORDER, diagnosed=True)[0] is RungName.LOWER_LR
    lucky = Ledger((seen(RungName.LOWER_LR, 2, 2),))
    assert lucky.ranked(NAN, "TITANRTX", ORDER, diagnosed=True) == ORDER


def test_runs_on_other_gpus_or_with_other_faults_do_not_change_the_order() -> None:
    ledger = Ledger((seen(RungName.FP32, 50, 50),))
    assert ledger.ranked(NAN, "P100", ORDER, diagnosed=False) == ORDER
    assert ledger.ranked(FaultKind.DIVERGENCE, "TITANRTX", ORDER, diagnosed=False) == ORDER


@given(st.integers(0, 40), st.integers(0, 40))
def test_one_more_survivor_never_lowers_a_rung_and_one_more_failure_never_raises_it(survived: int, failed: int) -> None:
    def place(good: int, bad: int) -> int:
        ledger = Ledger((seen(RungName.FP32, good, good + bad),))
        return ledger.ranked(NAN, "TITANRTX", ORDER, diagnosed=False).index(RungName.FP32)

    assert place(survived + 1, failed) <= place(survived, failed) <= place(survived, failed + 1)


def test_the_reason_names_the_chosen_rung_and_the_one_it_replaces() -> None:
    ledger = Ledger((seen(RungName.LOWER_LR, 8, 9), seen(RungName.RAISE_CLIP, 1, 6)))
    assert ledger.because(NAN, "TITANRTX", RungName.LOWER_LR, RungName.RAISE_CLIP) == (
        "8 of 9 runs with nan_loss on TITANRTX went on after lower_lr here, 1 of 6 after raise_clip"
    )
    assert ledger.because(NAN, "TITANRTX", RungName.FP32, RungName.RAISE_CLIP).startswith("only 1 of 6 runs")
    assert ledger.because(NAN, "TITANRTX", RungName.FP32, RungName.FP32) == ""


# Decisions with a ledger

CURES_LR = Ledger((Row(NAN, CPU, "lower_lr", 9, 9, 8, 20), Row(NAN, CPU, "raise_clip", 6, 6, 0, 20)))


def decided(ladder: Any, ledger: Ledger, **fault: Any) -> Relaunch:
    job = a_job(recovery={"ladder": ladder})
    attempts = [an_attempt(1, job.knobs, a_fault(**{"kind": NAN, **fault}), by_person=True)]
    made = decide(job, attempts, [a_checkpoint(80)], None, (), ledger)
    assert isinstance(made, Relaunch), made
    return made


def test_auto_takes_the_rung_that_helped_before_and_gives_the_reason() -> None:
    made = decided("auto", CURES_LR)
    assert made.rung is RungName.LOWER_LR
    assert "8 of 9 runs with nan_loss on the CPU went on after lower_lr here, 0 of 6 after raise_clip" in made.because
    assert dict(made.skipped)["raise_clip"].startswith("not first: 8 of 9")


def test_a_ladder_in_the_job_file_keeps_its_order_with_any_ledger() -> None:
    made = decided(["raise_clip", "lower_lr"], CURES_LR)
    assert made.rung is RungName.RAISE_CLIP and "runs with" not in made.because


@pytest.mark.parametrize("shape", [None, "drift", "spike"])
@pytest.mark.parametrize("kind", [kind for kind in FaultKind if TREATMENTS[kind].budget is Budget.LADDER])
def test_auto_with_an_empty_ledger_chooses_as_the_default_ladder(kind: FaultKind, shape: str | None) -> None:
    def choice(recovery: dict[str, Any]) -> Any:
        job = a_job(knobs={"batch": 8}, recovery=recovery)
        attempts = [an_attempt(1, job.knobs, a_fault(kind, shape=shape), by_person=True)]
        made = decide(job, attempts, [a_checkpoint(80)], None)
        return (made.rung, made.knobs, made.because) if isinstance(made, Relaunch) else made.diagnosis

    assert choice({"ladder": "auto"}) == choice({})


def test_a_rung_that_cannot_cure_the_fault_is_not_chosen_with_any_ledger() -> None:
    lies = Ledger((Row(FaultKind.FP16_OVERFLOW, CPU, "raise_clip", 50, 50, 50, 0),))
    assert decided("auto", lies, kind=FaultKind.FP16_OVERFLOW).rung is not RungName.RAISE_CLIP
