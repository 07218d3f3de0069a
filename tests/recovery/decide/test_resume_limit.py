"""Tests how far back a run resumes: before the onset, and further if the checkpoint itself may be bad."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.fault import FaultKind
from rung.recovery.decide.resume_limit import resume_limit
from tests.support.jobs_in_trouble import a_fault, a_job, an_attempt

F = FaultKind
KNOBS = a_job().knobs
SAVED = {f"step_{step}.pt": step for step in range(10, 80, 10)}


def failed(number: int, step: int | None, *, resumed: int = 0, kind: FaultKind = F.NAN_LOSS, **fields: Any) -> Attempt:
    given = {name: fields.pop(name) for name in ("first_loss", "healthy_loss", "saved") if name in fields}
    rung = "raise_clip" if number > 1 else None
    attempt = an_attempt(number, KNOBS, a_fault(kind, step, **fields), rung=rung, resumed_step=resumed)
    return replace(attempt, **{"saved": SAVED, "first_loss": 10.0, "healthy_loss": 2.0, **given})


def limit(*attempts: Attempt) -> int | None:
    return resume_limit(attempts, KNOBS)


def test_a_checkpoint_must_be_older_than_the_onset() -> None:
    assert limit(failed(1, 100)) == 100
    assert limit(failed(1, 100, onset=60, shape="drift")) == 60
    assert limit(failed(1, None)) is None
    assert limit(failed(1, 100, kind=F.INFRA_FAULT)) is None


def test_a_spike_soon_after_the_resume_moves_the_limit_before_that_checkpoint() -> None:
    one = failed(1, 80, onset=75, shape="spike")
    assert limit(one, failed(2, 88, resumed=70, onset=82, shape="spike")) == 30
    assert limit(one, failed(2, 300, resumed=70, onset=290, shape="spike")) == 290


def test_the_checkpoint_interval_is_estimated_if_the_job_reported_no_checkpoint() -> None:
    one = failed(1, 80, onset=75, shape="spike", saved={})
    assert limit(one, failed(2, 82, resumed=70, onset=79, shape="spike", saved={})) == 50
    assert limit(one, failed(2, 99, resumed=70, onset=98, shape="spike", saved={})) == 98


def test_two_faults_from_one_checkpoint_exclude_it() -> None:
    one = failed(1, 100)
    two, three = failed(2, 100, resumed=70), failed(3, 100, resumed=70)
    assert limit(one, two) == 100
    assert limit(one, two, three) == 70


@pytest.mark.parametrize(
    ("level", "began", "wanted"),
    [(9.0, 60, 0), (None, 60, 0), (4.0, 60, 60), (9.0, 5000, 5000)],
)
def test_a_short_run_that_drifted_and_learned_nothing_starts_from_scratch(level, began, wanted) -> None:
    assert limit(failed(1, began + 20, onset=began, shape="drift", healthy_loss=level)) == wanted
    # Only a drift starts from scratch; the checkpoints before a spike are sound.
    assert limit(failed(1, began + 20, onset=began, shape="spike", healthy_loss=level)) == began
