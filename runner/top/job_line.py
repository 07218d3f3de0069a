"""Says in a few words what a job does now: one line of `rung top`. All text is cleaned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rung.jobs.job import Attempt, Job
from rung.jobs.model.terminal_text import clean
from rung.runner.views.costs import hosts_text
from rung.runner.views.live_line import seconds_left, total_steps
from rung.runner.views.queue import job_row
from rung.runner.views.story import duration


@dataclass(frozen=True)
class JobLine:
    """One job; what is not known is empty."""

    id: str
    state: str
    step: str
    loss: str
    curve: str
    rung: str
    left: str
    reason: str
    host: str

    def matches(self, wanted: str) -> bool:
        """Tell whether every word is somewhere in the line, in any case."""
        text = " ".join((self.id, self.state, self.rung, self.host, self.reason)).lower()
        return all(word in text for word in wanted.lower().split())


def job_line(job: Job, attempts: Sequence[Attempt], curve: str, speed: float | None, now: float) -> JobLine:
    """Return the line of a job. `curve`: its loss so far, as a row of blocks."""
    row = job_row(job, attempts, now)
    total, left = total_steps(attempts) if attempts else None, seconds_left(attempts, speed)
    loss = row["loss"]
    return JobLine(
        id=clean(job.id),
        state=job.state.value,
        step="" if row["step"] is None else f"{row['step']}" + (f"/{total}" if total is not None else ""),
        loss=f"{loss:.4g}" if isinstance(loss, float) else str(loss or ""),
        curve=curve,
        rung=clean(_rung(attempts)),
        left=duration(left) if left is not None and not job.ended else "",
        reason=clean(job.reason),
        host=clean(hosts_text(row) or ""),
    )


def _rung(attempts: Sequence[Attempt]) -> str:
    """Return the rung that the job is on now, or the one that is tried."""
    last = attempts[-1] if attempts else None
    if last is None:
        return ""
    return f"trial {last.trial.candidate.label}" if last.is_trial and last.trial is not None else last.rung or ""
