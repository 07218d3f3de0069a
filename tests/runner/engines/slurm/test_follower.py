"""Tests that the end of an attempt on a cluster is recorded here once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rung.jobs.model.paths import AttemptPaths
from rung.runner.engines.on_host.done_record import read_done
from rung.runner.engines.slurm.follower import Followed, SiteFollower
from rung.runner.engines.slurm.queue import SlurmQueue
from rung.runner.engines.slurm.site_log import SiteLog
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
