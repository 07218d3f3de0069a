"""Tests that the end of an attempt on a cluster is recorded here once, and how many batch jobs may be in its queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from rung.jobs.model.errors import HostUnreachable
from rung.jobs.model.paths import AttemptPaths
from rung.runner.engines.on_host.done_record import read_done
from rung.runner.engines.slurm.follower import Followed, SiteFollower
from rung.runner.engines.slurm.queue import SlurmQueue
from rung.runner.engines.slurm.site_log import SiteLog
from rung.runner.seams.engine import Presence
from rung.runner.seams.remote import CommandResult

DONE = 'done - {"exit_code": 3, "began_at": 100, "ended_at": 160, "told": false, "node": "n1"}\n\ncomplete\n'


class OneJob:
    """A login node with one batch job, which has ended and left its record."""

    name = "lab"

    def run(self, argv: Sequence[str], stdin: bytes | None = None, *, timeout: float) -> CommandResult:
        said = "7|rung-s-j-1-1|FAILED|NonZeroExitCode|n1|x|gpu|rung/s/j-1/1\n" if argv[0] == "squeue" else DONE
        return CommandResult(0, said.encode(), b"")

    @contextmanager
    def files(self) -> Iterator[None]:
        yield None


def test_an_end_that_is_recorded_is_not_written_again(tmp_path: Path) -> None:
    remote = OneJob()
    paths = AttemptPaths(tmp_path / "j-1" / "attempts" / "1")
    paths.folder.mkdir(parents=True)
    follower = SiteFollower(SlurmQueue(remote, "s"), remote, 1.0)  # type: ignore[arg-type]
    followed = Followed("rung-s-j-1-1", "rung/s/j-1/1", paths, "/there", SiteLog(paths))
    follower.look([followed])
    first = paths.done.stat()
    done = read_done(paths)
    assert done is not None and done.exit_code == 3
    # The controller has not read it yet, so the cluster is looked at once more. A full disk would break a second write.
    follower.look([followed])
    assert paths.done.stat().st_ino == first.st_ino and paths.done.stat().st_mtime_ns == first.st_mtime_ns
    assert [path.name for path in paths.folder.iterdir() if "done" in path.name] == ["done.json"]


class Queue:
    """A queue with so many batch jobs, of which one has ended; `meanwhile` happens while it is asked."""

    def __init__(self, many: int) -> None:
        self.name, self.many = "lab", many
        self.meanwhile: Callable[[], None] = lambda: None

    def run(self, argv: Sequence[str], stdin: bytes | None = None, *, timeout: float) -> CommandResult:
        lines = [f"{n}|rung-s-j-{n}-1|RUNNING|None|n1|x|gpu|rung/s/j-{n}/1\n" for n in range(self.many)]
        ended = "99|rung-s-j-99-1|COMPLETED|None|n1|x|gpu|rung/s/j-99/1\n"
        if argv[0] != "squeue":
            return CommandResult(0, b"complete\n", b"")
        self.meanwhile()
        return CommandResult(0, "".join([*lines, ended]).encode(), b"")


def looking_at(queue: Queue) -> SiteFollower:
    return SiteFollower(SlurmQueue(queue, "s"), queue, 1.0)  # type: ignore[arg-type]


def test_a_site_gets_no_more_batch_jobs_than_it_may_have_at_once() -> None:
    queue = Queue(1)
    follower = looking_at(queue)
    follower.look([])
    follower.refuse_more_than(2)
    follower.count_submitted()
    with pytest.raises(HostUnreachable, match=r"^lab: 2 batch jobs are in its queue, and submit_at_most is 2$"):
        follower.refuse_more_than(2)
    # By the next look one of them has ended.
    follower.look([])
    follower.refuse_more_than(2)


def test_a_batch_job_that_is_submitted_during_a_look_counts() -> None:
    queue = Queue(1)
    follower = looking_at(queue)
    queue.meanwhile = follower.count_submitted
    follower.look([])
    with pytest.raises(HostUnreachable):
        follower.refuse_more_than(2)


class Counted:
    """A login node where nothing has begun yet; it counts what it is asked."""

    name = "lab"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def run(self, argv: Sequence[str], stdin: bytes | None = None, *, timeout: float) -> CommandResult:
        self.asked.append(argv[0])
        folders = (stdin or b"").count(b"\n")
        return CommandResult(0, b"" if argv[0] == "squeue" else b"none - \n\n" * folders + b"complete\n", b"")


@pytest.mark.parametrize("many", [1, 1000])
def test_a_look_costs_two_commands_however_many_jobs_there_are(tmp_path: Path, many: int) -> None:
    remote = Counted()
    follower = SiteFollower(SlurmQueue(remote, "s"), remote, 1.0)  # type: ignore[arg-type]
    all_paths = [AttemptPaths(tmp_path / f"j-{number}" / "attempts" / "1") for number in range(many)]
    names = [f"rung-s-j-{number}-1" for number in range(many)]
    followed = [
        Followed(name, f"rung/s/{name}", paths, f"/there/{name}", SiteLog(paths))
        for name, paths in zip(names, all_paths, strict=True)
    ]
    follower.look(followed)
    assert remote.asked == ["squeue", "sh"]
    assert {each.observation.presence for each in followed if each.observation} == {Presence.ABSENT}
