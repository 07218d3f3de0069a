"""Tests that the containers of two attempts do not reach each other, and their networks go with them."""

from __future__ import annotations

from rung.runner.seams.engine import Request
from tests.fleet.containers.conftest import STORE, Attempts

LISTENS = "echo up; while :; do echo hello | nc -l -p 8000; done"
ADDRESS = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"


def networks(attempts: Attempts) -> list[str]:
    return attempts.host.docker(
        "network", "ls", "--filter", f"label=rung.store={STORE}", "--format", "{{.Name}}"
    ).split()


def listener(attempts: Attempts, network: str) -> tuple[Request, str]:
    request = attempts.sh(LISTENS, network=network)
    attempts.wait_for_log(request, "up")
    return request, attempts.host.docker("inspect", "--format", ADDRESS, attempts.name(request)).strip()


def reaches(attempts: Attempts, address: str, network: str) -> bool:
    request = attempts.sh(f"nc -w 3 {address} 8000 </dev/null || echo cut off", network=network)
    attempts.end(request)
    assert attempts.log(request) in ("hello\n", "cut off\n") or "timed out" in attempts.log(request), attempts.log(
        request
    )
    return "hello" in attempts.log(request)


def test_a_container_does_not_reach_the_container_of_another_attempt(attempts: Attempts) -> None:
    """0.1.0 had all containers on the engine's one bridge. The first half shows that the attempt would be seen."""
    old, address = listener(attempts, "bridge")
    assert reaches(attempts, address, "bridge")
    attempts.engine.stop(old.paths, force=True)
    new, address = listener(attempts, "own")
    assert address.startswith("198.1")
    assert not reaches(attempts, address, "own")
    assert not reaches(attempts, address, "bridge")
    attempts.engine.stop(new.paths, force=True)
    attempts.end(new)


def test_the_network_is_made_and_removed_with_the_container(attempts: Attempts) -> None:
    request, _ = listener(attempts, "own")
    assert networks(attempts) == [attempts.name(request)]
    attempts.engine.stop(request.paths, force=True)
    attempts.end(request)
    attempts.wait(lambda: networks(attempts) == [])
    assert attempts.end(attempts.sh("true", network="none")).exit_code == 0
    assert networks(attempts) == []


def test_a_new_controller_removes_a_network_that_was_left(attempts: Attempts) -> None:
    left, label = f"rung-{STORE}-a-1-900", f"rung.store={STORE}"
    attempts.host.docker("network", "create", "--subnet", "198.19.0.0/29", "--label", label, left)
    other = "rung-ba9876543210-a-1-900"
    attempts.host.docker("network", "create", "--subnet", "198.19.0.8/29", "--label", "rung.store=ba9876543210", other)
    request = attempts.sh("true")
    attempts.end(request)
    names = attempts.host.docker("network", "ls", "--format", "{{.Name}}").split()
    assert left not in names and other in names
    attempts.host.docker("network", "rm", other)
