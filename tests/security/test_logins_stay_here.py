"""Tests that no host gets a login for a registry unless the list of hosts asks for it.

In 0.1.0 the password in `~/.docker/config.json` of the controller's user went to every host that pulled an image.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rung.jobs.model.errors import EngineError
from rung.runner.engines.docker.api import EngineApi
from rung.runner.hosts.host_list import parse_hosts
from rung.runner.hosts.registry_login import RegistryLogins, registry_of
from tests.support.lying_engine import LyingEngine, answer, lying_engine

DIGEST = "@sha256:" + "0" * 64
OURS, OTHER = f"registry.example.org:5000/x{DIGEST}", f"other.example.org/x{DIGEST}"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LyingEngine]:
    with lying_engine(tmp_path) as server:
        server.replies |= {"/create": answer(b"{}"), "/json": answer(b'{"Descriptor": {"digest": "x"}}')}
        yield server


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write settings of Docker with logins for two registries, as `docker login` does."""
    login = base64.b64encode(b"trainer:hunter2").decode()
    auths = {"registry.example.org:5000": {"auth": login}, "other.example.org": {"auth": login}}
    file = tmp_path / "home" / ".docker" / "config.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"auths": auths}))
    monkeypatch.setenv("HOME", str(file.parents[1]))
    monkeypatch.delenv("DOCKER_CONFIG", raising=False)
    return file


def test_a_pull_sends_no_login(engine: LyingEngine) -> None:
    api = EngineApi(engine, engine.path)  # type: ignore[arg-type]
    api.negotiate_version()
    list(api.pull(OURS))
    api.digest("registry.example.org:5000/x:1")
    assert len(engine.heads) == 3
    assert not [head for head in engine.heads if "x-registry-" in head.lower()]


def test_the_settings_of_docker_are_not_even_read(
    engine: LyingEngine, monkeypatch: pytest.MonkeyPatch, settings: Path
) -> None:
    read: list[object] = []
    monkeypatch.setattr("docker.utils.config.find_config_file", lambda *_: read.append(1))
    api = EngineApi(engine, engine.path, RegistryLogins(("elsewhere.example.org",)))  # type: ignore[arg-type]
    list(api.pull(OURS))
    assert read == []


def test_a_host_that_asks_gets_the_login_for_that_registry_alone(engine: LyingEngine) -> None:
    logins = RegistryLogins(("registry.example.org:5000",))
    api = EngineApi(engine, engine.path, logins)  # type: ignore[arg-type]
    list(api.pull(OURS))
    sent = next(line for line in engine.heads[-1].splitlines() if line.startswith("X-Registry-Auth: "))
    told = json.loads(base64.urlsafe_b64decode(sent.partition(": ")[2]))
    assert (told["username"], told["password"]) == ("trainer", "hunter2")
    list(api.pull(OTHER))
    assert "X-Registry-Auth" not in engine.heads[-1]


def test_broken_settings_of_docker_are_an_error_of_one_line(engine: LyingEngine, settings: Path) -> None:
    settings.write_text(json.dumps({"credHelpers": {"registry.example.org:5000": "no-such-helper"}}))
    api = EngineApi(engine, engine.path, RegistryLogins(("registry.example.org:5000",)))  # type: ignore[arg-type]
    with pytest.raises(EngineError, match=r"^the login for registry\.example\.org:5000 cannot be read") as raised:
        list(api.pull(OURS))
    assert "\n" not in str(raised.value)


def test_the_list_of_hosts_names_the_registries_of_a_host() -> None:
    text = "all: {hosts: {a: {rung_registries: [Registry.example.org:5000]}, b: {}}}"
    assert {host.name: host.registries for host in parse_hosts(text.encode())} == {
        "a": ("registry.example.org:5000",),
        "b": (),
    }


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        (OURS, "registry.example.org:5000"),
        (f"localhost/x{DIGEST}", "localhost"),
        (f"library/x{DIGEST}", "docker.io"),
        (f"x{DIGEST}", "docker.io"),
    ],
)
def test_the_registry_is_the_first_part_of_a_name(image: str, registry: str) -> None:
    assert registry_of(image) == registry
