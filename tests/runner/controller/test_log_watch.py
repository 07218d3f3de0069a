"""Tests that what a log shows is noted in the attempt, and nothing else of the attempt changes."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, replace

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.knobs import Knobs
from rung.runner.controller.log_watch import changed

ATTEMPT = Attempt("a-1", 2, "titan", Knobs(), "lower_lr", "the loss is nan", loss=2.5, latest={"lr": 0.1})


def test_a_changed_attempt_is_what_replace_makes() -> None:
    before = replace(ATTEMPT)
    fields = {"loss": 1.25, "furthest_step": 40, "latest": {"lr": 0.01}, "progress_at": 9.0}
    after = changed(ATTEMPT, **fields)
    assert after == replace(ATTEMPT, **fields)
    assert before == ATTEMPT and after != ATTEMPT
    with pytest.raises(FrozenInstanceError):
        after.loss = math.nan  # type: ignore[misc]
