"""Tests `rung controller --web`: the page of a controller that runs a job, and what the two do to each other."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rung.jobs.model.state import JobState
from rung.runner.cli.review import web
from rung.runner.state.store import Store

Spawn = Callable[..., subprocess.Popen[bytes]]
Wait = Callable[..., object]
RunRung = Callable[..., tuple[int, str, str]]


@pytest.fixture
def job(tmp_path: Path, run_rung: RunRung, monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[Callable[[], str]]:
    """Submit a job that runs until `go` is there; return what tells its state."""
    monkeypatch.setenv("RUNG_CONTROLLER", "manual")
    file = tmp_path / "waits.yaml"
    loop = "i=0; while [ ! -e go ]; do i=$((i+1)); echo step $i loss 0.5; sleep 0.1; done"
    file.write_text(f"name: waits\nrun: sh -c '{loop}'\nworkdir: .\n")
    code, _, err = run_rung("launch", str(file))
    assert code == 0, err

    def state() -> str:
        store = Store(home / "rung.db")
        try:
            return store.find("waits").state
        finally:
            store.close()

    yield state
    (tmp_path / "go").touch()


@pytest.fixture
def controller(spawn: Spawn, job: Callable[[], str], wait_until: Wait) -> tuple[subprocess.Popen[bytes], str]:
    """Return a controller that runs the job, and the link of its page."""
    process = spawn("controller", "--web", "--port", "0", "--until-idle")
    assert process.stdout is not None
    link = process.stdout.readline().decode().split()[-1]
    wait_until(lambda: job() == JobState.RUNNING)
    return process, link


def answers(link: str) -> bool:
    try:
        urllib.request.urlopen(link.partition("?")[0]).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    raise AssertionError("it needs no token")


def page_of(process: subprocess.Popen[bytes]) -> int:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    words = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    (page,) = [pid for pid, line in words.items() if b"--until-input-ends" in line]
    return page


def test_the_page_needs_its_token_shows_the_job_and_ends_with_the_controller(
    controller: tuple[subprocess.Popen[bytes], str], job: Callable[[], str]
) -> None:
    process, link = controller
    for wrong in (link.partition("?")[0], link + "x"):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(wrong)
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(link) as answer:
        text = answer.read().decode()
    assert "waits-1" in text and "Rung is watching" in text and "no controller is running" not in text
    token = link.partition("token=")[2]
    assert token.encode() not in Path(f"/proc/{page_of(process)}/cmdline").read_bytes()
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and "controller stopped" in out.decode() and err == b""
    assert not answers(link) and job() == JobState.RUNNING


def test_a_page_that_dies_takes_nothing_with_it(
    controller: tuple[subprocess.Popen[bytes], str],
    job: Callable[[], str],
    tmp_path: Path,
    wait_until: Wait,
    run_rung: RunRung,
) -> None:
    process, link = controller
    already = "rung: rung controller --web: a controller is already running; `rung web` shows the page beside it\n"
    assert run_rung("controller", "--web") == (2, "", already), "no link that ends at once"
    os.kill(page_of(process), signal.SIGKILL)
    wait_until(lambda: not answers(link))
    (tmp_path / "go").touch()
    _, err = process.communicate(timeout=120)
    assert (process.returncode, job()) == (0, JobState.SUCCEEDED)
    assert err.decode() == "rung: the page has ended with exit code -9; the controller goes on\n"


def test_the_page_of_a_controller_that_is_killed_ends(spawn: Spawn, home: Path) -> None:
    """The kernel closes what a killed process had open, and the page sees that its input has ended."""
    page = spawn("web", "--port", "0", "--until-input-ends", stdin=subprocess.PIPE)
    assert page.stdout is not None
    link = page.stdout.readline().decode().split()[-1]
    assert answers(link)
    page.communicate(timeout=60)  # closes the input
    assert page.returncode == 0 and not answers(link)


def test_a_page_that_cannot_be_served_is_one_line_and_no_controller_begins(
    run_rung: RunRung, spawn: Spawn, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        process = spawn("controller", "--web", "--port", port)
        out, err = process.communicate(timeout=120)
    line = f"rung: --port {port}: 127.0.0.1 cannot be used: Address already in use; take another port\n"
    assert (process.returncode, out, err.decode()) == (2, b"", line)
    assert run_rung("controller", "--port", "1")[::2] == (
        2,
        "rung: rung controller: --port is the port of the page; give --web, too\n",
    )
    assert run_rung("controller", "--status", "--web")[0] == 2
    monkeypatch.setattr(web, "NEEDED", ("starlette", "no_such_package"))
    assert run_rung("controller", "--web") == (
        2,
        "",
        "rung: rung controller --web: no_such_package is not installed; install it with: pip install 'rung[web]'\n",
    )
