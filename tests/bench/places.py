"""Measures what the cure of one place costs: a GPT in FP16 with four overflows, each cured by Rung, and each fixed.

`python -m tests.bench places` runs them on the GPU of this machine, or in a small size on the CPU.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.bench.overflowing_gpt import FAULTS
from tests.field.jobfile import MEASURED
from tests.field.runs import Runs
from tests.field.usage import of_last_attempt

SCRIPT = Path(__file__).parent / "overflowing_gpt.py"
HEAD = ("overflow", "rungs", "relaunches", "last loss", "fixed", "ms a step", "fixed", "ratio", "GiB", "fixed")


def main(_options: Sequence[str] = ()) -> None:
    import torch

    size = "gpu" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(Path(folder) / "home", {})
        files = [job_file(Path(folder), fault, size, fixed) for fault in FAULTS for fixed in (False, True)]
        with runs.controlled():
            found = {file.stem: history for file, history in runs.each(files, at_once=1)}
        device = torch.cuda.get_device_name() if size == "gpu" else "the CPU"
        print(f"the cure of one place on {device}, torch {torch.__version__}")
        for line in (HEAD, *(row(fault, found[fault], found[f"{fault}-fixed"]) for fault in FAULTS)):
            print("| " + " | ".join(line) + " |")


def job_file(folder: Path, fault: str, size: str, fixed: bool) -> Path:
    """Write the job of one overflow, or of its fixed form, and return its file."""
    name = f"{fault}-fixed" if fixed else fault
    spec = {
        "name": name,
        "run": f"python {SCRIPT} {fault} --size {size} --out {{checkpoint_dir}}{' --fixed' if fixed else ''}",
        "knobs": {"mode": "zero-edit"},
        "checkpoint": {"pattern": "step_*.pt"},
        "envs": dict(MEASURED),
    }
    work = folder / name
    work.mkdir()
    file = work / f"{name}.yaml"
    file.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    return file


def row(fault: str, cured: Mapping[str, Any], fixed: Mapping[str, Any]) -> tuple[str, ...]:
    """Return one line of the table; a job that did not end well shows its state."""
    ours, theirs = of_last_attempt(cured), of_last_attempt(fixed)
    rungs = ", ".join(event for event in rungs_of(cured)) or "none"
    state = "" if cured["job"]["state"] == "SUCCEEDED" else f" ({cured['job']['state']})"
    begin = (fault, rungs + state, str(len(cured["attempts"]) - 1), last_loss(cured), last_loss(fixed))
    if not ours or not theirs:
        return (*begin, "-", "-", "-", "-", "-")
    times = [1000 * each["seconds"] for each in (ours, theirs)]
    sizes = [f"{each['gpu_bytes'] / 2**30:.2f}" for each in (ours, theirs)]
    return (*begin, f"{times[0]:.1f}", f"{times[1]:.1f}", f"{times[0] / times[1]:.2f}", *sizes)


def rungs_of(history: Mapping[str, Any]) -> list[str]:
    return [str(attempt["rung"]) for attempt in history["attempts"] if attempt.get("rung")]


def last_loss(history: Mapping[str, Any]) -> str:
    text = Path(history["attempts"][-1]["log"]).read_text(encoding="utf-8", errors="replace")
    losses = [line.split()[3] for line in text.splitlines() if line.startswith("step ")]
    return losses[-1] if losses else "-"
