"""The regimens: ways to treat a failing training, each run with the real script in its own processes."""

from __future__ import annotations

import atexit
import functools
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests import pace
from tests.gauntlet.case import CONFIG, WORK, Case
from tests.gauntlet.judging import REFERENCE, Result, value_in

BIN = Path(sys.executable).parent
INSIDE = Path(__file__).resolve().parents[2] / "jobs" / "inside"
TRIES = 8
# A run that takes longer has failed.
SECONDS = 1800
STEP = re.compile(r"^rung\| step .*?\bstep=(\d+)", re.MULTILINE)
LOSS = re.compile(r"^rung\| step .*?\bloss=(\S+)", re.MULTILINE)
OWN_LR = re.compile(r"^rung\| knobs .*?\blr=(\S+)", re.MULTILINE)
NUMBER = re.compile(r"(\d+)")
# The package and the one thing it needs that the project does not have.
ARC = ("arc-training==5.2.0.post1", "scipy==1.17.1")
SIXTEEN = ("amp_fp16", "native_fp16", "bf16")


@dataclass(frozen=True)
class Trial:
    """A case to run at `times` its steps, in its own folder."""

    case: Case
    times: int
    folder: Path

    @property
    def steps(self) -> int:
        return self.case.steps * self.times

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"


@dataclass(frozen=True)
class Run:
    """One process of a script: its exit code, its output and its time."""

    exit_code: int
    log: str
    seconds: float

    @property
    def well(self) -> bool:
        return self.exit_code == 0

    @property
    def value(self) -> float | None:
        return value_in(self.log)

    @property
    def last_line(self) -> str:
        lines = [line for line in self.log.splitlines() if line.strip() and not line.startswith("rung|")]
        return lines[-1][:200] if lines else ""

    def furthest(self, otherwise: int) -> int:
        found = STEP.findall(self.log)
        return int(found[-1]) if found else otherwise


def _run(trial: Trial, words: tuple[str, ...] = (), knobs: Mapping[str, Any] | None = None) -> Run:
    """Run a script without Rung, or with knobs set on its live objects."""
    _write_config(trial, trial.folder)
    own = [str(trial.case.script), "--steps", str(trial.steps), "--out", str(trial.checkpoints)]
    command = [str(BIN / "python"), *own, *trial.case.flags.split(), *words]
    if trial.case.memory and "--fixed" not in words:
        command = [str(BIN / "python"), "-c", LIMITED, trial.case.memory.removesuffix("g"), *command]
    began = time.monotonic()
    done = subprocess.run(
        command,
        env=_env(trial, words, knobs),
        cwd=trial.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        start_new_session=True,  # as Rung starts them: some kernels divide the processor by session
    )
    return Run(done.returncode, done.stdout, time.monotonic() - began)


def _env(trial: Trial, words: tuple[str, ...], knobs: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the environment of a script without Rung, or with knobs set on its live objects."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("RUNG_")}
    env |= {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    if "--arc" in words:
        env["PYTHONPATH"] = str(arc_folder())
    if knobs is not None:
        mode = "inside" if trial.case.attached else "zero-edit"
        env |= {"RUNG_MODE": mode, "RUNG_KNOBS": json.dumps(knobs)}
    if knobs is not None or trial.case.attached:
        newest = words[words.index("--resume") + 1] if "--resume" in words else ""
        env |= {"PYTHONPATH": str(INSIDE), "RUNG_CHECKPOINT": newest}
        env |= {"RUNG_CHECKPOINT_DIR": str(trial.checkpoints), "RUNG_CHECKPOINT_PATTERN": trial.case.pattern}
    return env


def _write_config(trial: Trial, folder: Path) -> None:
    """Write the script's own config file, if it has one."""
    if trial.case.config:
        folder.mkdir(exist_ok=True)
        (folder / CONFIG).write_text(json.dumps(trial.case.config, indent=2), encoding="utf-8")


LIMITED = (
    "import os, resource, sys; size = int(sys.argv[1]) * 2**30; "
    "resource.setrlimit(resource.RLIMIT_DATA, (size, size)); os.execv(sys.argv[2], sys.argv[2:])"
)


def reference(trial: Trial) -> Result:
    """Run the script without its fault, in FP32; a healthy one as it is."""
    run = _run(trial, () if trial.case.healthy else ("--fixed",))
    return _result(trial, REFERENCE, [run], half=0)


def restart(trial: Trial) -> Result:
    """Start the same command again from its newest checkpoint until it ends with exit code 0."""
    runs: list[Run] = []
    while len(runs) < TRIES and not (runs and runs[-1].well):
        newest = _newest(trial)
        runs.append(_run(trial, ("--resume", str(newest)) if newest else ()))
    return _result(trial, "restart", runs, half=trial.steps if trial.case.half else 0)


def fp32(trial: Trial) -> Result:
    """Run the script in FP32 from the start."""
    run = _run(trial, knobs={"precision": "fp32"})
    return _result(trial, "fp32", [run], half=0)


def arc(trial: Trial) -> Result:
    """Run the script with the controller of arc-training in its loop, as that package's own page says."""
    run = _run(trial, ("--arc",))
    return _result(trial, "arc", [run], half=trial.steps if trial.case.half else 0)


@functools.cache
def arc_folder() -> Path:
    """Install arc-training beside the project's own packages, for the scripts only, and return its folder."""
    folder = Path(tempfile.mkdtemp(prefix="arc-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), *ARC]
    subprocess.run(command, check=True, timeout=SECONDS)
    return folder


def blind(trial: Trial) -> Result:
    """Add one rung of the ladder after the other, each time from the start, until the losses at the end are finite."""
    runs, knobs = [_run(trial, knobs={})], {}
    own = OWN_LR.search(runs[0].log)
    lr = {"lr": float(own[1]) * 0.1} if own else {}
    rungs: list[dict[str, Any]] = [{"clip": 1.0}, lr, {"growth_interval": 5000}]
    for rung in [*rungs, {"precision": "native_fp16"}, {"precision": "fp32"}]:
        if _looks_well(runs[-1]):
            break
        shutil.rmtree(trial.checkpoints, ignore_errors=True)
        knobs |= rung
        runs.append(_run(trial, knobs=knobs))
    whole = trial.steps if trial.case.half and knobs.get("precision") != "fp32" else 0
    return _result(trial, "blind", runs, half=whole)


def _looks_well(run: Run) -> bool:
    """Return whether a run ended with exit code 0 and finite losses."""
    last = [float(loss) for loss in LOSS.findall(run.log)[-20:]]
    return run.well and run.value is not None and all(map(math.isfinite, [*last, run.value]))


def _newest(trial: Trial) -> Path | None:
    found = list((trial.checkpoints).glob(trial.case.pattern))
    return max(found, key=lambda path: int(NUMBER.findall(path.name)[-1]), default=None)


def _result(trial: Trial, regimen: str, runs: list[Run], *, half: int) -> Result:
    last = runs[-1]
    return Result(
        case=trial.case.name,
        regimen=regimen,
        times=trial.times,
        ended_well=last.well,
        val_loss=last.value,
        launches=len(runs),
        steps_lost=sum(run.furthest(0) for run in runs[:-1]),
        seconds=round(sum(run.seconds for run in runs), 1),
        steps=trial.steps,
        half_steps=half,
        said=last.last_line,
    )


def default(trial: Trial) -> Result:
    """Run the script under Rung with the default ladder."""
    return _rung(trial, "default", {})


def auto(trial: Trial) -> Result:
    """Run the script under Rung with `ladder: auto`."""
    return _rung(trial, "auto", {"ladder": "auto"})


def off(trial: Trial) -> Result:
    """Run the script under Rung with the default ladder and without trials."""
    return _rung(trial, "off", {"trials": "off"})


def on(trial: Trial) -> Result:
    """Run the script under Rung with the default ladder and trials after a fault."""
    return _rung(trial, "on", {"trials": "on"})


def trials(trial: Trial) -> Result:
    """Run the script under Rung with trials, also of a run that ends without a fault and has learned nothing."""
    return _rung(trial, "trials", {"trials": "on", "not_learning": "act"})


def _rung(trial: Trial, regimen: str, recovery: Mapping[str, Any]) -> Result:
    job = trial.folder / "job.yaml"
    job.write_text(yaml.safe_dump(trial.case.job(trial.times, recovery)), encoding="utf-8")
    _write_config(trial, trial.folder / WORK)
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "RUNG_HOME": str(trial.folder / "home")}
    env |= {"OMP_NUM_THREADS": "1", "RUNG_CONTROLLER": "manual"}
    began = time.monotonic()
    with (trial.folder / "followed").open("w") as said:
        pace.run([BIN / "rung", "launch", "-f", str(job)], env=env, stdout=said, stderr=said, usual=SECONDS)
    seconds = time.monotonic() - began
    command = [BIN / "rung", "history", trial.case.name, "--json"]
    done = pace.run(command, env=env, stdout=subprocess.PIPE, text=True, usual=60, check=True)
    return from_history(trial, regimen, json.loads(done.stdout), seconds)


def from_history(trial: Trial, regimen: str, history: Mapping[str, Any], seconds: float) -> Result:
    """Return the result of a trial from the history of its job."""
    attempts = history["attempts"]
    done = [(_done(attempt), _sixteen(trial.case, attempt)) for attempt in attempts]
    last = [attempt for attempt in attempts if not _lost(attempt)][-1]
    return Result(
        case=trial.case.name,
        regimen=regimen,
        times=trial.times,
        ended_well=history["job"]["state"] == "SUCCEEDED",
        val_loss=value_in(Path(last["log"]).read_text(encoding="utf-8", errors="replace")),
        launches=len(attempts),
        steps_lost=sum(attempt["steps_lost"] for attempt in attempts),
        seconds=round(seconds, 1),
        steps=sum(steps for steps, _ in done),
        half_steps=sum(steps for steps, sixteen in done if sixteen),
        said=history["job"]["reason"],
        story=tuple(map(_attempt_line, attempts)),
        said_word=history["job"].get("verdict"),
        trials=sum(attempt.get("trial") is not None for attempt in attempts),
        trial_steps=sum(_tried(attempt) for attempt in attempts if _lost(attempt)),
    )


def _lost(attempt: Mapping[str, Any]) -> bool:
    """Return whether an attempt was a trial that did not win: the run does not go on from it."""
    trial = attempt.get("trial")
    return trial is not None and not trial.get("won")


def _done(attempt: Mapping[str, Any]) -> int:
    resumed = attempt["resumed_step"] if attempt["resumed_step"] is not None else attempt["planned_step"] or 0
    return max(0, (attempt["furthest_step"] or 0) - resumed)


def _tried(attempt: Mapping[str, Any]) -> int:
    """Return the steps of a trial up to its fault or its end.

    What it makes in the split second until it is stopped is a hundred steps here, and none in a real training.
    """
    trial, fault = attempt["trial"], attempt["fault"]
    end = fault["step"] if fault and fault["step"] is not None else trial["until"]
    return max(0, min(_done(attempt), end - trial["start"]))


def _sixteen(case: Case, attempt: Mapping[str, Any]) -> bool:
    precision = attempt["asked"]["precision"]
    return case.half if precision is None else precision in SIXTEEN


def _attempt_line(attempt: Mapping[str, Any]) -> str:
    """Return one attempt in one line: what it changed, how it ended, and its reason."""
    fault = attempt["fault"]
    changed = ", ".join(f"{name} {pair[0]} -> {pair[1]}" for name, pair in attempt["changed"].items())
    came = f"{fault['kind']} at {fault['step']}" if fault else attempt["outcome"]
    start = f"{attempt['number']} {attempt['rung'] or 'as it is'} [{changed}] from {attempt['planned_step'] or 0}"
    trial = attempt.get("trial")
    tried = f" (trial{', won' if trial.get('won') else ''})" if trial else ""
    return f"{start}{tried}: {came}; because {attempt['because']}"


REGIMENS: dict[str, Callable[[Trial], Result]] = {
    "default": default,
    "auto": auto,
    "off": off,
    "on": on,
    "trials": trials,
    "restart": restart,
    "fp32": fp32,
    "blind": blind,
    "arc": arc,
}
