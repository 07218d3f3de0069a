"""Makes random small jobs from a seed: the plan of a training, and its job file."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

TRAINING = Path(__file__).with_name("training.py")
SECRET = "CHAOS_TOKEN"
MARK = "CHAOS_RUN"
# Returns what a job file needs where it runs: for the name of the job, its plan and a source of chance.
FieldsThere = Callable[[str, Path, random.Random], dict[str, Any]]
KINDS = ("nan", "overflow", "unscale", "oom", "crash")


def random_plan(chance: random.Random) -> dict[str, Any]:
    """Return what a training does: its steps, its faults, and where it prints bytes that are no text."""
    steps = chance.randint(30, 70)
    faults = [_fault(chance, steps) for _ in range(chance.choice((0, 1, 1, 2)))]
    return {
        "steps": steps,
        "every": chance.randint(3, 10),
        "pace": round(chance.uniform(0.02, 0.1), 3),
        "batch": 32,
        "noise": sorted(chance.sample(range(1, steps), chance.choice((0, 2)))),
        "faults": faults,
    }


def _fault(chance: random.Random, steps: int) -> dict[str, Any]:
    return {
        "kind": chance.choice(KINDS),
        "step": chance.randint(2, steps - 1),
        "code": chance.choice((1, 1, 2, 7)),
        # A loss of NaN does not end every run.
        "goes_on": chance.random() < 0.5,
        "only_fp32": chance.random() < 0.5,
        # One that never goes away is cured by nothing.
        "once": chance.random() < 0.7,
    }


def job_fields(name: str, fields: dict[str, Any], chance: random.Random, mark: str) -> dict[str, Any]:
    """Return the job file; `fields` is what it needs where it runs."""
    words = [*fields["run"], "--dir", "{checkpoint_dir}", "--resume", "{checkpoint}"]
    knobs = ["--clip", "{clip}", "--precision", "{precision}", "--batch", "{batch}", "--accumulation", "{accumulation}"]
    made: dict[str, Any] = {
        **fields,
        "name": name,
        "run": [*words, *knobs],
        "envs": {**fields.get("envs", {}), MARK: mark},
        "secrets": [SECRET],
        "knobs": {"lr": 0.001, "clip": "off", "batch": 32, "accumulation": 1},
        "checkpoint": {"pattern": "step_*.safetensors", **fields.get("checkpoint", {})},
        "recovery": {"trials": "off", "grace": chance.choice((1, 3)), "infra_retries": chance.randint(1, 3)},
    }
    made["recovery"] |= fields.get("recovery", {})
    with_gpu = made.pop("resources", {"gpu": 1})
    if chance.random() < 0.3:
        made["resources"] = with_gpu
    return made


def write_job(folder: Path, fields_there: FieldsThere, seed: int, number: int, mark: str) -> tuple[str, Path]:
    """Write the job file and the plan of the job with this number; return its name and the job file."""
    chance = random.Random(f"{seed} job {number}")
    name = f"chaos{number}"
    plan, file = folder / f"{name}.json", folder / f"{name}.yaml"
    plan.write_text(json.dumps(random_plan(chance)), encoding="utf-8")
    fields = fields_there(name, plan, random.Random(f"{seed} place {number}"))
    file.write_text(yaml.safe_dump(job_fields(name, fields, chance, mark)), encoding="utf-8")
    return name, file
