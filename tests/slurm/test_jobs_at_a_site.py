"""Tests jobs on a real Slurm: how they wait, end and are stopped, and that nothing is ever submitted twice."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from rung.jobs.model.engine import SLURM, EndedBy
from rung.jobs.model.errors import HostUnreachable, RunCutShort
from rung.jobs.model.paths import AttemptPaths
from rung.jobs.model.state import JobState
from rung.jobs.site.settings import Asked, Site
from rung.runner.engines.slurm.engine import SlurmEngine
from rung.runner.hosts.local_remote import LocalRemote
from rung.runner.seams.engine import Container, Observation, Presence, Request
from rung.runner.seams.remote import CommandResult
from tests import pace
from tests.slurm.cluster import Cluster
from tests.slurm.site import PATIENCE, SiteLab

# Prints steps until the file `finish` is in its checkpoint folder.
STEADY = 'i=0; while [ ! -e "$RUNG_CHECKPOINT_DIR/finish" ]; do i=$((i+1)); echo step $i loss 0.5; sleep 0.2; done'


def finish(lab: SiteLab, job: str) -> None:
    (folder,) = (lab.folder / "shared").glob(f"*/jobs/{job}/stays/1")
    (folder / "checkpoints" / "finish").touch()


def test_a_job_waits_in_the_queue_of_the_cluster_and_runs_where_it_is_placed(lab: SiteLab) -> None:
    first = lab.submit("first", run=["sh", "-c", STEADY], resources={"gpu": ["P100:2"]})
    second = lab.submit("second", run=["sh", "-c", "echo step 1 loss 0.5"], resources={"gpu": ["P100:2"]})
    lab.control()
    lab.until_step(first, 2)
    pace.until(lambda: "waits in the queue of lab" in lab.job(second).reason, PATIENCE, "the second one waits")
    finish(lab, first)
    assert lab.ended(first).state is lab.ended(second).state is JobState.SUCCEEDED
    (attempt,) = lab.attempts(second)
    assert (attempt.engine, attempt.host, attempt.node, attempt.ended_by) == (SLURM, "lab", "pascal", EndedBy.ITSELF)
    assert [each["state"] for each in lab.batch_jobs() if second in each["name"]] == ["COMPLETED"]


def test_no_more_batch_jobs_are_in_the_queue_than_the_site_allows_and_all_jobs_end(lab: SiteLab) -> None:
    lab.list_site({"ansible_connection": "local"}, {**lab.settings, "submit_at_most": 2})
    held = [lab.submit(f"held-{number}", run=["sh", "-c", STEADY]) for number in range(2)]
    lab.control()
    for job in held:
        lab.until_step(job, 2)
    others = [lab.submit(f"other-{number}", run=["sh", "-c", "echo step 1 loss 0.5"]) for number in range(3)]
    for job in others:
        pace.until(lambda job=job: "submit_at_most is 2" in lab.job(job).reason, PATIENCE, "it waits here")
    # The cluster still knows the batch jobs of earlier tests.
    begin = f"rung-{lab.store(lambda store: store.store_id)}-"

    def submitted() -> list[str]:
        names = (each["name"] for each in lab.batch_jobs())
        return sorted(name.removeprefix(begin) for name in names if name.startswith(begin))

    assert submitted() == [f"{job}-1" for job in held]
    for job in held:
        finish(lab, job)
    assert {lab.ended(job).state for job in (*held, *others)} == {JobState.SUCCEEDED}
    assert submitted() == [f"{job}-1" for job in (*held, *others)]


@pytest.mark.parametrize("waits", [True, False], ids=["in the queue", "while it runs"])
def test_a_cancelled_job_is_gone_from_the_cluster(lab: SiteLab, waits: bool) -> None:
    options = {"slurm": {"options": ["--begin=now+1hour"]}} if waits else {}
    job = lab.submit("cancelled", run=["sh", "-c", STEADY], **options)
    lab.control()
    if waits:
        pace.until(lambda: "waits in the queue" in lab.job(job).reason, PATIENCE, "it waits")
    else:
        lab.until_step(job, 2)
    lab.rung("cancel", job)
    assert lab.ended(job).state is JobState.CANCELLED
    pace.until(lambda: _states(lab, job) <= {"CANCELLED", "FAILED"}, PATIENCE, "the cluster has ended it")


def _states(lab: SiteLab, job: str) -> set[str]:
    return {each["state"] for each in lab.batch_jobs() if job in each["name"]}


def test_a_controller_and_a_slurmctld_that_are_killed_change_nothing(lab: SiteLab) -> None:
    job = lab.submit("killed", run=["sh", "-c", STEADY])
    lab.control()
    lab.until_step(job, 2)
    _saved(lab.cluster)
    lab.kill_controller()
    lab.cluster.kill_controller()
    lab.control()
    lab.cluster.start_controller()
    lab.until_step(job, 30)
    finish(lab, job)
    assert lab.ended(job).state is JobState.SUCCEEDED
    (attempt,) = lab.attempts(job)
    assert attempt.ended_by is EndedBy.ITSELF
    log = lab.log(job, 1).splitlines()
    assert log == [f"step {number} loss 0.5" for number in range(1, len(log) + 1)]


def test_a_job_waits_for_a_slurmctld_that_is_away_and_nothing_is_counted(lab: SiteLab) -> None:
    lab.cluster.kill_controller()
    try:
        job = lab.submit("away", run=["sh", "-c", "echo step 1 loss 0.5"])
        lab.control()
        pace.until(lambda: "Unable to contact slurm" in lab.job(job).reason, PATIENCE, "it says why it waits")
    finally:
        lab.cluster.start_controller()
    assert lab.ended(job).state is JobState.SUCCEEDED
    (attempt,) = lab.attempts(job)
    assert attempt.ended_by is EndedBy.ITSELF


def _saved(cluster: Cluster) -> None:
    """Wait until the controller of the cluster has saved its jobs: it forgets those of its last seconds."""
    saved = cluster.folder / "state" / "job_state"
    before = saved.stat().st_mtime_ns if saved.exists() else 0
    held = cluster.submit("true", "--hold")
    pace.until(lambda: saved.exists() and saved.stat().st_mtime_ns > before, 120, "the controller has saved its jobs")
    cluster.run("scancel", held)


class LostAnswers(LocalRemote):
    """A login node whose answers to sbatch are lost as often as `lost` says, although it has done what was asked."""

    def __init__(self, environ: Mapping[str, str], lost: int) -> None:
        super().__init__("lab", environ)
        self.lost, self.submitted = lost, 0

    def run(self, argv: Sequence[str], stdin: bytes | None = None, *, timeout: float) -> CommandResult:
        ran = super().run(argv, stdin, timeout=timeout)
        if "sbatch" in argv:
            self.submitted += 1
            if self.submitted <= self.lost:
                raise HostUnreachable("lab: the connection broke")
        return ran


def test_a_lost_answer_never_makes_a_second_submission(lab: SiteLab) -> None:
    remote = LostAnswers(lab.env, lost=1)
    engine = SlurmEngine(remote, "abc", Site(folder=str(lab.folder / "shared"), poll=1))
    paths = AttemptPaths(lab.folder / "home" / "jobs" / "lost-1" / "attempts" / "1")
    (lab.folder / "work").mkdir()
    request = Request(
        "lost-1",
        1,
        ("sh", "-c", "echo once; exit 3"),
        Path("/rung/work"),
        {},
        paths,
        Path("/rung/job/checkpoints"),
        container=Container(""),
        source=lab.folder / "work",
    )
    try:
        with pytest.raises(HostUnreachable):
            engine.start(request, {})
        engine.start(request, {})
        pace.until(lambda: _observed(engine, paths).presence is Presence.ENDED, PATIENCE, "it ends")
        end = _observed(engine, paths)
        assert (end.exit_code, end.ended_by) == (3, EndedBy.ITSELF)
        engine.start(request, {})
    finally:
        engine.close()
    assert remote.submitted == 1
    assert paths.log.read_text() == "once\n"
    assert len([each for each in lab.batch_jobs() if "lost-1" in each["name"]]) == 1


def test_a_check_gets_the_memory_of_its_job_and_says_when_that_is_too_little(lab: SiteLab) -> None:
    engine = SlurmEngine(LocalRemote("lab", lab.env), "abc", Site(folder=str(lab.folder / "shared"), poll=1))
    (lab.folder / "work").mkdir()
    # The cluster gives a job 100 MB that asks for none.
    takes = [sys.executable, "-c", "import time; held = b'x' * (300 << 20); time.sleep(5); print(len(held))"]

    def check(memory: int) -> tuple[int, str, str]:
        paths = AttemptPaths(lab.folder / "home" / "jobs" / "check-1" / "attempts" / "1")
        where = Path("/rung/work"), {}, paths, Path("/rung/job/checkpoints")
        there = {"container": Container(""), "source": lab.folder / "work"}
        return engine.run(takes, Request("check-1", 1, ("x",), *where, **there, asked=Asked(memory=memory)), 60.0)

    try:
        assert check(900 << 20)[:2] == (0, f"{300 << 20}\n")
        with pytest.raises(RunCutShort, match=r"^lab: a short job ran out of memory: ask for more in resources.memory"):
            check(50 << 20)
    finally:
        engine.close()


def _observed(engine: SlurmEngine, paths: AttemptPaths) -> Observation:
    return engine.observe(paths)
