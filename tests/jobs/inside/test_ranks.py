"""Tests the start of several ranks under torchrun, and that what they print comes whole and with their rank."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rung_inside import ranks

INSIDE = Path(ranks.__file__).parents[1]
# Needs no torch: torchrun starts any command.
SAYING = """
import os, signal, sys, time
from rung_inside.contract import records
rank = os.environ["RANK"]
print("rank", rank, "of", os.environ["WORLD_SIZE"], "at", os.environ["MASTER_ADDR"])
print("printed twice" if records.stderr_bypasses_log() else "printed once")
if sys.argv[1] == "wait":
    # torchrun may send it a second time.
    signal.signal(signal.SIGTERM, lambda *_: (signal.signal(signal.SIGTERM, signal.SIG_IGN), sys.exit("ended")))
    open("ready" + rank, "w").close()
    time.sleep(600)
if rank == "1":
    for part in ("half a ", "line", "\\n[rank1]: ValueError: by torch\\n", "last words"):
        sys.stdout.write(part)
        sys.stdout.flush()
        time.sleep(0.01)
    sys.exit(3)
time.sleep(600)
"""


def merged(pieces: list[bytes], monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return what is written for a rank that prints these pieces."""
    written: list[bytes] = []
    monkeypatch.setattr(ranks, "write", written.append)
    source, sink = os.pipe()
    reader = threading.Thread(target=ranks.merge, args=(3, source))
    reader.start()
    for piece in pieces:
        os.write(sink, piece)
    os.close(sink)
    reader.join()
    os.close(source)
    return written


@pytest.mark.parametrize(
    ("pieces", "written"),
    [
        ([b"step=1 lo", b"ss=2.5\nstep=2"], [b"[rank3]: step=1 loss=2.5\n", b"[rank3]: step=2\n"]),
        ([b"1/2\r2/2\r\n"], [b"[rank3]: 1/2\r", b"[rank3]: 2/2\r", b"\n"]),
        ([b"[rank3]: Traceback\n", b"\n"], [b"[rank3]: Traceback\n", b"\n"]),
        ([b"[rank1]: of another\n"], [b"[rank3]: [rank1]: of another\n"]),
        ([], []),
    ],
)
def test_lines_come_whole_and_behind_their_rank(
    pieces: list[bytes], written: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert merged(pieces, monkeypatch) == written


def test_ranks_on_several_hosts_meet_at_the_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    for name, value in {"RUNG_MEETING": "127.0.0.1:12345", "RUNG_NODES": "2", "RUNG_NODE_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    at = ["--master_addr=127.0.0.1", "--master_port=12345"]
    assert ranks.meeting() == ["--nnodes=2", "--node_rank=1", *at] and ranks.node_rank() == 1
    # The network in which the first host is.
    assert os.environ.pop("GLOO_SOCKET_IFNAME") == "lo"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib0")
    ranks.meeting()
    assert os.environ["GLOO_SOCKET_IFNAME"] == "ib0"


def test_an_address_that_nobody_knows_chooses_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    ranks.use_interface_to("no.such.host.invalid")
    assert "GLOO_SOCKET_IFNAME" not in os.environ


def test_a_line_without_an_end_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "LONGEST", 8)
    monkeypatch.setattr(ranks, "READ_BYTES", 4)
    written = merged([b"x" * 50], monkeypatch)
    assert len(written) > 3 and all(len(each) < 40 for each in written)
    assert b"".join(each.removeprefix(b"[rank3]: ").rstrip() for each in written) == b"x" * 50


def launch(folder: Path, what: str, **options: Any) -> subprocess.Popen[bytes]:
    (folder / "say.py").write_text(SAYING)
    (folder / "log").touch()
    environment = {
        **os.environ,
        "RUNG_LOG": str(folder / "log"),
        "PYTHONPATH": f"{INSIDE}{os.pathsep}{os.environ['PYTHONPATH']}",
    }
    command = [sys.executable, "-m", "rung_inside.ranks", "2", sys.executable, "-u", "say.py", what]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=folder, env=environment, **pipes, **options)


def test_two_ranks_meet_on_the_loopback_and_the_last_words_of_one_that_fails_are_there(tmp_path: Path) -> None:
    process = launch(tmp_path, "fail")
    lines = process.communicate()[0].decode().splitlines()
    assert process.returncode == 1
    for rank in (0, 1):
        # Zero-edit writes a traceback to the log itself only where that would not get there otherwise.
        said = [f"[rank{rank}]: rank {rank} of 2 at 127.0.0.1", f"[rank{rank}]: printed once"]
        assert [line for line in lines if line.startswith(f"[rank{rank}]")][:2] == said, lines
    own = ["[rank1]: half a line", "[rank1]: ValueError: by torch", "[rank1]: last words"]
    assert [line for line in lines if line.startswith("[rank1]")][2:] == own
    assert any("ChildFailedError" in line for line in lines), "torchrun says which rank it was"


def test_a_signal_to_the_attempt_ends_all_ranks_and_their_last_words_are_there(
    tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    process = launch(tmp_path, "wait", start_new_session=True)
    try:
        wait_until(lambda: (tmp_path / "ready0").exists() and (tmp_path / "ready1").exists())
        os.killpg(process.pid, signal.SIGTERM)
        lines = process.communicate()[0].decode().splitlines()
    finally:
        process.kill()
    assert process.returncode not in (0, None)
    assert {"[rank0]: ended", "[rank1]: ended"} <= {*lines}, lines


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    output = tmp_path / "output"
    output.touch()
    words = [sys.executable, "-I", "-S", ranks.__file__, "--rank", str(output), "/nowhere/python", "x.py"]
    assert subprocess.run(words, env={**os.environ, "LOCAL_RANK": "0"}, check=False).returncode == 127
    assert output.read_text().startswith("rung: cannot start /nowhere/python: ")
