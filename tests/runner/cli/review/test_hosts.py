"""Tests `rung hosts` with GPUs that are set aside: what it shows, and how a person gives one another chance."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.engine import PROCESS
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.paths import HomePaths
from rung.runner.state.home import make_home
from rung.runner.state.store import Store
from tests.support.places import died, record
from tests.support.stand_in_gpus import stand_in_gpus

RunRung = Callable[..., tuple[int, str, str]]


@pytest.fixture
def uuids(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give this machine two GPUs, and an empty list of hosts."""
    (tmp_path / "hosts.yml").write_text("all:\n  hosts: {}\n", encoding="utf-8")
    monkeypatch.setenv("RUNG_HOSTS", str(tmp_path / "hosts.yml"))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return stand_in_gpus(tmp_path / "bin", 2)


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    make_home(HomePaths(home))
    with closing(Store(home / "rung.db")) as store:
        yield store


def here(uuid: str) -> dict[str, Any]:
    gpus = (Gpu("NVIDIA TITAN RTX", (7, 5), int(uuid[-1]), uuid),)
    return {"host": "localhost", "engine": PROCESS, "gpus": gpus}


def die_here(store: Store, home: Path, uuids: list[str]) -> list[str]:
    """Have two jobs die on the first GPU, and a third on the second one; return their ids."""
    now, (first, second) = time.time(), (here(uuid) for uuid in uuids)
    return record(store, home, [died("a", now - 9, **first), died("b", now - 6, **first), died("c", now - 3, **second)])


def test_what_is_set_aside_is_shown_and_cleared(store: Store, home: Path, uuids: list[str], run_rung: RunRung) -> None:
    first, second, third = die_here(store, home, uuids)
    code, out, _ = run_rung("hosts")
    head, one, other, aside, avoided = out.splitlines()
    assert code == 0 and head.startswith("HOST")
    assert one.endswith("set aside; free") and other.endswith("  free")
    assert aside.startswith("localhost's TITANRTX 0 is set aside until ")
    clear = "(`rung hosts --clear localhost` gives it another chance now)"
    assert f" after cuda_fault in 2 jobs {clear}; jobs {first}, {second}; the last: " in aside
    assert avoided.startswith(f"localhost's TITANRTX 1 is avoided after cuda_fault: by {third} until ")
    assert avoided.endswith("; the last: RuntimeError: CUDA error: uncorrectable ECC error encountered")

    (data,) = json.loads(run_rung("hosts", "--json")[1])
    assert [(each["gpu"], each["jobs"], each["until_at"] is None) for each in data["set_aside"]] == [
        (uuids[0], [first, second], False),
        (uuids[1], [third], True),
    ]
    assert data["set_aside"][0]["says"] == aside
    assert (
        f"{second} set aside: check localhost's TITANRTX 0, then `rung hosts --clear"
        in run_rung("report", "--since", "1h")[1]
    )

    code, out, err = run_rung("hosts", "--clear", uuids[0])
    assert (code, out, err) == (0, "another chance from now on: localhost's TITANRTX 0\n", "")
    (data,) = json.loads(run_rung("hosts", "--json")[1])
    assert [each["gpu"] for each in data["set_aside"]] == [uuids[1]]
    code, out, err = run_rung("hosts", "--clear", "localhost", "--json")
    assert (code, json.loads(out)) == (0, []) and err.startswith("another chance from now on: localhost's TITANRTX 1")
    assert run_rung("hosts")[1].startswith("no hosts yet")


def test_a_name_that_nobody_avoids_is_refused(store: Store, home: Path, uuids: list[str], run_rung: RunRung) -> None:
    assert run_rung("hosts", "--clear", "titan2") == (2, "", "rung: --clear titan2: no job avoids it; nothing is\n")
    die_here(store, home, uuids)
    wrong = run_rung("hosts", "--clear", "titan2")
    assert wrong == (2, "", "rung: --clear titan2: no job avoids it; these are: localhost\n")


def test_without_a_home_there_is_nothing_to_show(uuids: list[str], run_rung: RunRung) -> None:
    assert run_rung("hosts", "--json") == (0, "[]\n", "")
    assert run_rung("hosts", "--clear", "x")[0] == 2
