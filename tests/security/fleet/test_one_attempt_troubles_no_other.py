"""Tests on a real host that one attempt's trouble stays its own, and that ends and logs are told by facts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rung.jobs.job import Job
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.controller.log_watch import LogWatch, fault_at_end
from rung.runner.seams.engine import Observation, Presence, Request
from tests.fleet.containers.conftest import Attempts

COUNTS = 'i=0; while [ ! -e /rung/job/go ]; do i=$((i+1)); echo "line $i"; sleep 0.01; done; echo "last $i"'
LINES = 6000


def fault_kind(request: Request, end: Observation) -> FaultKind | None:
    job = Job("a-1", JobSpec(name="a", run=("x",)), JobState.RUNNING, "", 0, 0, Knobs())
    watch = LogWatch(request.paths.log, job)
    watch.read_to_end()
    fault = fault_at_end(end, watch)
    return fault.kind if fault else None


@pytest.mark.parametrize("put", ["mkfifo", "ln -s /home/rung/.ssh/authorized_keys", "ln -s /dev/zero", "mkdir"])
def test_what_a_job_puts_in_the_place_of_its_record_ends_that_job_alone(attempts: Attempts, put: str) -> None:
    """In 0.1.0 a FIFO there hung the read for 30 s, dropped every stream of the host, and sessions piled up."""
    other = attempts.sh(COUNTS)
    attempts.wait_for_log(other, "line 50\n")
    # The wrapper moves its draft to the place of the record, whatever the job has made of it.
    request = attempts.sh(f"cd /rung/record; rm -f done.draft; {put} done.draft; echo put; exit 0")
    seen = set()

    def ended() -> bool:
        seen.add(attempts.engine.observe(other.paths).presence)
        return attempts.engine.observe(request.paths).presence is Presence.LOST

    attempts.wait(ended, "its end")
    assert "is no plain file" in attempts.engine.observe(request.paths).detail
    assert seen == {Presence.RUNNING}
    assert attempts.log(request).startswith("put\n")
    (attempts.host.work / ".rung" / "0123456789ab" / "jobs" / "a-1" / "stays" / "1" / "go").touch()
    assert attempts.end(other).exit_code == 0


def test_kill_9_is_a_fault_of_the_machine_and_not_lack_of_memory(attempts: Attempts) -> None:
    """In 0.1.0 the wrapper's shell printed "Killed", and the fault was `oom`."""
    request = attempts.sh("echo $$ >/tmp/pid; echo up; while :; do sleep 0.1; done")
    attempts.wait_for_log(request, "up")
    # The shell that kills may end with the container before it can say how it ended.
    attempts.host.docker("exec", attempts.name(request), "sh", "-c", 'kill -9 "$(cat /tmp/pid)"', check=False)
    end = attempts.end(request)
    assert (end.presence, end.signal) == (Presence.ENDED, 9)
    assert attempts.log(request) == "up\n"
    assert fault_kind(request, end) is FaultKind.INFRA_FAULT


def test_lack_of_memory_of_a_child_process_is_found(attempts: Attempts) -> None:
    """The script itself goes on and fails with a message that says nothing about memory."""
    request = attempts.sh("(tail -c 400m /dev/zero | wc -c) 2>/dev/null; exit 1", limits={"memory": 64 << 20})
    end = attempts.end(request)
    assert attempts.log(request).count("out of memory") == 1
    assert fault_kind(request, end) is FaultKind.OOM


def test_a_log_whose_container_was_removed_says_so(attempts: Attempts) -> None:
    """In 0.1.0 the log ended early without a word."""
    request = attempts.sh(COUNTS)
    attempts.wait_for_log(request, "line 50\n")
    attempts.host.docker("rm", "--force", attempts.name(request))
    assert attempts.end(request).presence is Presence.LOST
    last = attempts.log(request).splitlines()[-1]
    removed = "rung: this log may lack its last lines: the container was removed from turing"
    # The engine may have been asked while it was removing the container.
    removing = "rung: the host cannot read the rest of this log: "
    assert last.startswith((removed, removing))


@pytest.fixture
def small_disk(attempts: Attempts) -> Iterator[Path]:
    folder = attempts.home.home
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "rung-test", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_no_line_is_lost_while_the_disk_here_is_full(attempts: Attempts, small_disk: Path) -> None:
    """In 0.1.0 the cursor moved before the write: 5,978 of 6,000 lines were lost, and the job SUCCEEDED."""
    request = attempts.request("sh", "-c", f"i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo line $i; done")
    request.paths.folder.mkdir(parents=True)
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue
    attempts.engine.start(request, {})
    waiting = attempts.becomes(request, Presence.WAITING)
    attempts.wait(lambda: "cannot be written here" in attempts.engine.observe(request.paths).detail, "a full disk")
    assert waiting.exit_code is None
    ballast.unlink()
    end = attempts.end(request)
    assert (end.presence, end.exit_code) == (Presence.ENDED, 0)
    assert attempts.log(request) == "".join(f"line {number}\n" for number in range(1, LINES + 1))
