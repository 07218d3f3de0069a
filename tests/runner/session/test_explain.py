"""Tests `rung explain` on logs of any size."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.speed import write_log

RUNG = Path(sys.executable).parent / "rung"
GIGABYTE = 1_000_000_000
# The documented limit: less than 200 MB, whatever the size of the log.
MEMORY = 200_000_000


def limited() -> None:
    # RLIMIT_AS would count what the interpreter merely reserves.
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def explain(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [RUNG, "explain", str(path), "--json", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=limited)


@pytest.fixture(scope="module")
def large_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a log of a gigabyte: a healthy training over and over, and an error in its last line."""
    path = tmp_path_factory.mktemp("log") / "large.log"
    write_log(path, 5_000_000)
    block = path.read_bytes()
    with path.open("wb") as file:
        for _ in range(GIGABYTE // len(block)):
            file.write(block)
        file.write(b"\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    return path


def test_a_gigabyte_is_searched_in_bounded_memory_and_shows_progress(large_log: Path) -> None:
    done = explain(large_log, "--quick")
    # Most lines are left out, so no step is known.
    assert [(fault["fault"], fault["step"]) for fault in json.loads(done.stdout)] == [("oom", None)]
    progress = done.stderr.splitlines()
    assert len(progress) == 10
    assert progress[-1] == f"read {large_log.stat().st_size >> 20} of {large_log.stat().st_size >> 20} MiB"


def test_a_long_log_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write_log(path, 20_000_000)
    with path.open("ab") as file:
        file.write(b"\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    done = explain(path)
    (fault,) = [fault for fault in json.loads(done.stdout) if fault["first_cause"]]
    assert fault["fault"] == "oom"
    assert fault["step"] is not None


def test_a_short_log_is_explained_without_progress(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"step 1 loss 2.5\nRuntimeError: CUDA out of memory\n")
    assert explain(path).stderr == ""


def test_the_log_of_these_tests_is_healthy(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write_log(path, 3_000_000)
    assert json.loads(explain(path).stdout) == []


def said(tmp_path: Path, log: str, *options: str) -> list[str]:
    """Return what `rung explain` says after the faults: what it read, and what Rung would do."""
    path = tmp_path / "log"
    path.write_text(log)
    done = subprocess.run([RUNG, "explain", str(path), *options], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-2:]


STEPS = "".join(f"step {step} loss {3 * 0.99**step:.4f} lr 0.1 val_acc: 0.{step}\n" for step in range(10, 100))


def test_a_healthy_log_says_what_was_read_and_that_nothing_would_be_done(tmp_path: Path) -> None:
    read, action = said(tmp_path, STEPS)
    assert read == "read 90 lines: steps 10 to 99, 90 finite losses, the last 1.109; also lr, val_acc"
    assert action == "Rung would let it run; after an exit code other than 0 it would launch it once more"


@pytest.mark.parametrize(
    ("line", "action"),
    [
        (
            "step 100 loss nan\nstep 101 loss nan\nstep 102 loss nan",
            "about nan_loss Rung would try from the last ",
        ),
        (
            "RuntimeError: value cannot be converted to type at::Half without overflow",
            "about fp16_overflow Rung would ",
        ),
        ("RuntimeError: CUDA error: no kernel image is available for execution", "about image_arch Rung would stop: "),
        (
            "OSError: [Errno 28] No space left on device",
            "about infra_fault Rung would launch it again ",
        ),
    ],
)
def test_a_fault_says_what_would_be_done_about_it(tmp_path: Path, line: str, action: str) -> None:
    read, would = said(tmp_path, f"{STEPS}{line}\n")
    assert would.startswith(action) and read.startswith("read 9")
    if "nan" in line:
        assert "lower_lr" in would and would.endswith("; the losses at equal steps decide")
    (row,) = [row for row in json.loads(explain(tmp_path / "log").stdout) if row["first_cause"]]
    assert would == f"about {row['fault']} Rung would {row['would']}"


def test_an_exception_without_a_name_at_the_end_is_said_and_is_no_finding(tmp_path: Path) -> None:
    traceback = 'Traceback (most recent call last):\n  File "a.py", line 4, in <module>\n    x["a"]\nKeyError: \'a\'\n'
    path = tmp_path / "log"
    path.write_text(STEPS + traceback)
    text = subprocess.run([RUNG, "explain", str(path)], capture_output=True, text=True, check=True).stdout.splitlines()
    assert text[:2] == [
        "no fault that Rung knows",
        "line 94: an exception ended the run, and Rung has no other name for it: KeyError: 'a'",
    ]
    assert text[-1].startswith("about unknown_exit Rung would launch it again ")
    assert json.loads(explain(path).stdout) == []
    assert said(tmp_path, STEPS + traceback + STEPS)[1].startswith("Rung would let it run")
    assert said(tmp_path, STEPS + traceback + "RuntimeError: CUDA out of memory\n")[1].startswith("about oom ")


def test_a_log_without_numbers_and_a_quick_look_say_so(tmp_path: Path) -> None:
    assert said(tmp_path, "hello\nworld")[0].startswith("read 2 lines: no step and no loss, so that only messages ")
    assert said(tmp_path, "loss 0.5\nloss 0.4\nloss 0.3\n")[0].startswith("read 3 lines: no step, 3 finite losses")
    assert said(tmp_path, STEPS, "--quick")[0].startswith("read 90 lines: searched for messages only (--quick)")


def test_names_from_a_log_bring_no_control_codes(tmp_path: Path) -> None:
    lines = said(tmp_path, "".join(f"step {n} loss 1.0 \x1b[2Jevil{n}: 3\n" for n in range(1, 40)))
    assert not any("\x1b" in line for line in lines) and len(lines[0]) < 400


DIVERGES = "".join(f"step {10 * n} loss {loss}\n" for n, loss in enumerate([0.82, 0.9, 40, 5270]))


def test_a_log_without_a_fault_says_what_it_may_show(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(DIVERGES)
    (row,) = json.loads(explain(path).stdout)
    why = "'loss' rose from 0.82 at step 0 to 5270 at step 30; too few readings to act on"
    assert (row["fault"], row["line"], row["step"], row["evidence"]) == ("divergence", 4, 30, "step 30 loss 5270")
    assert row["may_show"] and row["why"] == why and not row["first_cause"] and row["would"] is None
    text = subprocess.run([RUNG, "explain", str(path)], capture_output=True, text=True, check=True).stdout
    assert text.splitlines()[:2] == [
        "no fault that Rung knows",
        f"line 4 may show divergence: {why}: step 30 loss 5270",
    ]


def test_a_fault_that_is_acted_on_is_all_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(DIVERGES + "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    (row,) = json.loads(explain(path).stdout)
    assert row["fault"] == "oom" and not row["may_show"] and row["why"] is None


def test_a_quick_search_looks_at_no_numbers(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(DIVERGES)
    assert json.loads(explain(path, "--quick").stdout) == []
