"""Tests the Docker engine on a real host: an attempt is started once, found again, and ended completely."""

from __future__ import annotations

import pytest

from rung.jobs.model.errors import EngineError
from rung.jobs.model.paths import AttemptPaths
from rung.runner.seams.engine import Presence
from tests.fleet.containers.conftest import STORE, Attempts

SLEEPS = "echo up; while :; do sleep 0.1; done"


def test_an_attempt_runs_once_and_ends_with_its_exit_code_and_a_record(attempts: Attempts) -> None:
    request = attempts.request("sh", "-c", "echo once; echo wrong >&2; printf 'no end'; exit 7")
    assert attempts.engine.observe(request.paths).presence is Presence.ABSENT
    attempts.engine.start(request, {})
    attempts.engine.start(request, {})
    end = attempts.end(request)
    assert (end.presence, end.exit_code, end.signal) == (Presence.ENDED, 7, None)
    assert end.started_at is not None
    assert end.ended_at is not None
    assert end.ended_at >= end.started_at
    assert attempts.log(request) == "once\nwrong\nno end"
    # The result is stored here, so the container is removed, and it is not started again.
    assert attempts.containers() == []
    attempts.new_engine()
    assert attempts.engine.observe(request.paths) == end


def test_a_missing_command_ends_with_127_and_a_line_in_the_log(attempts: Attempts) -> None:
    request = attempts.start("no such program; rm -rf /", "$(id)")
    assert attempts.end(request).exit_code == 127
    assert "no such program" in attempts.log(request)


def test_term_reaches_every_process_and_the_exit_code_is_the_commands_own(attempts: Attempts) -> None:
    child = "trap 'echo child; exit' TERM; echo ready; while :; do sleep 0.1; done"
    # The parent is ready for the signal before its child says so.
    request = attempts.sh(f"trap 'wait; echo parent; exit 3' TERM; sh -c \"{child}\" & while :; do sleep 0.1; done")
    attempts.wait_for_log(request, "ready")
    attempts.engine.stop(request.paths, force=False)
    attempts.engine.stop(request.paths, force=False)
    end = attempts.end(request)
    assert (end.presence, end.exit_code) == (Presence.ENDED, 3)
    lines = attempts.log(request).splitlines()
    assert (lines.count("child"), lines.count("parent")) == (1, 1)


def test_a_command_that_ends_by_a_signal_is_distinguished_from_one_that_exits(attempts: Attempts) -> None:
    request = attempts.sh("kill -9 $$")
    assert (attempts.end(request).exit_code, attempts.end(request).signal) == (None, 9)


def test_a_command_that_ignores_term_is_killed_and_a_stopped_attempt_is_not_started(attempts: Attempts) -> None:
    request = attempts.sh(f"trap '' TERM; {SLEEPS}")
    attempts.wait_for_log(request, "up")
    attempts.engine.stop(request.paths, force=False)
    assert attempts.engine.observe(request.paths).presence is Presence.RUNNING
    attempts.engine.stop(request.paths, force=True)
    assert attempts.end(request).presence is Presence.LOST
    late = attempts.request("sh", "-c", SLEEPS)
    attempts.engine.stop(late.paths, force=False)
    attempts.engine.start(late, {})
    assert attempts.engine.observe(late.paths).presence is Presence.ABSENT
    assert attempts.containers() == []


def test_a_running_container_is_adopted_and_a_created_one_is_started(attempts: Attempts) -> None:
    running = attempts.sh(SLEEPS)
    attempts.wait_for_log(running, "up")
    attempts.new_engine().start(running, {})
    assert attempts.engine.observe(running.paths).presence is Presence.RUNNING
    assert attempts.containers() == [attempts.name(running)]
    # A controller that is killed between create and start leaves a created container.
    created = attempts.request("sh", "-c", "echo $WORD", secrets=("WORD",))
    starting = attempts.engine._api.start
    attempts.engine._api.start = lambda name: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        attempts.engine.start(created, {"WORD": "secret"})
    attempts.engine._api.start = starting  # type: ignore[method-assign]
    assert attempts.name(created) in attempts.containers()
    attempts.new_engine()
    assert attempts.engine.observe(created.paths).presence is Presence.ABSENT
    attempts.engine.start(created, {"WORD": "secret"})
    assert attempts.end(created).exit_code == 0
    assert attempts.log(created) == "secret\n"


def test_a_foreign_container_with_our_name_is_not_used_and_not_changed(attempts: Attempts) -> None:
    request = attempts.request("true")
    attempts.host.docker("create", "--name", attempts.name(request), attempts.fleet.images["tiny"], "true")
    with pytest.raises(EngineError, match="which is not ours"):
        attempts.engine.start(request, {})
    assert attempts.containers() == [attempts.name(request)]


def test_jobs_of_another_store_with_the_same_name_are_not_changed(attempts: Attempts) -> None:
    ours = attempts.sh(SLEEPS)
    attempts.wait_for_log(ours, "up")
    other = attempts.new_engine("ba9876543210")
    theirs = AttemptPaths(attempts.folder / "other" / "jobs" / "a-1" / "attempts" / str(ours.attempt))
    assert other.observe(theirs).presence is Presence.ABSENT
    other.stop(theirs, force=True)
    assert attempts.containers() == [attempts.name(ours)]


def test_the_record_decides_how_a_removed_container_ended(attempts: Attempts) -> None:
    running = attempts.sh(SLEEPS)
    attempts.wait_for_log(running, "up")
    attempts.host.docker("rm", "--force", attempts.name(running))
    lost = attempts.end(running)
    assert lost.presence is Presence.LOST
    assert "no completion record" in lost.detail
    done = attempts.sh("exit 5")
    record = attempts.host.work / ".rung" / STORE / "jobs" / "a-1" / "attempts" / str(done.attempt) / "record"
    attempts.engine.close()
    attempts.wait((record / "done.json").exists)
    attempts.host.docker("rm", "--force", attempts.name(done))
    done.paths.done.unlink(missing_ok=True)
    attempts.new_engine()
    assert (attempts.end(done).presence, attempts.end(done).exit_code) == (Presence.ENDED, 5)


def test_limits_are_in_force_and_the_log_shows_that_memory_ran_out(attempts: Attempts) -> None:
    eats = "cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max; tail -c 400m /dev/zero | wc -c; echo after"
    request = attempts.sh(
        f"df -k /dev/shm; ({eats}) 2>/dev/null", limits={"memory": 64 << 20, "cpus": 1}, shm=32 << 20, pids=77
    )
    attempts.end(request)
    log = attempts.log(request)
    assert "77\n" in log
    assert " 32768 " in log
    assert log.count("out of memory") == 1
