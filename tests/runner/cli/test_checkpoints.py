"""Tests `rung checkpoints`, and the note at the launch of a job without checkpoints."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import save_file

from rung.jobs.job import Attempt
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.cli.checkpoints import size_text
from rung.runner.state.store import Store

RunRung = Callable[..., tuple[int, str, str]]


def stored(home: Path, *attempts: Attempt) -> str:
    home.mkdir(exist_ok=True)
    store = Store(home / "rung.db")
    with store.transaction():
        spec = {"name": "a", "run": f"{python(home)} x.py --resume {{checkpoint}}", "checkpoint": {"pattern": "*"}}
        job = store.add_job(JobSpec.model_validate(spec), home, at=1.0)
        for attempt in attempts:
            store.put_attempt(attempt)
        if len(attempts) > 1:
            store.add_event(job.id, 2, "set_aside", {"files": ["step_50.pt"], "because": "newer"}, at=1.0)
    store.close()
    return job.id


def python(home: Path) -> Path:
    """Return the Python of the job: it adds a line to a file each time it runs."""
    script = home / "python"
    script.write_text(f'#!/bin/sh\necho >> {home}/runs\nexec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return script


def an_attempt(number: int, **fields: Any) -> Attempt:
    return Attempt("a-1", number, "localhost", Knobs(), None, "", started_at=100.0 * number, **fields)


def written(path: Path, at: float) -> None:
    os.utime(path, (at, at))


@pytest.fixture
def job(home: Path) -> str:
    """Return a job with checkpoints of several kinds and verdicts."""
    could_not = Fault(FaultKind.UNKNOWN_EXIT, "exit code 1; last line: EOFError: Ran out of input")
    first = an_attempt(1, ended_at=190.0, furthest_step=60, saved={"model_a": 20})
    second = an_attempt(2, resumed_from="step_40.pt", planned_step=40, fault=could_not)
    name = stored(home, first, second)
    folder = home / "jobs" / name / "checkpoints"
    folder.mkdir(parents=True)
    for step, value in ((40, 1.0), (30, float("nan"))):
        torch.save({"step": step, "w": torch.full((5,), value)}, folder / f"step_{step}.pt")
        written(folder / f"step_{step}.pt", 100.0 + step)
    (folder / "model_a").mkdir()
    save_file({"w": torch.ones(3)}, folder / "model_a" / "model.safetensors")
    (folder / "model_a" / "training_args.bin").write_bytes(b"x")
    aside = home / "jobs" / name / ".set-aside" / "attempt-2"
    aside.mkdir(parents=True)
    torch.save({"step": 50, "w": torch.ones(3)}, aside / "step_50.pt")
    return name


def test_every_checkpoint_is_listed_with_its_verdict_and_its_history(job: str, run_rung: RunRung, home: Path) -> None:
    code, out, err = run_rung("checkpoints", "a", "--json")
    rows = json.loads(out)
    assert (code, err) == (0, "")
    assert [(row["name"], row["step"], row["kind"], row["verdict"], row["look"]) for row in rows] == [
        ("step_50.pt", 50, "torch", "healthy", "sampled"),
        ("step_40.pt", 40, "torch", "quarantined", "sampled"),
        ("step_30.pt", 30, "torch", "poisoned", "sampled"),
        ("model_a", 20, "folder", "unfinished", "sampled"),
    ]
    assert rows[0]["where"] == "localhost, set aside before attempt 2"
    assert (rows[1]["resumed_by"], rows[1]["why"]) == ([2], "attempt 2 could not load it")
    assert rows[2]["why"] == "w is not finite" and "trainer_state.json" in rows[3]["why"]
    # The verdicts are stored: the next list verifies nothing.
    runs = (home / "runs").read_text()
    code, out, _ = run_rung("checkpoints", job)
    assert (home / "runs").read_text() == runs
    lines = out.splitlines()
    assert code == 0 and lines[0].split()[:3] == ["CHECKPOINT", "STEP", "KIND"] and len(lines) == 5
    assert "quarantined" in lines[2] and "attempt 2 could not load it" in lines[2]
    # A sampled verdict does not count as a full one.
    store = Store(home / "rung.db")
    assert all(name.endswith("~sampled") for name in store.verdicts(job))
    store.close()


def test_a_job_without_checkpoints_prints_a_note_and_an_unknown_job_is_an_error(run_rung: RunRung, home: Path) -> None:
    name = stored(home)
    assert run_rung("checkpoints", name)[:2] == (0, f"{name} has not been started, so it has no checkpoints yet\n")
    assert json.loads(run_rung("checkpoints", name, "--json")[1]) == []
    code, out, err = run_rung("checkpoints", "nobody")
    assert (code, out) == (2, "") and "there is no job 'nobody'" in err and len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("fields", "warned"),
    [
        ({"run": "python t.py"}, True),
        ({"run": "python t.py --resume {checkpoint}"}, False),
        ({"run": "python t.py --out {checkpoint_dir}"}, False),
        ({"run": "python t.py", "envs": {"CKPT": "{checkpoint}"}}, False),
        ({"run": "python t.py", "checkpoint": {"dir": "/data/ckpt"}}, False),
        ({"run": "python t.py", "knobs": {"mode": "inside"}}, False),
        ({"run": "python t.py", "knobs": {"mode": "zero-edit"}}, False),
    ],
)
def test_the_launch_of_a_job_without_checkpoints_prints_a_note(
    run_rung: RunRung, tmp_path: Path, fields: dict[str, Any], warned: bool
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump({"name": "b", **fields}))
    code, out, _ = run_rung("launch", file)
    assert code == 0 and ("every relaunch begins at step 0" in out) is warned
    code, out, err = run_rung("launch", file, "--json")
    assert json.loads(out)["name"] == "b" and ("note: b" in err) is warned


def test_sizes_are_short_texts() -> None:
    assert [size_text(size) for size in (0, 900, 2048, 50 << 20, 3 << 40)] == [
        "0 B",
        "900 B",
        "2.0 KiB",
        "50 MiB",
        "3.0 TiB",
    ]
