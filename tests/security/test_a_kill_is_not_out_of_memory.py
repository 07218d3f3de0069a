"""Tests that a kill and a lack of memory are told apart by facts, never by a shell's word.

In 0.1.0 the wrapper's shell printed "Killed" into the log of a job that got kill -9, and the detector took that word
for lack of memory: `oom`, then lower_batch, or FAILED with "no rung is left" and the machine's budget unused. The line
that the wrapper prints for a real lack of memory was known to no signature.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rung.jobs.job import Job
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.recovery.detect.detector import Detector
from rung.recovery.logs.lines import Line
from rung.runner.controller.log_watch import LogWatch, fault_at_end
from rung.runner.engines.docker.followed_attempt import OUT_OF_MEMORY
from rung.runner.files.inside import INSIDE
from rung.runner.seams.engine import Observation, Presence

SHELLS = [["dash"], ["busybox", "ash"], ["bash", "--posix"]]
KILLED = Observation(Presence.ENDED, signal=9)
CORPUS = Path(__file__).parent.parent / "corpus"


def contained(folder: Path, shell: list[str], *argv: str) -> tuple[int, str]:
    """Run the wrapper of containers outside of one: its folders are elsewhere, and it ends no other process."""
    (folder / "record").mkdir(parents=True)
    text = (INSIDE / "contained.sh").read_text()
    for old, new in (("/rung/", f"{folder}/"), ("[ $$ = 1 ]", "true"), ("kill -TERM -1", ":")):
        assert old in text
        text = text.replace(old, new)
    (folder / "contained.sh").write_text(text)
    # The streams of a container are two; the wrapper sends both to the log.
    ran = subprocess.run([*shell, str(folder / "contained.sh"), *argv], capture_output=True, check=False)
    return ran.returncode, (ran.stdout + ran.stderr).decode()


def fault_of(folder: Path, log: str, end: Observation) -> Fault | None:
    (folder / "log").write_text(log)
    watch = LogWatch(folder / "log", Job("a-1", JobSpec(name="a", run=("x",)), JobState.RUNNING, "", 0, 0, Knobs()))
    watch.read_to_end()
    return fault_at_end(end, watch)


@pytest.mark.parametrize("shell", [shell for shell in SHELLS if shutil.which(shell[0])], ids=" ".join)
def test_the_shell_adds_no_word_of_its_own_about_a_killed_command(tmp_path: Path, shell: list[str]) -> None:
    code, log = contained(tmp_path / "a", shell, "sh", "-c", "echo out; echo wrong >&2; sleep 0.2; kill -9 $$")
    assert (code, log) == (137, "out\nwrong\n")
    fault = fault_of(tmp_path, log, KILLED)
    assert fault is not None
    assert (fault.kind, fault.evidence) == (
        FaultKind.INFRA_FAULT,
        "killed by SIGKILL from outside; last line: wrong",
    )


@pytest.mark.parametrize("shell", [shell for shell in SHELLS if shutil.which(shell[0])], ids=" ".join)
def test_a_command_that_cannot_start_still_says_why(tmp_path: Path, shell: list[str]) -> None:
    code, log = contained(tmp_path, shell, "no such program", "x")
    assert code == 127
    assert "no such program" in log


@pytest.mark.parametrize(
    "word",
    [
        "Killed",
        "run.sh: line 3: 4711 Killed                  python train.py",
        "[1]    7341 killed     python train.py",
        "  traceback : Signal 9 (SIGKILL) received by PID 7",
        "  exitcode  : -9 (pid: 21482)  (SIGKILL)",
        "E1115 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: 7)",
        (CORPUS / "torchrun_rank_killed.log").read_text(),
        (CORPUS / "ranks_killed.log").read_text(),
        "error: exit code 137",
    ],
)
@pytest.mark.parametrize("end", [KILLED, Observation(Presence.ENDED, exit_code=1), Observation(Presence.LOST)])
def test_the_word_of_a_shell_or_launcher_is_never_lack_of_memory_in_a_watched_attempt(
    tmp_path: Path, word: str, end: Observation
) -> None:
    fault = fault_of(tmp_path, f"step 1 loss 2.0\n{word}\n", end)
    assert fault is not None
    assert fault.kind is FaultKind.INFRA_FAULT


@pytest.mark.parametrize(
    "before", ["", "Killed\n", "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.\n"]
)
def test_lack_of_memory_that_the_control_group_reports_is_found(tmp_path: Path, before: str) -> None:
    """A child of the script, such as a data worker, may be the process that was killed."""
    for end in (KILLED, Observation(Presence.ENDED, exit_code=1), Observation(Presence.LOST)):
        fault = fault_of(tmp_path, f"step 1 loss 2.0\n{before}{OUT_OF_MEMORY}\n", end)
        assert fault is not None
        assert fault.kind is FaultKind.OOM


def test_the_wrapper_and_the_follower_report_it_with_the_same_line() -> None:
    assert f'"{OUT_OF_MEMORY}"' in (INSIDE / "contained.sh").read_text()


def test_in_a_log_from_elsewhere_killed_still_means_lack_of_memory() -> None:
    detector = Detector()
    detector.feed(Line(1, "Killed"))
    fault = detector.first_fault(ended=True)
    assert fault is not None
    assert fault.kind is FaultKind.OOM


LOCAL = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from rung_inside import wrapper
counts = [0, int(sys.argv[3])]
wrapper.oom_kills = lambda: counts.pop(0)
request = {"argv": ["sh", "-c", sys.argv[4]], "cwd": sys.argv[2], "limits": {}}
with open(sys.argv[2] + "/log", "ab") as log:
    wrapper.run(sys.argv[2], request, log.fileno(), dict(os.environ))
"""


@pytest.mark.parametrize(
    ("kills", "script", "log"),
    [
        (0, "kill -9 $$", ""),
        (1, "kill -9 $$", "rung: the kernel killed a process: out of memory\n"),
        (1, "sh -c 'kill -9 $$' 2>/dev/null; exit 137", "rung: the kernel killed a process: out of memory\n"),
        # Another process of the same control group was killed.
        (1, "exit 1", ""),
    ],
)
def test_on_this_machine_the_control_group_decides_too(tmp_path: Path, kills: int, script: str, log: str) -> None:
    command = [sys.executable, "-c", LOCAL, str(INSIDE), str(tmp_path), str(kills), script]
    subprocess.run(command, check=True)
    assert (tmp_path / "log").read_text() == log
