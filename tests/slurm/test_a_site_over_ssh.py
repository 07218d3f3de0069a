"""Tests a site whose login node is reached over a real sshd, with connections that break at the worst moments."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rung.jobs.model.engine import EndedBy
from rung.jobs.model.state import JobState
from tests import pace
from tests.slurm.site import PATIENCE, SiteLab
from tests.support.sshd import Sshd

# Prints a step whenever it finds the next file in its checkpoint folder, and so as far as the test lets it.
PACED = """
for i in 1 2 3 4 5 6; do
    while [ ! -e "$RUNG_CHECKPOINT_DIR/go$i" ]; do sleep 0.1; done
    echo step $i loss 0.5
done
"""
# Stands in front of sbatch: its first call stops before or after the real one, until the test lets it go on.
SBATCH = """#!/bin/sh
echo called >> {folder}/calls
hold() {{ mkdir {folder}/held 2>/dev/null && while [ ! -e {folder}/go ]; do sleep 0.1; done; }}
[ {moment} = after ] || hold
said=$({sbatch} "$@"); code=$?
[ {moment} = before ] || hold
echo "$said"
exit $code
"""


@pytest.fixture
def login(lab: SiteLab) -> Iterator[Sshd]:
    (lab.folder / "bin").mkdir()
    # A login has the variables of the cluster by itself.
    own = f"SetEnv SLURM_CONF={lab.cluster.config} PATH={lab.folder / 'bin'}:{lab.cluster.env()['PATH']}"
    sshd = Sshd(lab.folder / "sshd", lab.folder, settings=(own,))
    sshd.introduce()
    sshd.start()
    where = {"ansible_host": "127.0.0.1", "ansible_port": sshd.port, "ansible_user": sshd.user}
    lab.list_site(where, lab.settings)
    try:
        yield sshd
    finally:
        sshd.kill()


def cut(login: Sshd) -> None:
    """Kill the connections alone: what they have started lives on, as after a break of the network."""
    for pid in login.pids()[1:]:
        with suppress(OSError):
            if (Path("/proc") / str(pid) / "comm").read_text().startswith("sshd"):
                os.kill(pid, signal.SIGKILL)


def succeeded_once(lab: SiteLab, job: str, log: list[str]) -> None:
    assert lab.ended(job).state is JobState.SUCCEEDED, lab.job(job).reason
    (attempt,) = lab.attempts(job)
    assert attempt.ended_by is EndedBy.ITSELF and attempt.fault is None
    assert lab.log(job, 1).splitlines() == log
    assert [each["state"] for each in lab.batch_jobs() if job in each["name"]] == ["COMPLETED"]


@pytest.mark.parametrize("moment", ["before", pytest.param("after", marks=pytest.mark.long)])
def test_a_connection_that_breaks_during_a_submission_doubles_nothing(lab: SiteLab, login: Sshd, moment: str) -> None:
    real = shutil.which("sbatch", path=lab.cluster.env()["PATH"])
    stand_in = lab.folder / "bin" / "sbatch"
    stand_in.write_text(SBATCH.format(folder=lab.folder, moment=moment, sbatch=real))
    stand_in.chmod(0o755)
    job = lab.submit(f"cut-{moment}", run=["sh", "-c", "echo step 1 loss 0.5"])
    lab.control()
    pace.until(lambda: (lab.folder / "held").exists(), PATIENCE, "sbatch is at work")
    cut(login)
    # The command lives on without its connection. It submits only when Rung has looked for the job and found none.
    if moment == "before":
        pace.until(lambda: "the answer of sbatch was lost" in lab.job(job).reason, PATIENCE, "Rung has looked for it")
    (lab.folder / "go").touch()
    succeeded_once(lab, job, ["step 1 loss 0.5"])
    assert (lab.folder / "calls").read_text() == "called\n"


@pytest.mark.long
@pytest.mark.sample
def test_connections_that_break_while_a_job_is_followed_lose_and_double_no_line(lab: SiteLab, login: Sshd) -> None:
    job = lab.submit("followed", run=["sh", "-c", PACED])
    lab.control()
    pace.until(
        lambda: any("RUNNING" in each["state"] for each in lab.batch_jobs() if job in each["name"]), PATIENCE, ""
    )
    go = pace.until(lambda: next(iter((lab.folder / "shared").glob(f"*/jobs/{job}/stays/1/checkpoints")), None), 60, "")
    assert isinstance(go, Path)
    (go / "go1").touch()
    lab.until_step(job, 1)
    for step in (2, 3):
        cut(login)
        (go / f"go{step}").touch()
        lab.until_step(job, step)
    # Nobody answers there while it goes on.
    login.kill()
    (go / "go4").touch()
    pace.until(lambda: lab.job(job).state is JobState.RUNNING, PATIENCE, "it runs")
    login.start()
    lab.until_step(job, 4)
    # It ends while nobody answers.
    login.kill()
    for step in (5, 6):
        (go / f"go{step}").touch()
    done = go.parents[2]
    pace.until(lambda: any(Path(at, "done.json").exists() for at, _, _ in os.walk(done)), PATIENCE, "it has ended")
    login.start()
    succeeded_once(lab, job, [f"step {number} loss 0.5" for number in range(1, 7)])
