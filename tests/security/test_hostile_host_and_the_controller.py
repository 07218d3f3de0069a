"""Tests a controller whose hosts lie, fall silent and flood it, beside one honest host.

The controller stays up, its memory is bounded, only our own errors are in the history, nothing is written outside its
folder, and the job on the honest host takes at most a second longer. To be independent of the machine, that job is
compared with the same run on the same machine without a lie, a second is as long as tests/pace.py says, and the best
of three runs counts: what holds a job up does so every time, and a busy machine does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rung.jobs.model.state import JobState
from tests import pace
from tests.support.hostile_lies import CHUNKED, chunk, edits, falls_silent, floods, frame, in_turn, says, sends
from tests.support.hostile_site import HostileSite, peak_memory
from tests.support.hostile_ssh import Endless, HostileHost, Reply, endless, entry

# Slow: CI runs these after the others.
pytestmark = [pytest.mark.long, pytest.mark.sample]

MEBIBYTE = 1 << 20
JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
OPEN_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
LARGE = [b'{"State": {"Status": "running", "x": "', *[b"a" * MEBIBYTE] * 300, b'"}}']
FUTURE = "9999-12-31T23:59:59.999999999Z"
ENDED = {"State": {"Status": "exited", "ExitCode": 0}}
# Between two pieces of a flood: as fast as a network, so that the machine itself is not what slows the honest job down.
PACE = 0.002
# How long the hosts go on after the end of the honest job.
AFTER_SECONDS = 3.0
MORE_MEMORY = 160 * MEBIBYTE

Set = Callable[[HostileHost], None]


def engine(**lies: object) -> Set:
    """Return what makes the engine of a host lie."""
    return lambda host: host.engine.lies.update(lies)  # type: ignore[arg-type]


def commands(part: str, reply: Callable[[], Reply]) -> Set:
    """Return what makes the commands with a text in them lie."""

    def lie(host: HostileHost) -> None:
        host.lies.command = lambda command: reply() if part in command else None

    return lie


def listings(host: HostileHost) -> None:
    host.lies.entries = lambda path: Endless(lambda number: entry(f"ck-{number}.pt"))


WRONG = {
    "notalist": engine(list=says({"a": 1})),
    "oddlist": engine(list=says([None, 5, {"Names": 5}, {"Names": [None], "State": []}])),
    "stateless": engine(inspect=says({"State": "running"})),
    "inspectlist": engine(inspect=says([1, 2])),
    "future": engine(inspect=edits(lambda value: {**value, "State": {**value["State"], "StartedAt": FUTURE}})),
    "codes": engine(inspect=says({"State": {"Status": "exited", "ExitCode": "zero", "FinishedAt": FUTURE}})),
    "versions": engine(version=says({"ApiVersion": {"a": []}, "MinAPIVersion": "9" * 5000, "Version": 3})),
    "strangers": engine(inspect=edits(lambda value: {**value, "Config": {"Labels": {"rung.job": 7}}})),
    "changing": engine(
        inspect=in_turn(
            None, says({"message": "gone"}, 404), None, says({"State": {"Status": "exited", "ExitCode": 0}})
        )
    ),
    "statuses": engine(start=says({"message": ["a"]}, 500), create=says(None, 201)),
    "nousers": commands("id -g", lambda: Reply([b"/../..\n-5\nx\n"])),
    "records": commands("done.json", lambda: Reply([b'done\n{"exit_code": "x", "ended_at": 1e999}'])),
    "exits": commands("mkdir", lambda: Reply(code=-1)),
}
SILENT = {
    "version": engine(version=falls_silent(OPEN_HEAD)),
    "list": engine(list=falls_silent(b"HTTP/1.1 200 OK\r\nTransfer-Enc")),
    "inspect": engine(inspect=falls_silent(JSON_HEAD % 100 + b'{"State')),
    "drip": engine(inspect=floods(JSON_HEAD % 10**6, b" ", seconds_between=0.5)),
    "logs": engine(logs=falls_silent(CHUNKED + b"5")),
    "start": engine(start=falls_silent()),
    "command": commands("sh -c", lambda: Reply(ends=False)),
    "record": commands("done.json", lambda: Reply([b"done\n"], ends=False)),
    "files": lambda host: setattr(host.lies, "seconds", 3600.0),
    "channels": lambda host: setattr(host.lies, "opens_channels", False),
}
FLOODS = {
    "large": engine(inspect=sends(JSON_HEAD % sum(map(len, LARGE)), *LARGE)),
    "deep": engine(inspect=sends(JSON_HEAD % 4_000_000, b"[" * 2_000_000, b"]" * 2_000_000)),
    "header": engine(list=floods(b"HTTP/1.1 200 OK\r\nX: ", b"x" * 65536, PACE)),
    "chunksize": engine(logs=floods(CHUNKED, b"0" * 65536, PACE)),
    "output": commands("nvidia-smi", lambda: Reply(endless(b"x" * 65536))),
    "frames": engine(logs=floods(CHUNKED, chunk(frame(b"y" * 60000 + b"\n")), PACE)),
    "badframes": engine(logs=floods(CHUNKED, chunk(b"\x01\0\0\0\xff\xff\xff\xff" + b"z" * 60000), PACE)),
    "listing": listings,
}
GROUPS = {"wrong answers": WRONG, "silence": SILENT, "floods": FLOODS}


@dataclass(frozen=True)
class Outcome:
    """How a controller did: its own time for the honest job, its memory, and what it left behind."""

    seconds: float
    memory: int
    alive: bool
    ended: bool
    unexpected: list[str]
    log: str
    before: dict[str, str]
    after: dict[str, str]


def run(folder: Path, lies: dict[str, Set], *, lying: bool) -> Outcome:
    """Run a controller with an honest host and one host for each lie until the honest job has ended."""
    site = HostileSite(folder)
    try:
        site.add_honest("honest", lines=40)
        for name, lie in lies.items():
            host = site.add(name)
            # Longer than the honest job, so that all of them lie while it runs.
            host.engine.lines = 400
            if lying:
                lie(host)
        return watch(site)
    finally:
        site.close()


def watch(site: HostileSite) -> Outcome:
    jobs = {name: site.submit(name, checkpoint={"mirror_every": 1}) for name in ("honest", *site.hosts)}
    before = site.tree()
    started = time.time()
    controller = site.control()
    site.wait(lambda: controller.poll() is not None or site.job(jobs["honest"]).ended)
    ended = site.job(jobs["honest"]).state is JobState.SUCCEEDED
    at = max(event.at for event in site.store.events(jobs["honest"]))
    time.sleep(AFTER_SECONDS)
    alive = controller.poll() is None
    memory = peak_memory(controller) if alive else 0
    return Outcome(at - started, memory, alive, ended, site.unexpected(), site.log(), before, site.tree())


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    """Return how it goes with as many hosts that do not lie."""
    outcome = run(tmp_path_factory.mktemp("honest"), WRONG, lying=False)
    assert outcome.alive
    assert outcome.ended
    yield outcome


@pytest.mark.parametrize("group", GROUPS)
def test_lying_hosts_disturb_neither_the_controller_nor_the_jobs_of_others(
    group: str, honest: Outcome, tmp_path: Path
) -> None:
    """0.1.0 stayed up; it took 948 MiB for an answer of 300 MiB, and had errors that are not ours in its history."""
    allowed = honest.seconds + pace.seconds(1.0)
    outcomes = []
    for number in range(3):
        outcomes.append(run(tmp_path / str(number), GROUPS[group], lying=True))
        outcome = outcomes[-1]
        assert outcome.alive, outcome.log[-3000:]
        assert outcome.ended, "the job on the honest host came to its end"
        assert "Traceback" not in outcome.log
        assert outcome.after == outcome.before, "nothing is written outside of RUNG_HOME"
        assert outcome.memory < honest.memory + MORE_MEMORY
        assert not outcome.unexpected, "only our own errors come out"
        if outcome.seconds <= allowed:
            return
    raise AssertionError(f"{honest.seconds:.1f} s alone, {[round(each.seconds, 1) for each in outcomes]} beside liars")
