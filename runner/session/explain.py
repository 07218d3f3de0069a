"""Says what any log file shows and what Rung would do about it, in bounded memory, for `rung explain`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

import click

from rung.jobs.job import Attempt, Job
from rung.jobs.model.fault import Fault
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.knob_spec import KnobSpec
from rung.recovery.decide.checkpoint_choice import HEALTHY, Checkpoint
from rung.recovery.decide.decide import Decision, Stop, Wait
from rung.recovery.detect.detector import Detector
from rung.recovery.detect.scan import Scan
from rung.recovery.doubts.doubt import Doubt
from rung.recovery.doubts.find import Excerpt, find_doubts
from rung.recovery.logs.lines import count_lines
from rung.recovery.logs.metric_names import is_setting
from rung.recovery.logs.progress import Progress
from rung.recovery.monitors.learning import healthy_level, was_falling
from rung.recovery.trials.decide_trials import decide_with_trials
from rung.runner.preflight.trial_preview import SCRIPT_VALUES

# Numbers that are named apart, and how many others are named.
NOT_NAMED = ("loss", "step", "epoch")
MOST_NAMES = 8
# Characters of a line that are shown beside what it may show.
MOST_EVIDENCE = 200
CHUNK = 1024 * 1024
# A smaller log takes too little time to need a progress bar.
LONG_LOG = 64 * 1024 * 1024


@dataclass(frozen=True)
class Explanation:
    """What was read in a log; `progress` None: only messages were searched for."""

    faults: list[dict[str, Any]]
    lines: int
    progress: Progress | None
    losses: int
    # The fault that Rung would act on, and what it would do; None: there is none.
    cause: str | None
    would: str | None
    # What the log may show although nothing in it is acted on, as rows like those of the faults.
    may_show: list[dict[str, Any]] = field(default_factory=list)
    # An exception that no signature knows and that ended the training, where nothing else is acted on.
    ended_by: Fault | None = None

    def text(self) -> list[str]:
        """Return what was read and what Rung would do, line by line."""
        if self.would is not None:
            kind = self.ended_by.kind if self.ended_by else self.cause
            action = f"about {kind} Rung would {self.would}"
        elif self.faults:
            action = "Rung would do nothing: the run got past all of them"
        else:
            action = "Rung would let it run; after an exit code other than 0 it would launch it once more"
        doubts = [
            f"line {row['line']} may show {row['fault']}: {row['why']}: {row['evidence'][:MOST_EVIDENCE]}"
            for row in self.may_show
        ]
        if self.ended_by:
            where, what = f"line {self.ended_by.line}", self.ended_by.evidence[:MOST_EVIDENCE]
            doubts.append(f"{where}: an exception ended the run, and Rung has no other name for it: {what}")
        return [*doubts, f"read {self.lines} line{'s' * (self.lines != 1)}: {self._read()}", action]

    def _read(self) -> str:
        if self.progress is None:
            return "searched for messages only (--quick), without steps and numbers"
        seen = self.progress
        if seen.first_step is None and not self.losses:
            return "no step and no loss, so that only messages would be seen; knobs.mode zero-edit reads from inside"
        steps = f"steps {seen.first_step} to {seen.furthest_step}" if seen.first_step is not None else "no step"
        last = f", the last {seen.loss:.4g}" if seen.loss is not None else ""
        names = [*seen.latest, *(name for name in seen.values if not is_setting(name))]
        others = [name for name in dict.fromkeys(names) if name not in NOT_NAMED]
        more = f", and {len(others) - MOST_NAMES} more" if len(others) > MOST_NAMES else ""
        also = f"; also {', '.join(others[:MOST_NAMES])}{more}" if others else ""
        return f"{steps}, {self.losses} finite loss{'es' * (self.losses != 1)}{last}{also}"


def explain_log(log: IO[bytes], *, quick: bool) -> Explanation:
    """Return what a log shows; show the progress on standard error if it is a long one."""
    size = os.fstat(log.fileno()).st_size if log.name != "<stdin>" else 0
    if size < LONG_LOG:
        return explain(log, lambda read: None, quick=quick)
    if not sys.stderr.isatty():
        return explain(log, _progress_lines(size), quick=quick)
    with click.progressbar(length=size, label="reading", file=sys.stderr) as bar:
        return explain(log, bar.update, quick=quick)


def _progress_lines(size: int) -> Callable[[int], None]:
    """Return a function that prints a line for every tenth, for an output without a progress bar."""
    done = 0

    def update(read: int) -> None:
        nonlocal done
        before, done = done, done + read
        if 10 * before // size < 10 * done // size:
            click.echo(f"read {done >> 20} of {size >> 20} MiB", err=True)

    return update


def explain(log: IO[bytes], progress: Callable[[int], None], *, quick: bool = False) -> Explanation:
    """Return what was read in a log, its faults in the order of their lines, and what Rung would do."""
    scan, lines, in_line = Scan(Detector(), quick=quick), 0, False
    found: list[Fault] = []
    excerpt = Excerpt()
    for chunk in _chunks(log):
        if not quick:
            excerpt.add(chunk)
        found += scan.feed(chunk)
        lines, in_line = lines + count_lines(chunk), not chunk.endswith(b"\n")
        progress(len(chunk))
    found += scan.finish()
    cause = scan.detector.first_fault(ended=True)
    # Without the exit code only the log says that the script failed.
    ended_by = scan.detector.ending_exception() if cause is None else None
    about = cause or ended_by
    would = what_rung_does(about, scan.detector) if about is not None else None
    rows = [
        _as_row(fault, would=would if fault == cause else None)
        for fault in sorted(found, key=lambda fault: fault.line or 0)
    ]
    if quick:
        # A quick scan leaves out most lines, so the last step that it saw may be long past.
        rows = [{**row, "step": None} for row in rows]
    known = None if quick else scan.detector.progress
    kind = cause.kind.value if cause else None
    # What is acted on is said above, and a quick scan looks at messages only.
    doubts = [] if quick or cause else find_doubts(excerpt.lines())
    may_show = [_as_doubt(doubt) for doubt in doubts]
    return Explanation(rows, lines + in_line, known, scan.detector.finite_losses, kind, would, may_show, ended_by)


def _as_row(fault: Fault, *, would: str | None) -> dict[str, Any]:
    """Return one fault as `--json` prints it; the first cause is the fault that Rung would act on at the end."""
    return {
        "fault": fault.kind.value,
        "line": fault.line,
        "step": fault.step,
        "evidence": fault.evidence,
        "note": fault.note,
        "first_cause": would is not None,
        "would": would,
        "may_show": False,
        "why": None,
    }


def _as_doubt(doubt: Doubt) -> dict[str, Any]:
    """Return what a log may show as a row that is never the first cause."""
    return {
        "fault": doubt.kind.value,
        "line": doubt.line,
        "step": doubt.step,
        "evidence": doubt.evidence,
        "note": "",
        "first_cause": False,
        "would": None,
        "may_show": True,
        "why": doubt.why,
    }


def what_rung_does(fault: Fault, detector: Detector) -> str:
    """Return what Rung would do about a fault, for a job as most are.

    The code that decides about real faults is asked. The job has the default ladder and zero-edit, so that all knobs
    reach it, and a healthy checkpoint from before the fault.
    """
    spec = JobSpec(name="log", run=("train",), knobs=KnobSpec(mode="zero-edit"))
    job = Job("log", spec, JobState.RECOVERING, "", 0.0, 0.0, spec.knobs.knobs())
    began, history = fault.began or 0, detector.history
    attempt = Attempt(
        job.id, 1, "", job.knobs, None, "", effective=SCRIPT_VALUES, furthest_step=detector.progress.furthest_step,
        total_steps=detector.progress.total, first_loss=history.first_loss, healthy_loss=healthy_level(history, began),
        was_falling=was_falling(history, began), fault=fault,
    )  # fmt: skip
    saved = Checkpoint("", max(0, began - 1), 0.0, HEALTHY)
    return _in_words(decide_with_trials(job, [attempt], [saved], None))


def _in_words(decision: Decision | Wait) -> str:
    if isinstance(decision, Stop):
        return f"stop: {decision.diagnosis}"
    if isinstance(decision, Wait):
        return f"wait: {decision.because}"
    if decision.trial is not None:
        tried = ", ".join(candidate.label for candidate in decision.trial.candidates)
        return f"try from the last healthy checkpoint, the most likely first: {tried}; the losses at equal steps decide"
    if decision.rung is None:
        wait = f" after {decision.delay:g} s" if decision.delay else ""
        return f"launch it again with the same knobs{wait}, from the last healthy checkpoint"
    return f"relaunch with {decision.rung} from the last healthy checkpoint, without trials"


def _chunks(log: IO[bytes]) -> Iterator[bytes]:
    while chunk := log.read(CHUNK):
        yield chunk
