"""Measures the thresholds of a loss that has blown up: how many healthy and how many blown-up runs are above each.

Healthy are the trainings of plans.py. Blown up are the same tasks with an lr that is too high from the first step on.
A row asks one of the questions of recovery/monitors/levels.py; a column is a multiple of the run's first loss. For
BEFORE_FAULT every step of a healthy run counts, because a fault may come at any of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from statistics import median

import torch

from rung.recovery.monitors import levels
from rung.recovery.monitors.blow_up import EARLY_READINGS, LAST_READINGS, SPENT_READINGS
from rung.recovery.monitors.onset import FIRST_STEPS
from tests.bench.lab import Plan, train
from tests.bench.plans import OTHER_TASKS, RATES, REPORTED_SEED, TUNED_TASKS, healthy
from tests.bench.traces import Trace

MULTIPLES = (2.0, 5.0, 10.0, 20.0, 1e4)
TOO_HIGH = (30, 300, 3000)
# Steps of a run that blows up: it does so at once or not at all.
STEPS = 300
Losses = Sequence[float]


def _early_onset(losses: Losses) -> float:
    return max(losses[1:FIRST_STEPS], default=losses[0])


def _wrecked(losses: Losses) -> float:
    return median(losses[-max(1, len(losses) // 3) :])


def _before_fault(losses: Losses) -> float:
    return losses[-1]


def _early_blow_up(losses: Losses) -> float:
    return sorted(losses[:SPENT_READINGS])[-EARLY_READINGS] if len(losses) >= EARLY_READINGS else losses[0]


def _at_end(losses: Losses) -> float:
    return median(losses[-LAST_READINGS:])


# The loss that each question compares with the first one.
QUESTIONS: dict[str, Callable[[Losses], float]] = {
    "EARLY_ONSET": _early_onset,
    "WRECKED": _wrecked,
    "BEFORE_FAULT": _before_fault,
    "EARLY_BLOW_UP": _early_blow_up,
    "AT_END": _at_end,
}


def _too_high(task: str) -> list[Plan]:
    plain = next(plan for plan in healthy(task) if plan.optimizer == "sgd" and not plan.amp)
    plain = replace(plain, steps=STEPS, schedule="constant", clip=None)
    return [replace(plain, name=f"{task} lr x {times}", lr=times * RATES[task].sgd) for times in TOO_HIGH]


def _ratios(traces: Iterable[Trace], compared: Callable[[Losses], float]) -> list[float]:
    finite = [[loss for loss in trace.loss if math.isfinite(loss)] for trace in traces]
    return [compared(losses) / _first(losses) for losses in finite if losses]


def _every_step(traces: Iterable[Trace]) -> list[float]:
    """Return every loss as a multiple of the first: a fault may come at any step of a healthy run."""
    return [loss / _first(trace.loss) for trace in traces for loss in trace.loss if math.isfinite(loss)]


def _first(losses: Losses) -> float:
    return max(abs(losses[0]), levels.SMALL)


def _show(question: str, well: list[float], ill: list[float]) -> None:
    used = getattr(levels, question)
    for name, ratios in (("healthy", well), ("blown up", ill)):
        cells = (f"{sum(ratio > multiple for ratio in ratios)} of {len(ratios)}" for multiple in MULTIPLES)
        print(
            f"| {question:13s} | {used:7g} | {name:8s} | {max(ratios):9.3g} | " + " | ".join(cells) + " |", flush=True
        )


def main(words: Sequence[str] = ()) -> None:
    torch.set_num_threads(1)
    tasks = (*TUNED_TASKS, *OTHER_TASKS)
    well = [trace for task in tasks for plan in healthy(task) for trace in train(plan, REPORTED_SEED)]
    ill = [trace for task in tasks for plan in _too_high(task) for trace in train(plan, REPORTED_SEED)]
    print("Runs whose loss stands above a multiple of their first loss")
    print("| threshold | used | runs | largest | " + " | ".join(f"x {multiple:g}" for multiple in MULTIPLES) + " |")
    print("| --- | --- | --- | --- | " + " | ".join("---" for _ in MULTIPLES) + " |")
    for question, compared in QUESTIONS.items():
        healthy_ratios = _every_step(well) if question == "BEFORE_FAULT" else _ratios(well, compared)
        _show(question, healthy_ratios, _ratios(ill, compared))
