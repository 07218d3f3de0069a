"""Tests that jobs on this machine wait for slots: one job for each GPU, and a number of jobs without one."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.event import EventKind
from rung.runner.state.store import Store
from rung.runner.views.queue import queue
from tests.flow.conftest import Lab
from tests.support.stand_in_gpus import stand_in_gpus

# Appended in one write each, so that the order of the lines is the order in which it happened.
NOTE = 'echo "{what} $RUNG_JOB ${{CUDA_VISIBLE_DEVICES-all}}" >> notes'
WAIT = "while [ ! -e go ]; do sleep 0.02; done"
GPU = {"resources": {"gpu": "TITANRTX"}}
# Its loss is NaN from step 255 on, unless the lr is lowered.
TRAINING = """
import os, signal, sys, time

def note(what):
    with open("notes", "a") as notes:
        notes.write(f"{what} {os.environ['RUNG_JOB']} {os.environ['CUDA_VISIBLE_DEVICES']}\\n")

def stopped(*_):
    note("end")
    os._exit(143)

signal.signal(signal.SIGTERM, stopped)
note("start")
for step in range(1, 501):
    print(f"step {step} loss", "nan" if float(sys.argv[1]) > 0.01 and step >= 255 else 2 * 0.999**step, flush=True)
    time.sleep(0.001)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
note("end")
"""

Wait = Callable[..., Any]


@pytest.fixture
def gpus(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Give this machine two stand-in GPUs and slots for two jobs without one."""
    monkeypatch.setenv("PATH", f"{lab.folder}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("RUNG_MAX_PARALLEL", "2")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    yield stand_in_gpus(lab.folder / "bin", 2)
    (lab.folder / "go").touch()  # whatever still runs ends


def write(lab: Lab, name: str, ending: str = "exit 0", **fields: Any) -> Path:
    """Write a job that notes its start and its end, and ends when the file `go` is there."""
    script = "; ".join([NOTE.format(what="start"), "echo step 1 loss 0.5", WAIT, NOTE.format(what="end"), ending])
    file = lab.folder / f"{name}.yaml"
    file.write_text(json.dumps({"name": name, "run": ["sh", "-c", script], **fields}), encoding="utf-8")
    return file


def notes(lab: Lab) -> list[list[str]]:
    file = lab.folder / "notes"
    return [line.split() for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def started(lab: Lab) -> list[str]:
    return [job for what, job, _ in notes(lab) if what == "start"]


def rows(lab: Lab) -> list[dict[str, Any]]:
    """Return what `rung queue --json` prints, without a new process."""
    with closing(Store(lab.paths.store)) as store:
        return queue(store, time.time())


def leases(lab: Lab) -> dict[str, str]:
    with closing(Store(lab.paths.store)) as store:
        return {lease.gpu: lease.job_id for lease in store.leases()}


def placed(lab: Lab) -> list[str]:
    """Return the jobs in the order in which they got their slots."""
    with closing(Store(lab.paths.store)) as store:
        return [event.job_id for event in store.events() if event.kind == EventKind.DECIDED]


@contextmanager
def controlled(lab: Lab) -> Iterator[None]:
    """Run a controller, and kill it at the end."""
    process = lab.controller()
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_thirty_jobs_share_two_gpus(lab: Lab, gpus: list[str], wait_until: Wait) -> None:
    jobs = [lab.submit(write(lab, f"job{number}", **GPU)) for number in range(1, 31)]
    with controlled(lab):
        wait_until(lambda: len(started(lab)) == 2)
        wait_until(lambda: all(row["reason"].startswith("waits for a TITANRTX: ") for row in rows(lab)[2:]))
    held = leases(lab)
    assert sorted(held) == gpus and sorted(held.values()) == jobs[:2]
    table = lab.rung("queue").splitlines()
    assert max(map(len, table)) <= 80 and len(table) == 31
    assert all(re.match(r"job\d+-\d+ +QUEUED +\S+ .*waits for a TITANRTX: ", line) for line in table[3:]), table

    # Another controller, after the first was killed: nothing is leased or started twice.
    with controlled(lab):
        lab.submit(write(lab, "last", **GPU))
        wait_until(lambda: rows(lab)[30]["reason"].startswith("waits for a TITANRTX: "))
        assert leases(lab) == held and sorted(started(lab)) == jobs[:2]
        (lab.folder / "go").touch()
        wait_until(lambda: all(row["state"] == "SUCCEEDED" for row in rows(lab)))
    assert leases(lab) == {}
    assert placed(lab) == [*jobs, "last-31"]
    for gpu in gpus:
        here = [(what, job) for what, job, visible in notes(lab) if visible == gpu]
        ran = [job for what, job in here if what == "start"]
        assert here == [(what, job) for job in ran for what in ("start", "end")]
        assert [int(job.rpartition("-")[2]) for job in ran] == sorted(int(job.rpartition("-")[2]) for job in ran)
    assert len(notes(lab)) == 62


def test_jobs_without_a_gpu_have_their_own_slots(lab: Lab, gpus: list[str], wait_until: Wait) -> None:
    jobs = [lab.submit(write(lab, f"cpu{number}")) for number in range(1, 5)]
    waits = "waits for a slot: localhost runs 2 of at most 2 without a GPU"
    with controlled(lab):
        wait_until(lambda: len(started(lab)) == 2)
        wait_until(lambda: [row["reason"] for row in rows(lab)[2:]] == [waits, waits])
        planned = json.loads(lab.rung("launch", "--dryrun", "--json", str(write(lab, "fifth"))))
        assert (planned["host"], planned["waits"], planned["gpus"]) == ("localhost", waits, [])
        assert f"slot  none now: {waits}" in lab.rung("launch", "--dryrun", str(lab.folder / "fifth.yaml"))
        # A job with a GPU goes past them.
        beside = write(lab, "beside", **GPU)
        assert f"slot  TITANRTX 0 ({gpus[0]})" in lab.rung("launch", "--dryrun", str(beside))
        job = lab.submit(beside)
        wait_until(lambda: job in started(lab))
        assert sorted(started(lab)) == sorted([*jobs[:2], job])
        (lab.folder / "go").touch()
        wait_until(lambda: all(row["state"] == "SUCCEEDED" for row in rows(lab)))
    assert placed(lab) == [*jobs[:2], job, *jobs[2:]]
    assert {(job, visible) for what, job, visible in notes(lab)} == {(each, "all") for each in jobs} | {(job, gpus[0])}


def test_a_job_keeps_its_gpu_while_it_recovers_and_leaves_it_at_its_end(
    lab: Lab, gpus: list[str], wait_until: Wait
) -> None:
    stand_in_gpus(lab.folder / "bin", 1)
    (lab.folder / "go").touch()
    broken = lab.submit(write(lab, "broken", "exit 3", **GPU))
    second = lab.submit(write(lab, "second", **GPU))
    with controlled(lab):
        wait_until(lambda: [row["state"] for row in rows(lab)] == ["FAILED", "SUCCEEDED"])
    assert started(lab) == [broken, broken, second]
    assert [attempt["gpus"][0]["uuid"] for attempt in lab.history(broken)["attempts"]] == [gpus[0]] * 2
    assert leases(lab) == {}
    (lab.folder / "go").unlink()
    lab.rung("retry", broken)
    with controlled(lab):
        wait_until(lambda: started(lab)[3:] == [broken])
        assert leases(lab) == {gpus[0]: broken}
        lab.rung("cancel", broken)
        wait_until(lambda: rows(lab)[0]["state"] == "CANCELLED")
    assert leases(lab) == {}


def test_trials_take_no_slot_beside_that_of_their_job(lab: Lab, gpus: list[str]) -> None:
    (lab.folder / "train.py").write_text(TRAINING, encoding="utf-8")
    file = lab.folder / "trials.yaml"
    recovery = {"trials": {"steps": 100, "cost": "100%"}}
    spec = {"name": "trials", "run": "python train.py {lr} --clip={clip}", "knobs": {"lr": 0.1}, "recovery": recovery}
    file.write_text(json.dumps({**spec, **GPU}), encoding="utf-8")
    found = lab.run(file)
    tried = [attempt["trial"] for attempt in found["attempts"] if attempt["trial"]]
    assert found["job"]["state"] == "SUCCEEDED" and len(tried) >= 2
    # The second GPU is free all the time.
    assert {gpu for *_, gpu in notes(lab)} == {gpus[0]}
    assert [what for what, *_ in notes(lab)] == ["start", "end"] * len(found["attempts"])
