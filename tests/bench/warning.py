"""Measures the early warning: how long before NaN it comes, how much it misses, and how many alarms are false.

Real trainings are run (see plans.py) and what they print is fed to the detector as lines of a log, beside the published
rules on the same numbers. Thresholds were chosen on other seeds and on half of the tasks.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from tests.bench.figures import SLOW, Figures, by_detector
from tests.bench.lab import Plan, train
from tests.bench.plans import OTHER_TASKS, REPORTED_SEED, TUNED_TASKS, TUNING_SEED, plans, sick_from
from tests.bench.rules import RULES, incidents
from tests.bench.traces import Trace, record

HERE = Path(__file__).parent
CACHE = HERE.parent.parent / ".bench"
Alarms = Callable[[Trace], list[int]]


def methods() -> dict[str, Alarms]:
    """Return our watch and the published rules, by name, as functions from a trace to the steps of its alarms."""

    def published(name: str) -> Alarms:
        return lambda trace: incidents(RULES[name](trace.loss, trace.grad_norm))

    ours: dict[str, Alarms] = {
        "rung": by_detector,
        "rung, loss alone": lambda trace: by_detector(trace, loss_only=True),
    }
    return ours | {name: published(name) for name in RULES}


def trainings(tasks: tuple[str, ...], seed: int) -> list[tuple[Plan, list[Trace]]]:
    """Train all plans of some tasks, or take what the same code has trained before."""
    torch.set_num_threads(1)
    code = b"".join((HERE / name).read_bytes() for name in ("tasks.py", "lab.py", "plans.py"))
    key = hashlib.sha256(code + torch.__version__.encode()).hexdigest()[:16]
    file = CACHE / f"{'-'.join(tasks)}-{seed}-{key}.pickle"
    if file.exists():
        return pickle.loads(file.read_bytes())
    done = []
    for plan in plans(tasks):
        if sys.stderr.isatty():
            print(f"\r{plan.name:50s}\r", end="", file=sys.stderr, flush=True)
        done.append((plan, train(plan, seed)))
    CACHE.mkdir(exist_ok=True)
    file.write_bytes(pickle.dumps(done))
    return done


def measure(done: Sequence[tuple[Plan, list[Trace]]], alarms: Alarms) -> Figures:
    figures = Figures()
    for sick, trace in each(done):
        figures.take(trace, sick, alarms(trace))
    return figures


def each(done: Sequence[tuple[Plan, list[Trace]]]) -> Iterator[tuple[int | None, Trace]]:
    """Yield every training with the step of its fault, or None if it is healthy."""
    for plan, traces in done:
        for trace in traces:
            yield sick_from(plan) if plan.fault else None, trace


def show(title: str, table: dict[str, Figures]) -> None:
    print(f"\nEarly warning: {title}")
    _row("", "median lead", "caught before NaN", "ruined, caught", "false per 1,000")
    _row(*["---"] * 5)
    for name, figures in table.items():
        _row(name, *figures.row())


def _row(name: str, *cells: str) -> None:
    print(f"| {name:32s} | " + " | ".join(f"{cell:>17s}" for cell in cells) + " |", flush=True)


def main(words: Sequence[str] = ()) -> None:
    began = time.process_time()
    if "--tuning" in words:
        collections = [("what the thresholds were chosen on", TUNED_TASKS, TUNING_SEED)]
    else:
        collections = [
            ("other seeds of the tasks that the thresholds were chosen on", TUNED_TASKS, REPORTED_SEED),
            ("tasks that were never looked at", OTHER_TASKS, REPORTED_SEED),
        ]
    whole: dict[str, Figures] = {}
    seen: list[tuple[Plan, list[Trace]]] = []
    runs = 0
    for title, tasks, seed in collections:
        done = trainings(tasks, seed)
        seen += done
        runs += sum(len(traces) for _, traces in done)
        table = {name: measure(done, alarms) for name, alarms in methods().items()}
        show(f"{title} ({', '.join(tasks)})", table)
        whole = {name: whole.get(name, Figures()) + figures for name, figures in table.items()}
    show("all of them", whole)
    ours = whole["rung"]
    if "--record" in words:
        record(each(seen))
    print(
        f"{runs} trainings, {ours.healthy_steps:,} healthy steps, {len(ours.leads)} slow divergences to NaN, "
        f"{ours.ruined} runs ruined without NaN, {ours.sudden} broken within {SLOW} steps of leaving their course "
        f"(not counted: no time to tell); {time.process_time() - began:.0f} s of one core"
    )
