"""Tests what `ladder: auto` chooses: by the chance of recovery, with the runs behind it in the reason."""

from __future__ import annotations

from typing import Any

import pytest

from rung.jobs.model.fault import FaultKind
from rung.jobs.model.knobs import RungName
from rung.recovery.decide.decide import Relaunch, decide
from rung.recovery.decide.treatments import TREATMENTS, Budget
from rung.recovery.ledger.ledger import EMPTY, Ledger
from rung.recovery.ledger.row import CPU, Row
from tests.support.jobs_in_trouble import a_checkpoint, a_fault, a_job, an_attempt

NAN = FaultKind.NAN_LOSS
CURES_LR = Ledger((Row(NAN, CPU, "lower_lr", recovered=8, failed=1), Row(NAN, CPU, "raise_clip", fell_short=6)))


def decided(ladder: Any, ledger: Ledger, **fault: Any) -> Relaunch:
    job = a_job(recovery={"ladder": ladder})
    attempts = [an_attempt(1, job.knobs, a_fault(**{"kind": NAN, **fault}), by_person=True)]
    made = decide(job, attempts, [a_checkpoint(80)], None, (), ledger)
    assert isinstance(made, Relaunch), made
    return made


def test_auto_takes_the_rung_after_which_runs_recovered_and_says_how_likely_that_is() -> None:
    made = decided("auto", CURES_LR)
    assert made.rung is RungName.LOWER_LR
    evidence = (
        "8 of 9 runs with nan_loss on the CPU recovered after lower_lr here (75 %, between 60 and 89 %), "
        "0 of 6 after raise_clip (20 %, between 6 and 37 %)"
    )
    assert f": {evidence}: lower_lr (lr 0.001 -> 0.0001)" in made.because
    assert dict(made.skipped)["raise_clip"] == f"not first: {evidence}"


def test_runs_that_only_survived_or_fell_short_do_not_bring_a_rung_to_the_front() -> None:
    """Four of five runs that went on after raise_clip, of which none was known to learn, once chose it."""
    went_on = Row(FaultKind.DIVERGENCE, CPU, "raise_clip", tries=5, not_known=5, survived=3, fell_short=1, failed=1)
    made = decided("auto", Ledger((went_on,)), kind=FaultKind.DIVERGENCE)
    assert made.rung is RungName.LOWER_LR


def test_auto_says_at_every_decision_how_likely_the_rung_is_to_help() -> None:
    first = decided("auto", EMPTY).because
    assert (
        "the lowest rung, and no run with nan_loss on the CPU has shown yet what raise_clip does here (50 %," in first
    )
    diagnosed = decided("auto", EMPTY, shape="drift").because
    assert "and no run with nan_loss on the CPU has shown yet what lower_lr does here (85 %," in diagnosed


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
        return (made.rung, made.knobs, made.checkpoint) if isinstance(made, Relaunch) else made.diagnosis

    assert choice({"ladder": "auto"}) == choice({})


def test_a_rung_that_cannot_cure_the_fault_is_not_chosen_with_any_ledger() -> None:
    lies = Ledger((Row(FaultKind.FP16_OVERFLOW, CPU, "raise_clip", recovered=50),))
    assert decided("auto", lies, kind=FaultKind.FP16_OVERFLOW).rung is not RungName.RAISE_CLIP
