"""Tests every answer of an engine and of a shell with wrong values in every place: only our own errors come out.

The product's own engine, follower, survey and SSH connection ask a host of ours, which lies.
"""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import RungError
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.paths import HomePaths
from rung.runner.engines.docker.engine import DockerEngine
from rung.runner.hosts.survey import Report, survey
from rung.runner.seams.engine import Container, Observation, Presence, Request
from rung.runner.state.store import Event
from rung.runner.views.tables import event_line
from tests.support.hostile_engine import DIGEST
from tests.support.hostile_lies import says
from tests.support.hostile_site import IMAGE, HostileSite, mutations
from tests.support.hostile_ssh import HostileHost, Reply

numbers = itertools.count(1)
# Each place in an answer has a dozen wrong values; `make test` takes some of them, in all places.
EVERY = pytest.mark.parametrize(
    "every", [pytest.param(7, id="some"), pytest.param(1, id="all", marks=pytest.mark.long)]
)
PINNED = re.compile(r"([a-z0-9./:-]+@)?sha256:[0-9a-f]{64}")
# One line without a code that a terminal would obey.
ONE_LINE = re.compile(r"[^\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]*")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[HostileSite]:
    made = HostileSite(tmp_path)
    made.add("liar")
    yield made
    made.close()


@pytest.fixture
def liar(site: HostileSite) -> HostileHost:
    return site.hosts["liar"]


def request_of(site: HostileSite) -> Request:
    """Return a request for an attempt that nobody has used yet."""
    paths = HomePaths(site.rung_home).attempt("job-1", next(numbers))
    paths.folder.mkdir(parents=True)
    at = Path("/rung/job/checkpoints")
    return Request("job-1", paths.number, ("true",), Path("/rung/work"), {}, paths, at, container=Container(IMAGE))


def only_our_errors(act: Callable[[], Any], told: object) -> Any:
    """Return what an act returns, or None where it raises an error of ours, in one clean line."""
    try:
        return act()
    except RungError as error:
        assert ONE_LINE.fullmatch(str(error)), f"{told!r}: {str(error)!r}"
        assert len(str(error)) < 2000
        return None
    except Exception as error:
        raise AssertionError(f"{told!r} gave {type(error).__name__}: {error}") from error


def honest(liar: HostileHost, site: HostileSite, kind: str) -> Any:
    """Return the honest answer to a kind of request."""
    engine = liar.engine
    site.docker("liar").start(request_of(site), {})
    name = next(iter(engine.containers))
    if kind == "wait":
        return {"StatusCode": 0, "Error": None}
    return engine._value(kind, name if kind == "inspect" else "", {}, b"")[1]


def is_plain(observation: Observation) -> bool:
    """Tell whether all fields of an observation are what their types promise."""
    times = (observation.started_at, observation.ended_at)
    known = all(at is None or (isinstance(at, float | int) and math.isfinite(at)) for at in times)
    codes = all(code is None or type(code) is int for code in (observation.exit_code, observation.signal))
    return (
        known and codes and isinstance(observation.presence, Presence) and bool(ONE_LINE.fullmatch(observation.detail))
    )


@EVERY
@pytest.mark.parametrize("kind", ["inspect", "list", "version"])
def test_a_wrong_answer_about_containers_becomes_an_observation(
    kind: str, every: int, site: HostileSite, liar: HostileHost
) -> None:
    for wrong in mutations(honest(liar, site, kind))[::every]:
        liar.engine.lies = {kind: says(wrong)}
        engine = DockerEngine(site.remote("liar"), "store")
        seen = only_our_errors(lambda engine=engine: engine.observe(request_of(site).paths), wrong)
        engine.close()
        assert seen is None or is_plain(seen), f"{wrong!r} became {seen}"


# What is done with each kind of answer.
ACTS: dict[str, list[Callable[[DockerEngine, Request], Any]]] = {
    "inspect": [
        lambda engine, request: engine.start(request, {}),
        lambda engine, request: engine.stop(request.paths, force=True),
        lambda engine, request: engine.run(["sh", "-c", "echo x"], request, 10),
    ],
    "create": [lambda engine, request: engine.run(["sh", "-c", "echo x"], request, 10)],
    "wait": [lambda engine, request: engine.run(["sh", "-c", "echo x"], request, 10)],
    "image": [lambda engine, request: engine.ensure_image(IMAGE, lambda progress: None)],
}


@EVERY
@pytest.mark.parametrize("kind", ACTS)
def test_a_wrong_answer_to_what_is_done_is_an_error_of_ours(
    kind: str, every: int, site: HostileSite, liar: HostileHost
) -> None:
    """0.1.0 raised AttributeError and TypeError for many of these, which end a job's turn as unexpected errors."""
    value = {"Id": "x", "Warnings": []} if kind == "create" else honest(liar, site, kind)
    engine = site.docker("liar")
    for wrong in mutations(value)[::every]:
        liar.engine.lies = {kind: says(wrong, 201 if kind == "create" else 200)}
        request = request_of(site)
        for act in ACTS[kind]:
            ran = only_our_errors(lambda act=act, request=request: act(engine, request), wrong)
            assert ran is None or [type(part) for part in ran[1:]] == [str, str], f"{wrong!r} gave {ran}"
            assert ran is None or isinstance(ran[0], int), f"{wrong!r} gave {ran}"


@EVERY
def test_a_wrong_answer_about_images_gives_a_digest_or_an_error(
    every: int, site: HostileSite, liar: HostileHost
) -> None:
    """0.1.0 returned as the digest whatever the host had sent."""
    gpu = Gpu("P100", (6, 0))
    told = {"Descriptor": {"digest": DIGEST}}
    image = {"Id": DIGEST, "RepoDigests": [f"train@{DIGEST}"], "Config": {"Labels": {"rung.cuda.archs": "sm_60"}}}
    cases = [("distribution", wrong) for wrong in mutations(told)] + [("image", wrong) for wrong in mutations(image)]
    for kind, wrong in cases[::every]:
        liar.engine.lies = {kind: says(wrong)}
        if kind == "image":
            liar.engine.lies["distribution"] = says({"message": "no"}, 404)
        engine = DockerEngine(site.remote("liar"), "store")
        pinned = only_our_errors(lambda engine=engine: engine.images.pin("train:tag"), wrong)
        assert pinned is None or PINNED.fullmatch(pinned), f"{wrong!r} was pinned as {pinned!r}"
        why = only_our_errors(lambda engine=engine: engine.incompatibility(IMAGE, gpu), wrong)
        assert why is None or ONE_LINE.fullmatch(why)
        engine.close()


@EVERY
@pytest.mark.parametrize("kind", ["version", "list"])
def test_a_survey_takes_any_answer_of_an_engine(kind: str, every: int, site: HostileSite, liar: HostileHost) -> None:
    values = mutations(honest(liar, site, kind))[::every]
    liar.lies.command = lambda command: Reply()
    for wrong in values:
        liar.engine.lies = {kind: says(wrong)}
        report = only_our_errors(lambda: survey(liar.host(), site.remote("liar"), time.time), wrong)
        assert isinstance(report, Report)
        assert ONE_LINE.fullmatch(report.engine + report.engine_trouble + report.away)


OUTPUTS = [
    b"",
    b"\n\n\n",
    b"\0" * 1000,
    b"\xff\xfe" * 500,
    b"time -1\nuser \x1b[31m\n",
    b"time 99999999999999999999\n",
    b"home / 1 1 99999999999999999999999 1% /\n",
    b"/../../etc\n1000\n1000\n",
    b"/home\nx\ny\n",
    b"/home/\x1b]0;x\x07\n1000\n1000\n",
    b"/\n0\n0\n",
    b"0, GPU-x, 1, 1, 1.1, a\n" * 5000,
    b"--\n--\n--\n",
]
RECORDS = [
    b"",
    b"began\n",
    b"done\n",
    b"done\n[]",
    b"done\nnull",
    b"done\n" + b"[" * 200_000,
    b'done\n{"exit_code": 1e400, "ended_at": "x"}',
    b'done\n{"exit_code": null, "ended_at": []}',
    b'done\n{"exit_code": 0, "ended_at": Infinity}',
    b'done\n{"exit_code": 0, "ended_at": NaN}',
    b'done\n{"exit_code": 99999999999999999999999, "ended_at": 253402300799}',
    b'done\n{"exit_code": "0", "ended_at": 1e308}',
    b"\xff" * 100_000,
]


@pytest.mark.parametrize("record", RECORDS, ids=range(len(RECORDS)))
def test_any_record_becomes_an_observation(record: bytes, site: HostileSite, liar: HostileHost) -> None:
    """0.1.0 took the time `Infinity` from a record, and could not show it afterwards."""
    liar.lies.command = lambda command: Reply([record]) if "done.json" in command else None
    for state in ({"message": "gone"}, {"State": {"Status": "exited", "ExitCode": 0}, "Config": {"Labels": {}}}):
        liar.engine.lies = {"inspect": says(state, 404 if "message" in state else 200)}
        engine = DockerEngine(site.remote("liar"), "store")
        seen = only_our_errors(lambda engine=engine: engine.observe(request_of(site).paths), record)
        engine.close()
        assert seen is None or is_plain(seen), f"{record[:60]!r} became {seen}"


@pytest.mark.parametrize("output", OUTPUTS, ids=range(len(OUTPUTS)))
def test_any_output_of_a_command_is_taken_or_is_an_error_of_ours(
    output: bytes, site: HostileSite, liar: HostileHost
) -> None:
    for code in (0, 1, 255, -1):
        liar.lies.command = lambda command, code=code: Reply([output], [output], code)
        report = only_our_errors(lambda: survey(liar.host(), site.remote("liar"), time.time), output)
        assert isinstance(report, Report)
        for act in (
            lambda engine, request: engine.start(request, {}),
            lambda engine, request: engine.observe(request.paths),
            lambda engine, request: engine.list_files(request, "*"),
        ):
            engine, request = DockerEngine(site.remote("liar"), "store"), request_of(site)
            seen = only_our_errors(lambda act=act, engine=engine, request=request: act(engine, request), output)
            assert not isinstance(seen, Observation) or is_plain(seen), f"{output[:60]!r} became {seen}"
            engine.close()


@pytest.mark.parametrize("at", [253402300800.0, -1e18, 1e308, math.inf, math.nan])
def test_a_time_that_no_calendar_has_can_be_shown(at: float) -> None:
    """The controller of 0.1.0 ended with a ValueError when a host said that a container started in the year 9999."""
    assert "started" in event_line(Event(1, at, "job-1", 1, "started", {"argv": ["true"]}), "liar")
