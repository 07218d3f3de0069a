"""Tests that a followed log comes here whole: nothing lost, nothing twice, whatever happens in between."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rung.runner.seams.engine import Presence, Request
from tests.fleet.containers.conftest import Attempts

COUNTS = 'i=0; while [ ! -e /rung/job/go ]; do i=$((i+1)); echo "line $i"; sleep 0.01; done; echo "last $i"'


def go(attempts: Attempts) -> None:
    """Let the job come to its end, without using the network."""
    (attempts.host.work / ".rung" / "0123456789ab" / "jobs" / "a-1" / "stays" / "1" / "go").touch()


def lines(attempts: Attempts, request: Request) -> list[str]:
    return attempts.log(request).splitlines()


def whole(attempts: Attempts, request: Request) -> None:
    """Check that the log has every line once, in order."""
    end = attempts.end(request)
    assert (end.presence, end.exit_code) == (Presence.ENDED, 0)
    found = lines(attempts, request)
    count = int(found[-1].removeprefix("last "))
    assert found == [*(f"line {number}" for number in range(1, count + 1)), f"last {count}"]


def more(attempts: Attempts, request: Request) -> None:
    """Wait until the log has grown."""
    before = len(lines(attempts, request))
    attempts.wait(lambda: len(lines(attempts, request)) > before + 50, "more lines")


def test_a_cut_link_costs_no_line_also_when_the_run_ends_meanwhile(attempts: Attempts) -> None:
    request = attempts.sh(COUNTS)
    more(attempts, request)
    attempts.host.cut()
    away = attempts.becomes(request, Presence.UNREACHABLE)
    assert away.detail.startswith("turing has not answered for ")
    attempts.host.reconnect()
    attempts.becomes(request, Presence.RUNNING)
    more(attempts, request)
    attempts.host.cut()
    go(attempts)
    attempts.wait(lambda: not attempts.host.docker("ps", "--quiet"))
    assert attempts.engine.observe(request.paths).presence is not Presence.ENDED
    attempts.host.reconnect()
    whole(attempts, request)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_an_engine_that_goes_is_away_and_then_the_same_attempt_goes_on(attempts: Attempts, how: str) -> None:
    attempts.host.kill_engine()
    attempts.host.start_engine("--live-restore")
    request = attempts.sh(COUNTS)
    more(attempts, request)
    # One that is stopped in good order ends its streams in good order, too: that is not the end of the job.
    attempts.host.run("engine", how)
    away = attempts.becomes(request, Presence.UNREACHABLE)
    assert "turing has not answered for" in away.detail
    attempts.host.start_engine("--live-restore")
    attempts.becomes(request, Presence.RUNNING)
    more(attempts, request)
    go(attempts)
    whole(attempts, request)


def test_a_new_controller_goes_on_where_the_last_one_was_killed(attempts: Attempts) -> None:
    request = attempts.sh(COUNTS)
    for _ in range(3):
        more(attempts, request)
        # Killed: the cursor is older than what is in the file, and part of a line may be there.
        attempts.engine.close()
        with request.paths.log.open("ab") as log:
            log.write(b"line 99")
        more_than = len(lines(attempts, request))
        attempts.new_engine()
        attempts.wait(lambda: attempts.engine.observe(request.paths).presence is Presence.RUNNING)
        attempts.wait(lambda least=more_than: len(lines(attempts, request)) > least)
    go(attempts)
    whole(attempts, request)


def test_a_frozen_host_and_a_restarted_sshd_cost_no_line(attempts: Attempts) -> None:
    request = attempts.sh(COUNTS)
    more(attempts, request)
    attempts.host.restart_sshd()
    more(attempts, request)
    attempts.host.freeze()
    attempts.becomes(request, Presence.UNREACHABLE)
    attempts.host.thaw()
    attempts.becomes(request, Presence.RUNNING)
    more(attempts, request)
    go(attempts)
    whole(attempts, request)


def test_the_power_goes_and_what_was_printed_before_is_here(attempts: Attempts) -> None:
    request = attempts.sh(COUNTS)
    more(attempts, request)
    attempts.host.power_off()
    attempts.becomes(request, Presence.UNREACHABLE)
    attempts.host.power_on()
    end = attempts.end(request)
    assert end.presence is Presence.LOST
    assert "no completion record" in end.detail
    found = [line for line in lines(attempts, request) if line.startswith("line ")]
    assert found == [f"line {number}" for number in range(1, len(found) + 1)]
    assert attempts.containers() == []


SIZE = 100_000
LONG = f"""
head -c {SIZE} /dev/zero | tr '\\0' x
printf '\\na\\0b\\r\\377\\033[2J\\n\\n'
head -c {SIZE} /dev/zero | tr '\\0' y
"""


def test_lines_of_any_length_and_any_bytes_come_through(attempts: Attempts) -> None:
    request = attempts.sh(LONG)
    attempts.end(request)
    # The engine keeps its logs as JSON: a byte that is no text becomes the sign for that.
    expected = b"x" * SIZE + b"\n" + b"a\0b\r\xef\xbf\xbd\x1b[2J\n\n" + b"y" * SIZE
    assert attempts.engine.read_log(request.paths, 0, 1 << 20) == expected


def test_many_containers_are_followed_by_one_thread(attempts: Attempts) -> None:
    before = threading.active_count()
    with ThreadPoolExecutor(4) as pool:
        requests = list(pool.map(attempts.sh, [COUNTS] * 6))
    for request in requests:
        more(attempts, request)
    named = [thread.name for thread in threading.enumerate() if thread.name.startswith("log follower")]
    assert named == ["log follower of turing"]
    assert threading.active_count() <= before + 4
    go(attempts)
    for request in requests:
        whole(attempts, request)
