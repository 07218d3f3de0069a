"""Tests that a followed log is copied completely: no line lost and none twice, also after failures."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rung.runner.seams.engine import Presence, Request
from tests.fleet.containers.conftest import Attempts

COUNTS = 'i=0; while [ ! -e /rung/job/go ]; do i=$((i+1)); echo "line $i"; sleep 0.01; done; echo "last $i"'


def go(attempts: Attempts) -> None:
    """Let the job end, without using the network."""
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


def test_no_line_is_lost_when_the_link_is_cut_also_when_the_run_ends_during_the_cut(attempts: Attempts) -> None:
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
def test_a_restarted_engine_is_unreachable_and_then_the_same_attempt_goes_on(attempts: Attempts, how: str) -> None:
    attempts.host.kill_engine()
    attempts.host.start_engine("--live-restore")
    request = attempts.sh(COUNTS)
    more(attempts, request)
    # An engine that is stopped normally also ends its streams normally; this is not the end of the job.
    attempts.host.run("engine", how)
    away = attempts.becomes(request, Presence.UNREACHABLE)
    assert "turing has not answered for" in away.detail
    attempts.host.start_engine("--live-restore")
    attempts.becomes(request, Presence.RUNNING)
    more(attempts, request)
    go(attempts)
    whole(attempts, request)


def test_a_new_controller_reads_on_where_the_killed_one_stopped(attempts: Attempts) -> None:
    request = attempts.sh(COUNTS)
    for _ in range(3):
        more(attempts, request)
        # After a kill the cursor is older than the file, and the file may end in a part of a line.
        attempts.engine.close()
        with request.paths.log.open("ab") as log:
            log.write(b"line 99")
        more_than = len(lines(attempts, request))
        attempts.new_engine()
        attempts.wait(lambda: attempts.engine.observe(request.paths).presence is Presence.RUNNING)
        attempts.wait(lambda least=more_than: len(lines(attempts, request)) > least)
    go(attempts)
    whole(attempts, request)


def test_no_line_is_lost_when_the_host_freezes_or_sshd_restarts(attempts: Attempts) -> None:
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


def test_all_lines_before_a_power_loss_are_kept(attempts: Attempts) -> None:
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


def test_lines_of_any_length_and_any_bytes_are_copied(attempts: Attempts) -> None:
    request = attempts.sh(LONG)
    attempts.end(request)
    # The engine stores its logs as JSON: a byte that is not valid text becomes U+FFFD.
    expected = b"x" * SIZE + b"\n" + b"a\0b\r\xef\xbf\xbd\x1b[2J\n\n" + b"y" * SIZE
    assert request.paths.log.read_bytes() == expected


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
