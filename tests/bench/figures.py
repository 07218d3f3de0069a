"""Counts what a method of early warning did on a training: its alarms, their lead, and those that were false."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from statistics import median

from rung.jobs.model.fault import FaultKind
from rung.recovery.detect.detector import Detector
from rung.recovery.logs.lines import Line
from tests.bench.traces import Trace

# With fewer steps than this between the rise and the first value that is not finite, a divergence is not slow.
SLOW = 20


def lines(trace: Trace, *, loss_only: bool = False) -> Iterable[str]:
    """Yield what a run prints: our records, or a plain line with nothing but step and loss."""
    for index, loss in enumerate(trace.loss):
        if loss_only:
            yield f"step {index + 1} loss {loss:.6f}"
            continue
        scale = f" scale={trace.scale[index]:g} skipped={trace.skipped[index]}" if trace.scale else ""
        norm = f"lr={trace.lr[index]:.4g} grad_norm={trace.grad_norm[index]:.6g}"
        yield f"rung| step step={index + 1} loss={loss:.6g} {norm}{scale}"


def by_detector(trace: Trace, *, loss_only: bool = False) -> list[int]:
    """Return the steps at which the detector, with its defaults, reports a divergence."""
    detector = Detector()
    found = [
        fault
        for number, text in enumerate(lines(trace, loss_only=loss_only), 1)
        for fault in detector.feed(Line(number, text))
    ]
    return [fault.step or 0 for fault in found if fault.kind is FaultKind.DIVERGENCE]


@dataclass
class Figures:
    """What one method did on one collection of trainings."""

    healthy_steps: int = 0
    false_alarms: int = 0
    # Steps between the alarm and the first value that is not finite; 0 where there was no alarm.
    leads: list[int] = field(default_factory=list)
    caught: int = 0
    ruined: int = 0
    ruined_caught: int = 0
    sudden: int = 0

    def take(self, trace: Trace, sick: int | None, alarms: Sequence[int]) -> None:
        """Count one training: `sick` is the step from which it is no longer healthy, None for never."""
        healthy = len(trace.loss) if sick is None else min(sick, len(trace.loss))
        self.healthy_steps += healthy
        self.false_alarms += sum(step <= healthy for step in alarms)
        if sick is None:
            return
        end = trace.broke or len(trace.loss) + 1
        after = [step for step in alarms if healthy < step < end]
        if trace.broke is not None and end - left_course(trace, sick) < SLOW:
            self.sudden += 1
        elif trace.broke is not None:
            self.caught += bool(after)
            self.leads.append(end - after[0] if after else 0)
        elif is_ruined(trace, sick):
            self.ruined += 1
            self.ruined_caught += bool(after)

    def __add__(self, other: Figures) -> Figures:
        return Figures(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def row(self) -> list[str]:
        share = f"{self.caught} of {len(self.leads)}"
        ruined = f"{self.ruined_caught} of {self.ruined}"
        rate = f"{1000 * self.false_alarms / max(self.healthy_steps, 1):.3f}"
        return [f"{median(self.leads or [0]):g}", share, ruined, rate]


def healthy_level(trace: Trace, sick: int) -> tuple[float, float]:
    """Return level and spread of the loss before a run was faulty, or at its best if it was faulty from the start."""
    finite = [loss for loss in trace.loss if abs(loss) < 1e30]
    if sick >= 100:
        best = trace.loss[sick - 100 : sick]
    else:
        best = min((finite[at : at + 50] for at in range(0, max(len(finite) - 50, 1), 25)), key=median)
    level = median(best)
    return level, 1.4826 * median(abs(loss - level) for loss in best)


def left_course(trace: Trace, sick: int) -> int:
    """Return the last step, in hindsight, at which the loss was within its healthy range."""
    level, spread = healthy_level(trace, sick)
    fine = [step for step, loss in enumerate(trace.loss, 1) if loss <= level + 3 * spread]
    return fine[-1] if fine else 0


def is_ruined(trace: Trace, sick: int) -> bool:
    """Return whether a run that stayed finite has lost at least half of what it had learned at its end."""
    level, _ = healthy_level(trace, sick)
    return median(trace.loss[-100:]) > level + 0.5 * max(median(trace.loss[:5]) - level, 0.1 * abs(level))
