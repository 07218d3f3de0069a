"""Tests that records wait for each other, that none waits for long, and that none is lost or written twice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rung_inside.contract import records
from rung_inside.zero_edit.telemetry import waiting_records
from rung_inside.zero_edit.telemetry.waiting_records import updates


def update(step: int) -> tuple[object, ...]:
    return step, None, 0.5, None, None, None, False


def lines(*steps: int) -> str:
    return "".join(f"rung| step step={step} loss=0.5 skipped=0\n" for step in steps)


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A log, and records that wait as where they are installed."""
    path = tmp_path / "log"
    path.touch()
    monkeypatch.setenv("RUNG_LOG", str(path))
    monkeypatch.setattr(records, "_take_waiting", [str])
    monkeypatch.setattr(os, "_exit", os._exit)
    monkeypatch.setattr(os, "register_at_fork", os.register_at_fork)
    waiting_records.install(torch)
    yield path
    updates.clear()


def test_they_are_written_together_in_their_order(log: Path) -> None:
    updates.extend([update(1), update(2)])
    assert log.read_text() == ""
    waiting_records.write()
    waiting_records.write()
    assert log.read_text() == lines(1, 2)


def test_any_other_record_comes_after_them(log: Path) -> None:
    updates.extend([update(1), update(2)])
    records.emit("saved", file="a.pt")
    assert log.read_text() == lines(1, 2) + "rung| saved file=a.pt\n"


def test_none_waits_for_long(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [50.0]
    monkeypatch.setattr(records, "time", SimpleNamespace(monotonic=lambda: now[0]))
    records.emit("saved", file="a.pt")
    waiting_records.add(update(1))
    assert "step" not in log.read_text()
    now[0] += waiting_records.LONGEST
    waiting_records.add(update(2))
    assert log.read_text().endswith(lines(1, 2))
    for step in range(3, 2 + waiting_records.MOST):
        waiting_records.add(update(step))
    assert log.read_text().endswith(lines(1, 2))
    waiting_records.add(update(10))
    assert log.read_text().endswith(lines(*range(1, 11)))


def test_another_rank_than_the_first_writes_none(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    updates.append(update(1))
    waiting_records.write()
    assert log.read_text() == "" and not updates


def test_a_process_writes_its_own_at_its_end_and_not_those_of_its_parent(log: Path) -> None:
    updates.append(update(1))
    child = os.fork()
    if not child:
        updates.append(update(2))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert log.read_text() == lines(2)
    waiting_records.write()
    assert log.read_text() == lines(2, 1)
