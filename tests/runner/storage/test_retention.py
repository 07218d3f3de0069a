"""Tests which checkpoints of an ended job stay."""

from __future__ import annotations

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs
from rung.recovery.decide.checkpoint_choice import Checkpoint
from rung.runner.storage.retention import Retention, kept_names


def found(*steps: int, **verdicts: str) -> list[Checkpoint]:
    """Return checkpoints of these steps; `s30="poisoned"` is the verdict on that of step 30."""
    return [Checkpoint(f"s{step}", step, 100.0 + step, verdicts.get(f"s{step}")) for step in steps]


@pytest.mark.parametrize(
    ("keep", "checkpoints", "stays"),
    [
        (2, found(10, 20, 30), {"s20", "s30"}),
        (5, found(10, 20), {"s10", "s20"}),
        (0, found(10, 20), set()),
        (1, [], set()),
        # Bad ones do not count, and go.
        (1, found(10, 20, 30, s30="poisoned", s20="truncated"), {"s10"}),
        (1, found(10, 20, s20="poisoned", s10="poisoned"), set()),
        # The newest healthy one stays, however many newer ones nobody has verified.
        (1, found(10, 20, 30, s10="healthy"), {"s30", "s10"}),
        (2, found(10, 20, 30, s10="healthy", s30="unverified"), {"s30", "s20", "s10"}),
        (0, found(10, 20, s20="healthy"), set()),
    ],
)
def test_the_newest_ones_stay(keep: int, checkpoints: list[Checkpoint], stays: set[str]) -> None:
    assert kept_names(checkpoints, [], Retention(keep)) == stays


def test_the_last_one_of_a_job_that_succeeded_stays_in_any_case() -> None:
    assert kept_names(found(10, 20), [], Retention(0, succeeded=True)) == {"s20"}
    marked = found(10, 20, s20="poisoned")
    assert kept_names(marked, [], Retention(0, succeeded=True)) == {"s10", "s20"}


def test_what_another_job_began_with_stays() -> None:
    assert kept_names(found(10, 20, 30), [], Retention(1, sources=frozenset({"s10"}))) == {"s10", "s30"}


def test_all_copies_of_a_checkpoint_stay_and_count_once() -> None:
    copies = [*found(10, 20, 30), *found(20, 30)]
    assert kept_names(copies, [], Retention(2)) == {"s20", "s30"}


def test_what_was_written_after_the_numbers_went_wrong_does_not_count() -> None:
    fault = Fault(FaultKind.NAN_LOSS, "loss nan", step=25, onset=15)
    attempt = Attempt("a-1", 1, "localhost", Knobs(), None, "", started_at=100.0, ended_at=200.0, fault=fault)
    assert kept_names(found(10, 20), [attempt], Retention(1)) == {"s10"}
