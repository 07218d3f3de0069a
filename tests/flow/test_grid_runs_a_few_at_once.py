"""Tests that the controller holds the limit of a grid, also one that takes over after a kill."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from rung.runner.state.store import Store
from rung.runner.views.queue import queue
from tests.flow.conftest import Lab

# Appended in one write each, so that the order of the lines is the order in which it happened.
SCRIPT = """
import os, sys, time
def note(what):
    with open("notes", "a") as notes:
        notes.write(f"{what} {os.environ['RUNG_JOB']}\\n")
note("start")
seed, lr = int(sys.argv[1]), float(sys.argv[2])
print("step 1 loss", 5.0, flush=True)
while not os.path.exists("go") and not os.path.exists(f"go{seed}"):
    time.sleep(0.02)
for step in range(2, 21 if seed == 1 else 31):
    print(f"step {step} loss {seed + lr * step:.3f}", flush=True)
note("end")
"""


def notes(lab: Lab) -> list[list[str]]:
    file = lab.folder / "notes"
    return [line.split() for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def rows(lab: Lab) -> list[dict[str, Any]]:
    with closing(Store(lab.paths.store)) as store:
        return queue(store, time.time())


def launch(lab: Lab, *words: str) -> None:
    (lab.folder / "train.py").write_text(SCRIPT)
    spec = {"name": "a", "run": "python train.py {seed} {lr}", "knobs": {"lr": 0.1}, "recovery": {"trials": "off"}}
    (lab.folder / "job.yaml").write_text(json.dumps(spec))
    lab.rung("launch", str(lab.folder / "job.yaml"), *words)


def test_a_controller_that_takes_over_keeps_the_limit(
    lab: Lab, wait_until: Callable[..., Any], monkeypatch: Any
) -> None:
    monkeypatch.setenv("RUNG_MAX_PARALLEL", "8")
    launch(lab, "--grid", "seed=1,2,3,4,5", "--at-once", "2")
    waits = "waits for its group job-grid-1: 2 of at most 2 run"
    controller = lab.controller()
    wait_until(lambda: len(notes(lab)) == 2 and [row["reason"] for row in rows(lab)[2:]] == [waits] * 3)
    controller.kill()
    controller.wait()
    controller = lab.controller()
    try:
        (lab.folder / "go1").touch()
        wait_until(lambda: len(notes(lab)) == 4)  # one has ended, and the next has begun
        wait_until(lambda: [row["reason"] for row in rows(lab)[3:]] == [waits] * 2)
        (lab.folder / "go").touch()
        assert controller.wait(timeout=300) == 0
    finally:
        controller.kill()
        controller.wait()
        (lab.folder / "go").touch()
    assert [row["state"] for row in rows(lab)] == ["SUCCEEDED"] * 5
    running = 0
    for what, _ in notes(lab):
        running += 1 if what == "start" else -1
        assert running <= 2, notes(lab)
    assert sorted(job for what, job in notes(lab) if what == "end") == [f"a-seed-{n}-{n}" for n in range(1, 6)]


def test_jobs_are_compared_at_the_step_that_all_have_reached(lab: Lab) -> None:
    launch(lab, "--grid", "seed=1,2", "--grid", "lr=0.1,0.2")
    (lab.folder / "go").touch()
    lab.rung("controller", "--until-idle")
    data = json.loads(lab.rung("compare", "--group", "job-grid-1", "--json"))
    assert (data["step"], data["metric"], data["differs"]) == (20, None, ["seed", "lr"])
    assert [(job["settings"]["seed"], job["settings"]["lr"], job["loss"]) for job in data["jobs"]] == [
        ("1", "0.1", 3.0), ("1", "0.2", 5.0), ("2", "0.1", 4.0), ("2", "0.2", 6.0),
    ]  # fmt: skip
    assert [job["last_step"] for job in data["jobs"]] == [20, 20, 30, 30]
    table = lab.rung("compare", "--group", "job-grid-1").splitlines()
    assert len(table) == 5 and max(map(len, table)) <= 80, table
