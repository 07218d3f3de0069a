"""Tests that temporary containers which nobody uses any more are removed from a host, and no others.

In 0.1.0 they were removed only by the process that had made them: 254 were left on the hosts, 30 never started.
"""

from __future__ import annotations

import threading
from pathlib import Path

from rung.runner.engines.docker.probe import this_process
from tests.fleet.containers.conftest import STORE, Attempts

GONE = "another-boot.1.1.1"


def leave(attempts: Attempts, number: int, owner: str, *, run: bool, store: str = STORE) -> str:
    """Make a container as a probe of that owner has one, started or not."""
    name = f"rung-{store}-look-{number:012x}"
    labels = {"rung.store": store, "rung.look": "a-1", "rung.look.owner": owner, "rung.look.seconds": "900"}
    words = [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
    command = ("run", "--detach") if run else ("create",)
    attempts.host.docker(*command, "--name", name, *words, attempts.fleet.images["tiny"], "sleep", "600")
    return name


def test_those_of_a_process_that_is_gone_are_swept_running_or_never_started(attempts: Attempts) -> None:
    attempts.engine.ensure_image(attempts.fleet.images["tiny"], lambda progress: None)
    left = [leave(attempts, 1, GONE, run=True), leave(attempts, 2, GONE, run=False)]
    # Given up by this process: it does not use them.
    left += [leave(attempts, 3, this_process(), run=True)]
    boot, namespace, _, _ = this_process().split(".")
    start = Path("/proc/1/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    kept = [leave(attempts, 4, f"{boot}.{namespace}.1.{start}", run=True)]
    kept += [leave(attempts, 5, GONE, run=True, store="ba9876543210")]
    assert attempts.engine.sweep() == 3
    there = attempts.containers()
    assert not set(left) & set(there) and set(kept) <= set(there)
    attempts.host.docker("rm", "--force", *kept)


def test_a_look_in_use_is_not_swept_and_one_that_is_cut_off_is_swept_later(attempts: Attempts) -> None:
    request = attempts.request("sh", "-c", "true")
    attempts.engine.ensure_image(attempts.fleet.images["tiny"], lambda progress: None)
    errors: list[BaseException] = []

    def look() -> None:
        try:
            attempts.engine.run(["sleep", "300"], request, 300.0)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    attempts.wait(lambda: any("-look-" in name for name in attempts.containers()), "the look")
    assert attempts.engine.sweep() == 0
    attempts.host.cut()
    thread.join(300)
    assert errors, "it is given up after a while"
    attempts.host.reconnect()
    attempts.wait(lambda: _swept(attempts), "the sweep")
    assert not any("-look-" in name for name in attempts.containers())


def _swept(attempts: Attempts) -> bool:
    try:
        return attempts.engine.sweep() == 1
    except Exception:
        return False
