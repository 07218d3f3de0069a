"""Tests what becomes of a run that its cluster ends: at a time limit, for another job, with its node, out of memory."""

from __future__ import annotations

import math
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from rung.jobs.job import Outcome
from rung.jobs.model.engine import SAVED_EXIT, EndedBy
from rung.jobs.model.state import JobState
from tests import pace
from tests.slurm.site import PATIENCE, SiteLab

LINKS = Path(__file__).parent / "trainings" / "links.py"
HUNGRY = "import time\nprint('step 1 loss 0.5', flush=True)\nheld = bytearray(600 << 20)\ntime.sleep(600)\n"


def submit_links(lab: SiteLab, links: int, **fields: object) -> str:
    (lab.folder / "chain").mkdir()
    shutil.copy(LINKS, lab.folder / "chain" / "train.py")
    resources = {"gpu": ["A100:4"], **fields.pop("resources", {})}  # type: ignore[dict-item]
    return lab.submit(
        "chain", run="python train.py", envs={"LINKS": str(links)}, resources=resources, recovery={"trials": "off"}
    )


@pytest.mark.long
@pytest.mark.sample
def test_a_run_of_five_times_its_limit_is_one_job_without_a_recovery(lab: SiteLab) -> None:
    # A link has half a minute until its signal, and begins in a few seconds: a very slow machine gets more.
    minutes = math.ceil(pace.seconds(12) / 60)
    job = submit_links(lab, 5, resources={"time": f"{minutes}m"})
    lab.control()
    assert lab.ended(job).state is JobState.SUCCEEDED, lab.job(job).reason
    attempts = lab.attempts(job)
    # A link that ends before it has saved is begun again: five have saved, whatever the speed.
    *others, last = attempts
    assert last.outcome is Outcome.SUCCEEDED and len(others) >= 4
    assert {(each.outcome, each.ended_by) for each in others} == {(Outcome.INTERRUPTED, EndedBy.TIME_LIMIT)}
    assert all(each.rung is None and each.fault is None for each in attempts)
    # Each began at the very step that the one before had saved at its signal.
    told = [pair for pair in pairwise(attempts) if pair[0].exit_code == SAVED_EXIT]
    assert told and all(after.resumed_step == before.furthest_step for before, after in told)
    assert len({each.resumed_step or 0 for each in attempts}) == 5


def test_a_preempted_run_goes_on_and_nothing_is_counted(lab: SiteLab) -> None:
    job = submit_links(lab, 2)
    lab.control()
    log = lab.folder / "home" / "jobs" / job / "attempts" / "1" / "log"
    pace.until(lambda: log.exists() and "step=7 " in log.read_text(), PATIENCE, "it has saved")
    urgent = lab.cluster.submit("true", "--gres=gpu:a100:1", "--partition=urgent")
    assert lab.cluster.ended(urgent)["JobState"] == "COMPLETED"
    assert lab.ended(job).state is JobState.SUCCEEDED, lab.job(job).reason
    first, second = lab.attempts(job)
    assert (first.outcome, first.ended_by) == (Outcome.INTERRUPTED, EndedBy.PREEMPTION)
    assert second.resumed_step and "preempted" in second.because


@pytest.mark.long
@pytest.mark.sample
def test_a_run_whose_node_fails_goes_on_elsewhere_as_after_a_fault_of_the_machine(lab: SiteLab) -> None:
    job = submit_links(lab, 2)
    lab.control()
    log = lab.folder / "home" / "jobs" / job / "attempts" / "1" / "log"
    pace.until(lambda: log.exists() and "step=7 " in log.read_text(), PATIENCE, "it has saved")
    lab.cluster.kill_node("ampere")
    try:
        pace.until(lambda: lab.attempts(job)[0].outcome is not Outcome.PENDING, PATIENCE, "its end is seen", every=0.2)
    finally:
        lab.cluster.start_node("ampere")
    assert lab.ended(job).state is JobState.SUCCEEDED, lab.job(job).reason
    first, second = lab.attempts(job)
    assert (first.outcome, first.ended_by) == (Outcome.FAULT, EndedBy.NODE_FAILURE)
    assert first.fault is not None and first.fault.kind == "infra_fault"
    assert second.resumed_step and second.rung is None


@pytest.mark.long
@pytest.mark.sample
def test_a_run_that_needs_more_memory_than_it_asked_for_is_out_of_memory(lab: SiteLab) -> None:
    (lab.folder / "hungry").mkdir()
    (lab.folder / "hungry" / "train.py").write_text(HUNGRY)
    job = lab.submit(
        "hungry", run="python train.py", resources={"gpu": ["A100:1"], "memory": "300m"}, recovery={"max_attempts": 1}
    )
    lab.control()
    assert lab.ended(job).state is JobState.FAILED
    first = lab.attempts(job)[0]
    assert first.fault is not None and first.fault.kind == "oom", first.fault
