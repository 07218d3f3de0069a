"""Tests the command `rung top`: on a real terminal with a real job that recovers, and where it cannot run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from rung.runner.cli.review import top
from tests.conftest import Ran
from tests.support.terminal import terminal

Rung = Callable[..., Ran]
# NaN at step 30 with the lr of the job file, as soon as the test lets it; with a lower one it waits again, and ends.
SCRIPT = """
import pathlib, sys, time
lr = float(sys.argv[1])
for step in range(1, 61):
    while step == 30 and not pathlib.Path(sys.argv[2], 'second' if lr < 0.01 else 'first').exists():
        time.sleep(0.05)
    print(f"step {step} loss {'nan' if lr > 0.01 and step == 30 else 2 / step}", flush=True)
    if lr > 0.01 and step == 30:
        sys.exit(1)
"""


def test_a_recovery_appears_on_the_terminal_without_a_restart(
    rung: Rung, spawn: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    spec = {
        "name": "fallen",
        "run": f"python train.py {{lr}} {tmp_path}",
        "knobs": {"lr": 0.05},
        "recovery": {"trials": "off", "ladder": ["lower_lr"]},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
    assert rung("launch", tmp_path / "job.yaml").code == 0
    with terminal("top") as shown:
        shown.read_until("nobody watches 1 active job")
        controller = spawn("controller", "--until-idle")
        shown.read_until("RUNNING")
        shown.read_until("▁")
        (tmp_path / "first").touch()
        shown.read_until("lower_lr")
        (tmp_path / "second").touch()
        shown.read_until("SUCCEEDED")
        shown.press("\r")
        shown.read_until("escape back")
        shown.press("q")
        out = shown.read_until("")
    assert "\x1b[?1049h" in out and out.rindex("\x1b[?1049l") > out.rindex("SUCCEEDED")
    assert controller.wait() == 0


def test_without_a_terminal_it_points_at_the_queue(rung: Rung, home: Path) -> None:
    assert rung("top") == Ran(2, "", "rung: rung top: needs a terminal; `rung queue` prints the jobs anywhere\n")
    with terminal("top", code=2, TERM="dumb") as shown:
        assert shown.read_until("").count("\n") == 1


def test_without_a_store_it_says_how_to_submit_a_job(home: Path) -> None:
    with terminal("top", code=2) as shown:
        out = shown.read_until("")
    assert "there is no store yet" in out and out.count("\n") == 1 and not home.exists()


def test_without_its_extra_it_says_how_to_install_it(
    run_rung: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top, "NEEDED", ("no_such_package",))
    monkeypatch.setattr(top, "has_terminal", lambda: True)
    why = "rung: rung top: no_such_package is not installed; install it with: pip install 'rung[top]'\n"
    assert run_rung("top") == (2, "", why)
