"""Tests that an attempt whose submission had no answer is not submitted again too early."""

from __future__ import annotations

import pytest

from rung.jobs.model.errors import EngineError, HostUnreachable
from rung.runner.engines.slurm.doubts import DOUBT_SECONDS, Doubts


def test_a_lost_answer_is_waited_for_and_another_attempt_is_not() -> None:
    clock = [100.0]
    doubts = Doubts("lab", lambda: clock[0])
    doubts.refuse("a")
    with pytest.raises(HostUnreachable, match="broke"), doubts.about("a"):
        raise HostUnreachable("it broke")
    with pytest.raises(HostUnreachable, match="lab: the answer of sbatch was lost"):
        doubts.refuse("a")
    doubts.refuse("b")
    clock[0] += DOUBT_SECONDS
    doubts.refuse("a")
    clock[0] -= DOUBT_SECONDS
    doubts.refuse("a")


def test_an_answer_that_came_leaves_no_doubt() -> None:
    doubts = Doubts("lab", lambda: 0.0)
    with doubts.about("a"):
        pass
    with pytest.raises(EngineError), doubts.about("b"):
        raise EngineError("refused")
    doubts.refuse("a")
    doubts.refuse("b")
