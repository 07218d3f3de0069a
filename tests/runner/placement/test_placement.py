"""Tests which results stand while some hosts have not answered yet."""

from __future__ import annotations

from rung.jobs.model.engine import DOCKER
from rung.jobs.spec.resources import GpuRequest
from rung.runner.placement.placement import is_sure
from rung.runner.placement.scheduler import MustWait, Placed, Refused, WaitingJob

PLACED = Placed("a", "turing", (), None, DOCKER)


def asks(*kinds: str) -> WaitingJob:
    return WaitingJob("a", tuple(GpuRequest.model_validate(kind) for kind in kinds), None)


def test_a_job_that_takes_one_type_of_gpu_does_not_wait_for_silent_hosts() -> None:
    assert is_sure(asks("A100"), PLACED)


def test_a_job_that_takes_several_types_waits_for_the_answer_of_a_host_that_may_have_the_first_one() -> None:
    assert not is_sure(asks("A100", "P100"), PLACED)


def test_why_a_job_waits_is_told_at_once_and_a_refusal_only_when_all_hosts_have_answered() -> None:
    assert is_sure(asks("A100", "P100"), MustWait("a", "no GPU is free"))
    assert not is_sure(asks("A100"), Refused("a", "its image has no code for sm_60"))
