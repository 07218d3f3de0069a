"""Tests temporary containers with a fake engine: their labels, their end, and what the sweep removes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import EngineError, HostUnreachable, RunCutShort
from rung.jobs.model.paths import IN_JOB, HomePaths
from rung.runner.engines.docker import probe as probe_module
from rung.runner.engines.docker.probe import LIMIT_LABEL, MADE_LABEL, OWNER_LABEL, Probe, is_gone, this_process
from rung.runner.engines.on_host.layout import HostLayout, RemoteUser
from rung.runner.seams.engine import Container, Request
from tests import pace

STORE = "0123456789ab"
USER = RemoteUser("/home/rung", 1000, 1000)


class FakeAccount:
    store_id = STORE

    def user(self) -> RemoteUser:
        return USER

    def layout(self) -> HostLayout:
        return HostLayout(USER, STORE, "/home/rung/.rung/inside")

    def script(self, script: str, *arguments: str) -> str:
        return ""


class FakeApi:
    """An engine in memory. `broken` are the calls that fail because the host is away, in order."""

    host = "ampere"

    def __init__(self) -> None:
        self.there: dict[str, Mapping[str, str]] = {}
        self.broken: list[str] = []
        self.refuses = ""
        self.code, self.waits = 0, 0
        self.out_of_memory = False

    def _call(self, name: str) -> None:
        if name in self.broken:
            self.broken.remove(name)
            raise HostUnreachable(f"ampere: no answer to {name}")

    def create(self, name: str, config: Mapping[str, Any]) -> bool:
        self.there[name] = config["Labels"]
        self._call("create")
        return True

    def start(self, name: str) -> None:
        self._call("start")
        if self.refuses:
            raise EngineError(self.refuses)

    def wait(self, name: str, seconds: float) -> int:
        self.waits += 1
        self._call("wait")
        return self.code

    def inspect(self, name: str) -> dict[str, Any]:
        return {"State": {"Status": "exited", "ExitCode": self.code, "OOMKilled": self.out_of_memory}}

    def output(self, name: str, *, errors: bool, size: int) -> bytes:
        return b"" if errors else b"fine"

    def remove(self, name: str) -> None:
        self._call("remove")
        self.there.pop(name, None)

    def containers(self, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        return [{"Names": [f"/{name}"], "Labels": dict(of)} for name, of in self.there.items()]


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def clock() -> list[float]:
    return [1000.0]


@pytest.fixture
def probe(api: FakeApi, clock: list[float], monkeypatch: pytest.MonkeyPatch) -> Probe:
    monkeypatch.setattr(probe_module, "RECONNECT_SECONDS", (0.0, 0.0, 0.0))
    return Probe(api, FakeAccount(), now=lambda: clock[0])


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    paths = HomePaths(tmp_path).attempt("a-1", 1)
    container = Container(f"train@sha256:{'0' * 64}")
    return Request("a-1", 1, ("python", "t.py"), Path("/"), {}, paths, Path(IN_JOB), container=container)


def left_by(owner: str, limit: str = "900") -> dict[str, str]:
    return {"rung.store": STORE, "rung.look": "a-1", OWNER_LABEL: owner, LIMIT_LABEL: limit}


def name(number: int) -> str:
    return f"rung-{STORE}-look-{number:012x}"


def test_a_container_carries_its_store_owner_limit_and_time_and_is_removed(
    probe: Probe, api: FakeApi, request_: Request
) -> None:
    seen: list[Mapping[str, str]] = []
    api.start = lambda name: seen.append(api.there[name])
    assert probe.in_attempt(["python"], request_, 900.0) == (0, "fine", "")
    (labels,) = seen
    assert labels["rung.store"] == STORE and labels[OWNER_LABEL] == this_process() and labels[LIMIT_LABEL] == "900"
    assert labels[MADE_LABEL].endswith("+00:00")
    pace.until(lambda: api.there == {}, 10)


def test_an_answer_does_not_wait_until_its_container_is_removed(probe: Probe, api: FakeApi, request_: Request) -> None:
    answered, removed, remove = threading.Event(), list[bool](), api.remove

    def slow(name: str) -> None:
        removed.append(answered.wait(10))
        remove(name)

    api.remove = slow  # type: ignore[method-assign]
    assert probe.in_attempt(["python"], request_, 900.0) == (0, "fine", "")
    assert probe.sweep() == 0, "it is still in use"
    answered.set()
    pace.until(lambda: api.there == {}, 10)
    assert removed == [True]


@pytest.mark.parametrize("broken", ["create", "start"])
def test_one_that_is_given_up_is_killed_at_once(probe: Probe, api: FakeApi, request_: Request, broken: str) -> None:
    api.broken = [broken]
    with pytest.raises(HostUnreachable):
        probe.in_attempt(["python"], request_, 900.0)
    assert api.there == {}


@pytest.mark.parametrize("broken", ["create", "start"])
def test_one_that_could_not_be_removed_is_swept_when_the_host_answers(
    probe: Probe, api: FakeApi, request_: Request, broken: str
) -> None:
    api.broken = [broken, "remove"]
    with pytest.raises(HostUnreachable, match=broken):
        probe.in_attempt(["python"], request_, 900.0)
    assert len(api.there) == 1
    assert probe.sweep() == 1 and api.there == {}


def test_an_answer_counts_although_its_container_could_not_be_removed(
    probe: Probe, api: FakeApi, request_: Request
) -> None:
    api.broken = ["remove"]
    assert probe.in_attempt(["python"], request_, 900.0) == (0, "fine", "")
    pace.until(lambda: not probe_module._IN_USE, 10)
    assert probe.sweep() == 1


def test_a_connection_that_breaks_while_it_runs_does_not_begin_it_anew(
    probe: Probe, api: FakeApi, request_: Request
) -> None:
    api.broken = ["wait", "wait"]
    assert probe.in_attempt(["python"], request_, 900.0) == (0, "fine", "")
    assert api.waits == 3


@pytest.mark.parametrize(("broken", "code"), [(["wait"], 137), (["wait"], 1), (["wait"] * 9, 0)])
def test_one_that_may_have_ended_with_the_connection_has_not_answered(
    probe: Probe, api: FakeApi, request_: Request, broken: list[str], code: int
) -> None:
    api.broken, api.code = broken, code
    with pytest.raises(HostUnreachable):
        probe.in_attempt(["python"], request_, 900.0)


def test_one_that_ran_out_of_memory_says_what_to_set_and_one_that_was_killed_is_an_answer(
    probe: Probe, api: FakeApi, request_: Request
) -> None:
    api.code = 137
    assert probe.in_attempt(["python"], request_, 900.0) == (137, "fine", "")
    api.out_of_memory = True
    with pytest.raises(RunCutShort, match=r"ran out of memory: ask for more in resources.memory") as raised:
        probe.in_attempt(["python"], request_, 900.0)
    assert raised.value.output == "fine"
    assert not api.there


def test_a_program_that_the_image_does_not_have_is_an_answer(probe: Probe, api: FakeApi, request_: Request) -> None:
    api.refuses = 'ampere: OCI runtime create failed: exec: "python": executable file not found in $PATH: unknown'
    code, _, errors = probe.in_attempt(["python"], request_, 900.0)
    assert code == 127 and "executable file not found" in errors
    api.refuses = "ampere: no space left on device"
    with pytest.raises(EngineError, match="no space"):
        probe.in_attempt(["python"], request_, 900.0)


# The sweep


def test_one_in_use_is_not_swept(probe: Probe, api: FakeApi, request_: Request) -> None:
    swept: list[int] = []
    api.start = lambda name: swept.append(probe.sweep())
    assert probe.in_attempt(["python"], request_, 900.0)[0] == 0
    assert swept == [0]


def test_one_in_use_is_removed_when_the_program_ends(probe: Probe, api: FakeApi, request_: Request) -> None:
    left = []

    def wait(name: str, seconds: float) -> int:
        probe.close()
        left.extend(api.there)
        return 0

    api.wait = wait  # type: ignore[method-assign]
    probe.in_attempt(["true"], request_, 60)
    assert left == []


@pytest.mark.parametrize(
    "row", [{"Names": 5, "Labels": {}}, {"Names": ["/x"], "Labels": ["rung.look"]}, {"Names": [5]}, {}]
)
def test_a_row_that_no_engine_has_does_not_end_the_sweep(probe: Probe, api: FakeApi, row: dict[str, Any]) -> None:
    name = f"rung-{STORE}-look-{'0' * 12}"
    api.there[name] = {"rung.look": "a", OWNER_LABEL: f"{'0' * 8}.1.{'9' * 5000}.1"}
    honest = api.containers
    api.containers = lambda labels: [row, *honest(labels)]  # type: ignore[method-assign]
    assert probe.sweep() == 1


def test_those_of_a_process_that_is_gone_are_swept_at_once_and_those_of_a_living_one_after_their_limit(
    probe: Probe, api: FakeApi, clock: list[float]
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        start = Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19]
        boot, namespace, _, _ = this_process().split(".")
        living = f"{boot}.{namespace}.{other.pid}.{start}"
        api.there = {name(1): left_by(living), name(2): left_by(f"{boot}.{namespace}.{other.pid}.1")}
        api.there |= {name(3): left_by(f"another-boot.{namespace}.{os.getpid()}.1")}
        assert probe.sweep() == 2 and list(api.there) == [name(1)]
        clock[0] += 950.0
        assert probe.sweep() == 0, "its own limit protects it"
        clock[0] += 50.0
        assert probe.sweep() == 1
        api.there = {name(4): left_by(living)}
        assert probe.sweep() == 0
    assert probe.sweep() == 1, "its process has ended"


def test_one_without_an_owner_from_an_older_version_is_swept_after_the_longest_limit(
    probe: Probe, api: FakeApi, clock: list[float]
) -> None:
    api.there = {name(1): {"rung.store": STORE, "rung.look": "a-1"}}
    assert probe.sweep() == 0
    clock[0] += 1100.0
    assert probe.sweep() == 1


def test_jobs_and_foreign_containers_are_never_swept(probe: Probe, api: FakeApi) -> None:
    gone = f"another-boot.1.{os.getpid()}.1"
    api.there = {
        f"rung-{STORE}-a-1-1": {"rung.store": STORE, "rung.job": "a-1"},
        f"rung-{STORE}-look-1": left_by(gone),
        "../containers/other": left_by(gone),
        name(1): {"rung.store": STORE},
    }
    assert probe.sweep() == 0 and len(api.there) == 4


@pytest.mark.parametrize("owner", ["", "x", "....", "\x00.1.2.3", f"{'9' * 400}.1.1.1"])
def test_a_name_that_no_process_has_breaks_nothing(owner: str) -> None:
    assert is_gone(owner) in (True, False)
