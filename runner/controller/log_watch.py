"""Says what the log of an attempt means for the attempt: its progress, its fault, and what its end means.

Changes no state and stops nothing. `LogWatch` reads the log; a new controller comes to the same conclusions.
"""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rung.jobs.job import Attempt
from rung.jobs.model.engine import PlacedBy
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.hands import SILENT
from rung.jobs.site.settings import Asked
from rung.jobs.spec.job_spec import Success
from rung.recovery.logs.line_reader import MARK
from rung.recovery.logs.metric_names import is_setting
from rung.recovery.logs.progress import Progress
from rung.recovery.monitors.learning import healthy_level, was_falling
from rung.recovery.trials.own_run import last_readings
from rung.runner.log_reading.watch import LogWatch
from rung.runner.seams.engine import Observation, Presence, Request

# So many losses in a log before any record from inside: by its first updates zero-edit has written several.
SILENT_READINGS = 8
__all__ = ["AttemptView", "LogWatch", "fault_at_end", "no_update", "shortfall", "with_end"]
__all__ += ["is_same", "with_fault", "with_progress", "with_start"]

AFTER_EXCEPTION = "the exit code is 0, but no loss and no held-out value came after this exception"


@dataclass
class AttemptView:
    """What the controller keeps in memory about one attempt; all of it can be read again."""

    number: int
    watch: LogWatch
    request: Request
    # What its engine was last asked and when; None: it is to be asked at once.
    asked_for: tuple[object, ...] | None = None
    asked_at: float = -math.inf
    not_taken_reported: bool = False
    # How much of the log has been read when its progress was recorded last.
    recorded: int = -1


# Of all the numbers in a log, these get a line in the history.
HELD_OUT = re.compile(r"(?:val|valid|validation|eval|test|dev)[_/ -].*", re.IGNORECASE)


def _measured(values: Mapping[str, float], success: Success | None) -> dict[str, float]:
    wanted = success.metric if success else None
    return {name: value for name, value in values.items() if name == wanted or _is_result(name)}


def _is_result(name: str) -> bool:
    return HELD_OUT.fullmatch(name) is not None and not is_setting(name)


def with_progress(attempt: Attempt, watch: LogWatch, success: Success | None, now: float) -> Attempt:
    """Return the attempt with the progress seen in its log so far."""
    # Its dictionaries are copies already.
    progress = watch.detector.progress
    return changed(
        attempt,
        effective=progress.effective,
        saturation=progress.saturation,
        hands=_hands(watch, progress),
        not_whole=progress.not_whole,
        resumed_step=progress.resumed_step,
        first_step=progress.first_step,
        furthest_step=progress.furthest_step,
        total_steps=progress.total,
        loss=progress.loss,
        first_loss=watch.detector.history.first_loss,
        metrics=_measured(progress.values, success),
        latest=progress.latest,
        throughput=progress.throughput,
        saved=progress.saved,
        links=watch.links,
        progress_at=attempt.progress_at or (now if progress.step is not None or progress.loss is not None else None),
    )


def changed(attempt: Attempt, **fields: Any) -> Attempt:
    """Return what `replace` returns, in a fraction of its time: this is done once a second for every run."""
    copy = object.__new__(Attempt)
    copy.__dict__.update(attempt.__dict__, **fields)
    return copy


def is_same(one: Attempt, other: Attempt) -> bool:
    """Return what `==` returns, in a fraction of its time: that makes two tuples of all fields first."""
    return one.__dict__ == other.__dict__


def _hands(watch: LogWatch, progress: Progress) -> str | None:
    """Return whether Rung has hands in the job; a log with losses and without any record shows that it has none."""
    if watch.mode == "flags" or progress.hands is not None or progress.effective:
        return progress.hands
    return SILENT if watch.detector.history.count >= SILENT_READINGS else None


def with_fault(attempt: Attempt, fault: Fault, watch: LogWatch) -> Attempt:
    """Return the attempt with its fault, and the level of the loss before it as the baseline for a cure."""
    history, began = watch.detector.history, fault.began
    if began is None:
        return replace(attempt, fault=fault)
    diverged = fault.kind is FaultKind.DIVERGENCE
    return replace(
        attempt,
        fault=fault,
        healthy_loss=healthy_level(history, began),
        was_falling=was_falling(history, began),
        readings=last_readings(history, history.last_step or 0) if diverged else (),
    )


def with_start(attempt: Attempt, observation: Observation, asked: Asked | None, at: float) -> Attempt:
    """Return an attempt with its start: at a site with the node and the GPUs that it got, and what was asked for."""
    begun = replace(attempt, started_at=observation.started_at or at)
    if attempt.engine.placed_by is not PlacedBy.SITE:
        return begun
    # Without a node there was nobody who could have shown them.
    wanted, nodes = (asked.gpu_text if observation.node else None, asked.nodes) if asked else (None, 1)
    return replace(begun, node=observation.node, nodes=nodes, gpus=observation.gpus, gpus_asked=wanted)


def with_end(attempt: Attempt, observation: Observation, *, stopped: bool, at: float) -> Attempt:
    """Return an attempt with how it ended; `stopped`: because Rung stopped it."""
    ended_by = observation.ended_by if not stopped and observation.ended_by in attempt.engine.ends else None
    return replace(attempt, exit_code=observation.exit_code, ended_at=observation.ended_at or at, ended_by=ended_by)


def fault_at_end(observation: Observation, watch: LogWatch) -> Fault | None:
    """Return the fault that ended an attempt; None if it finished."""
    clean = observation.exit_code == 0
    fault = watch.decided or watch.detector.first_fault(ended=True, clean_exit=clean)
    # A run that exits with 0 has survived the errors in its log, unless its numbers are bad or one ended the training.
    if fault is not None and (not clean or fault.kind in watch.fails_clean_exit):
        return fault
    if clean:
        exception = watch.detector.ending_exception()
        if exception is not None:
            return replace(exception, note=exception.note or AFTER_EXCEPTION)
        idle = no_update(watch.detector.progress, watch.mode)
        return Fault(FaultKind.UNKNOWN_EXIT, idle, step=watch.detector.progress.step) if idle else None
    step = watch.detector.progress.step
    last = next((line for line in reversed(watch.detector.tail) if _shows_something(line)), "the log is empty")
    if observation.presence is Presence.LOST:
        return Fault(FaultKind.INFRA_FAULT, f"{observation.detail}; last line: {last}", step=step)
    if observation.signal is not None:
        known = {each.value: each.name for each in signal.Signals}
        name = known.get(observation.signal, f"signal {observation.signal}")
        return Fault(FaultKind.INFRA_FAULT, f"killed by {name} from outside; last line: {last}", step=step)
    if observation.exit_code != 0:
        return Fault(FaultKind.UNKNOWN_EXIT, f"exit code {observation.exit_code}; last line: {last}", step=step)
    return None


def no_update(progress: Progress, mode: str) -> str | None:
    """Return why a run with exit code 0 is no success: it made no update. None where nothing counts the updates."""
    # One that resumes at its last step has nothing more to do.
    if mode == "flags" or progress.updates != 0 or progress.resumed_step:
        return None
    return "exit code 0, and not one update of an optimizer was seen from inside"


def _shows_something(line: str) -> bool:
    """Return whether a line shows what the job did: no line of Rung's own, such as a note, and not only signs."""
    return not line.startswith("rung: ") and MARK not in line and any(sign.isalnum() for sign in line)


def shortfall(success: Success | None, attempt: Attempt) -> str | None:
    """Return what an attempt with exit code 0 lacks for a success, or None."""
    if success is None:
        return None
    bound = f"below {success.below:g}" if success.below is not None else f"above {success.above:g}"
    value = attempt.metrics.get(success.metric)
    if value is None:
        return f"it never reported {success.metric}, which must be {bound}"
    good = value < success.below if success.below is not None else value > (success.above or 0.0)
    return None if good else f"{success.metric} is {value:g}, not {bound}"
