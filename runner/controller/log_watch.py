"""Owns following one attempt: reads its log from a cursor, keeps what was seen, and says what an ending means.

Looks and tells; it changes no state and stops nothing. A new controller reads the log again from its start and comes to
the same conclusions, so nothing of this needs to be stored. Memory is bounded whatever the log's length.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rung.jobs.job import Attempt, Job
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.paths import AttemptPaths
from rung.jobs.spec.job_spec import Success
from rung.recovery.decide.incident import incident_after
from rung.recovery.detect.detector import Detector
from rung.recovery.detect.scan import Scan
from rung.recovery.monitors.learning import Judgement, LearningBaseline, Verdict, healthy_level, judge, window_after
from rung.runner.seams.engine import Engine, Observation, Presence

CHUNK = 256 * 1024
# Read at most this much of one job before the others have their turn.
TURN = 4 * 1024 * 1024


class LogWatch:
    """The eyes on one attempt."""

    def __init__(self, engine: Engine, paths: AttemptPaths, job: Job) -> None:
        self._engine = engine
        self._paths = paths
        self._offset = 0
        warning = job.spec.recovery.early_warning
        self.detector = Detector(job.spec.recovery.rules, warning)
        self._scan = Scan(self.detector)
        # A warning that was to stop nothing takes no success away either.
        self.spoilt = SPOILT if warning is None or warning.stop else SPOILT - {FaultKind.DIVERGENCE}

    def read(self) -> bool:
        """Take in what the log has gained; True when there is more to read at once."""
        end = self._offset + TURN
        while self._offset < end:
            chunk = self._engine.read_log(self._paths, self._offset, CHUNK)
            if not chunk:
                return False
            self._offset += len(chunk)
            self._scan.feed(chunk)
        return True

    def read_to_end(self) -> None:
        """Take in all of a log that nobody writes any more."""
        while self.read():
            pass
        self._scan.finish()


SPOILT = frozenset(
    {
        FaultKind.NAN_LOSS,
        FaultKind.GRAD_NONFINITE,
        FaultKind.SCALE_COLLAPSE,
        FaultKind.SCALE_THRASH,
        FaultKind.DIVERGENCE,
    }
)

# Of all the numbers a log names, these are worth a line in the history.
HELD_OUT = re.compile(r"(?:val|valid|validation|eval|test|dev)[_/ -].*", re.IGNORECASE)


def _measured(seen: Mapping[str, float], success: Success | None) -> dict[str, float]:
    wanted = success.metric if success else None
    return {name: value for name, value in seen.items() if name == wanted or HELD_OUT.fullmatch(name)}


def with_progress(attempt: Attempt, watch: LogWatch, success: Success | None, now: float) -> Attempt:
    """Return the attempt with what its log has shown so far."""
    seen = watch.detector.progress
    return replace(
        attempt,
        effective=dict(seen.effective),
        resumed_step=seen.resumed_step,
        first_step=seen.first_step,
        furthest_step=seen.furthest_step,
        loss=seen.loss,
        first_loss=watch.detector.history.first_loss,
        metrics=_measured(seen.values, success),
        latest=dict(seen.latest),
        throughput=dict(seen.throughput),
        saved=dict(seen.saved),
        progress_at=attempt.progress_at or (now if seen.step is not None or seen.loss is not None else None),
    )


def with_fault(attempt: Attempt, fault: Fault, watch: LogWatch) -> Attempt:
    """Return the attempt with its fault, and the level of the loss before it as the yardstick for a cure."""
    level = healthy_level(watch.detector.history, fault.began) if fault.began is not None else None
    return replace(attempt, fault=fault, healthy_loss=level)


def fault_at_end(observation: Observation, watch: LogWatch) -> Fault | None:
    """Say what an ended attempt died of; None when it came to its end by itself."""
    seen = watch.detector.first_fault(ended=True, clean_exit=observation.exit_code == 0)
    # A run that ends well has got over whatever its log complained of, unless its numbers are spoilt.
    if seen is not None and (observation.exit_code != 0 or seen.kind in watch.spoilt):
        return seen
    step = watch.detector.progress.step
    last = watch.detector.tail[-1] if watch.detector.tail else "the log is empty"
    if observation.presence is Presence.LOST:
        return Fault(FaultKind.INFRA_FAULT, f"{observation.detail}; last line: {last}", step=step)
    if observation.signal is not None:
        known = {each.value: each.name for each in signal.Signals}
        name = known.get(observation.signal, f"signal {observation.signal}")
        return Fault(FaultKind.INFRA_FAULT, f"killed by {name} from outside; last line: {last}", step=step)
    if observation.exit_code != 0:
        return Fault(FaultKind.UNKNOWN_EXIT, f"exit code {observation.exit_code}; last line: {last}", step=step)
    return None


def shortfall(success: Success | None, attempt: Attempt) -> str | None:
    """Say what an exit code 0 still owes, or None when it is a success."""
    if success is None:
        return None
    bound = f"below {success.below:g}" if success.below is not None else f"above {success.above:g}"
    value = attempt.metrics.get(success.metric)
    if value is None:
        return f"it never reported {success.metric}, which must be {bound}"
    good = value < success.below if success.below is not None else value > (success.above or 0.0)
    return None if good else f"{success.metric} is {value:g}, not {bound}"


def judge_cure(job: Job, attempts: Sequence[Attempt], watch: LogWatch, *, ended: bool) -> Judgement | None:
    """Judge whether the present attempt has recovered from the fault it was launched to cure; None: there is none."""
    now, before = attempts[-1], attempts[job.settled : -1]
    standing = incident_after(before, job.knobs)
    if standing.root_fault is None or now.recovered is not None:
        return None
    ill = next(attempt for attempt in before if attempt.number == standing.root_attempt)
    levels = (attempt.healthy_loss for attempt in reversed(before) if attempt.healthy_loss is not None)
    yardstick = LearningBaseline(
        fault_step=standing.furthest_fault_step,
        window_end=window_after(standing.furthest_fault_step, standing.furthest_fault_step - (ill.resumed_step or 0)),
        healthy=next(levels, None),
        untrained=attempts[0].first_loss,
    )
    verdict = judge(watch.detector.history, yardstick, ended=ended)
    return None if verdict.verdict is Verdict.TOO_EARLY else verdict


def not_learning(job: Job, attempts: Sequence[Attempt], judgement: Judgement) -> Fault:
    """Return the fault of a run that no longer fails and no longer learns."""
    standing = incident_after(attempts[job.settled : -1], job.knobs)
    return Fault(
        FaultKind.NOT_LEARNING, judgement.because, step=attempts[-1].furthest_step, onset=standing.furthest_fault_step
    )
