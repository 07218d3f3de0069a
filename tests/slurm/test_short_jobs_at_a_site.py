"""Tests short jobs of Rung's own at a real Slurm that are ended before they can answer: a check of a checkpoint."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from rung.jobs.model.errors import EngineError, RunCutShort
from rung.jobs.model.paths import AttemptPaths
from rung.jobs.model.state import JobState
from rung.jobs.site.settings import Site
from rung.runner.engines.slurm.engine import SlurmEngine
from rung.runner.hosts.local_remote import LocalRemote
from rung.runner.seams.engine import Container, Request
from tests import pace
from tests.slurm.site import PATIENCE, SiteLab

# The job's Python, whose check of the large checkpoint takes more memory than the job may.
PYTHON = """#!/bin/sh
case "$*" in
*rung_inside.verify*step_20.pt*) set -- -c 'import time; held = b"x" * (1000 << 20); time.sleep(600)' ;;
esac
exec {python} "$@"
"""
TRAINING = """
import os
import torch

folder, resume = os.environ["RUNG_CHECKPOINT_DIR"], os.environ["RUNG_CHECKPOINT"]
first = torch.load(resume, weights_only=True)["step"] if resume else 0
print(f"rung| resumed step={first} file={os.path.basename(resume) or 'none'}", flush=True)
for step in range(first + 1, 31):
    if step == 25 and os.environ["RUNG_ATTEMPT"] == "1":
        raise SystemExit("torch.distributed.DistBackendError: NCCL error: unhandled system error")
    print(f"rung| step step={step} loss={1 / step}", flush=True)
    if step in (10, 20):
        torch.save({"step": step, "weights": torch.zeros(step * step * 100)}, f"{folder}/step_{step}.pt")
"""


def test_a_checkpoint_that_cannot_be_verified_within_its_memory_is_stepped_over_and_says_what_to_set(
    lab: SiteLab,
) -> None:
    python = lab.folder / "python3"
    python.write_text(PYTHON.format(python=sys.executable))
    python.chmod(0o755)
    (lab.folder / "large").mkdir()
    (lab.folder / "large" / "train.py").write_text(TRAINING)
    job = lab.submit("large", run=[str(python), "train.py"], recovery={"trials": "off"})
    lab.control()
    assert lab.ended(job).state is JobState.SUCCEEDED, lab.job(job).reason
    first, second = lab.attempts(job)
    assert (second.resumed_from, second.resumed_step) == ("step_10.pt", 10)
    assert "step_20.pt is unverified, lab: a short job ran out of memory: ask for more in resources.memory" in (
        second.because
    )
    # Two tries of the large one, and one of the small one, which is not as large.
    assert len(_short_jobs(lab)) == 3
    assert first.fault is not None and first.fault.kind == "comm_fault"


def _short_jobs(lab: SiteLab) -> list[str]:
    names = lab.cluster.run("squeue", "-h", "-t", "all", "-o", "%j %Z").splitlines()
    return [line for line in names if line.startswith("rung-short-") and str(lab.folder) in line]


def short(lab: SiteLab, argv: list[str]) -> tuple[int, str, str]:
    return short_at(lab.folder, argv, lab.env)


def _engine(folder: Path, environ: Mapping[str, str]) -> SlurmEngine:
    return SlurmEngine(LocalRemote("lab", environ), "abc", Site(folder=str(folder / "shared"), poll=1))


def short_at(folder: Path, argv: list[str], environ: Mapping[str, str] = os.environ) -> tuple[int, str, str]:
    engine = _engine(folder, environ)
    (folder / "work").mkdir(exist_ok=True)
    paths = AttemptPaths(folder / "home" / "jobs" / "check-1" / "attempts" / "1")
    where = Path("/rung/work"), {}, paths, Path("/rung/job/checkpoints")
    request = Request("check-1", 1, ("x",), *where, container=Container(""), source=folder / "work")
    try:
        return engine.run(argv, request, 60.0)
    finally:
        engine.close()


def test_a_short_job_whose_shell_is_killed_has_ended_without_an_answer(lab: SiteLab) -> None:
    with pytest.raises(RunCutShort, match=r"^lab: a short job ended without an answer"):
        short(lab, ["sh", "-c", "kill -KILL $PPID; sleep 600"])


def test_a_short_job_that_somebody_cancels_was_ended_at_the_cluster(lab: SiteLab) -> None:
    with pytest.raises(EngineError, match=r"^lab: a short job was ended: it was cancelled at the cluster") as raised:
        short(lab, ["sh", "-c", f"PATH={lab.cluster.env()['PATH']} scancel $SLURM_JOB_ID; sleep 600"])
    assert not isinstance(raised.value, RunCutShort)


def test_a_short_job_whose_node_fails_does_not_wait_to_run_again(lab: SiteLab) -> None:
    down = f"PATH={lab.cluster.env()['PATH']} scontrol update NodeName=$SLURMD_NODENAME State=DOWN Reason=test"
    try:
        with pytest.raises(EngineError, match=r"^lab: a short job was ended: its node failed"):
            short(lab, ["sh", "-c", f"{down}; sleep 600"])
    finally:
        for node in lab.cluster.nodes:
            lab.cluster.run("scontrol", "update", f"NodeName={node.name}", "State=RESUME", check=False)
        pace.until(lambda: len(lab.cluster.idle()) == len(lab.cluster.nodes), PATIENCE, "the nodes are back")


def test_what_is_killed_and_not_for_memory_has_an_exit_code(lab: SiteLab) -> None:
    assert short(lab, ["sh", "-c", "echo before; kill -KILL $$"])[:2] == (137, "before\n")
    pace.until(lambda: not _folders(lab), PATIENCE, "nothing is left of it")


DYING = """
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
sys.path[:0] = [{root!r}]
from tests.slurm.test_short_jobs_at_a_site import short_at
short_at(Path({folder!r}), ["sh", "-c", "touch begun; sleep 600"])
"""


def test_a_short_job_whose_controller_was_killed_is_ended_and_removed(lab: SiteLab) -> None:
    script = DYING.format(root=str(Path(__file__).parents[2]), folder=str(lab.folder))
    with subprocess.Popen([sys.executable, "-c", script], env=lab.env) as process:
        pace.until(lambda: [*(lab.folder / "shared").glob("*/jobs/check-1/rung-short-*/begun")], PATIENCE, "it runs")
        engine = _engine(lab.folder, lab.env)
        try:
            assert engine.sweep() == 0, "its process waits for it"
            process.kill()
            process.wait()
            assert engine.sweep() == 1
        finally:
            engine.close()
    assert not _folders(lab)
    pace.until(lambda: not _running(lab), PATIENCE, "its batch job is ended")


def _running(lab: SiteLab) -> list[str]:
    return [line for line in lab.cluster.run("squeue", "-h", "-o", "%j").split() if line.startswith("rung-short-")]


def _folders(lab: SiteLab) -> list[Path]:
    return [*(lab.folder / "shared").glob("*/jobs/check-1/rung-short-*")]
