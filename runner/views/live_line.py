"""Says in one line what a job does now: its step, loss, speed and the time that is left. Only for a terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TextIO

from rung.jobs.job import Attempt, Job, main_line
from rung.jobs.model.state import JobState
from rung.jobs.model.terminal_text import clean
from rung.runner.views.story import duration

# The speed is that of the last seconds, but of some steps at least where each takes long.
SPEED_SECONDS, LEAST_READINGS = 20.0, 5


@dataclass
class Pace:
    """The speed of the attempt that runs now, from the steps that were seen and when."""

    _attempt: int = 0
    _seen: deque[tuple[float, int]] = field(default_factory=deque)

    def see(self, attempt: Attempt, now: float) -> None:
        step = attempt.furthest_step
        if attempt.number != self._attempt:
            self._attempt = attempt.number
            self._seen.clear()
        if step is None or (self._seen and step == self._seen[-1][1]):
            return
        self._seen.append((now, step))
        while len(self._seen) > LEAST_READINGS and now - self._seen[0][0] > SPEED_SECONDS:
            self._seen.popleft()

    @property
    def speed(self) -> float | None:
        """Return the steps per second; None until it is known."""
        if len(self._seen) < 2:
            return None
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        return (last - first) / (ended - began) if ended > began and last > first else None


def describe_now(job: Job, attempts: Sequence[Attempt], speed: float | None, now: float) -> str:
    """Return what the job does now, as far as it is known."""
    if not attempts or job.state is JobState.QUEUED:
        return clean(job.reason)
    last = attempts[-1]
    if last.unreachable_since is not None:
        return clean(f"{last.some_host} does not answer")
    if job.state is JobState.LAUNCHING and last.not_before is not None and last.not_before > now:
        return f"waiting {duration(last.not_before - now)} before attempt {last.number}"
    if job.state is not JobState.RUNNING:
        return f"attempt {last.number}: {job.state.lower()}"
    return ", ".join([_where(last, total_steps(attempts)), *_progress(attempts, speed)])


def seconds_left(attempts: Sequence[Attempt], speed: float | None) -> float | None:
    """Return how long what runs now still takes; None where the last step or the speed is not known."""
    left = (total_steps(attempts) or 0) - (attempts[-1].furthest_step or 0) if attempts else 0
    return left / speed if speed and left > 0 else None


def total_steps(attempts: Sequence[Attempt]) -> int | None:
    """Return the last step of what runs now: of the trial, or of the run where a log of the job has named it."""
    last = attempts[-1]
    if last.is_trial and last.trial is not None:
        return last.trial.until
    return next((each.total_steps for each in reversed(main_line(attempts)) if each.total_steps is not None), None)


def _where(attempt: Attempt, total: int | None) -> str:
    """Return what runs, and its step."""
    trial = attempt.trial if attempt.is_trial else None
    name = f"trial of {trial.candidate.label}" if trial else f"attempt {attempt.number}"
    if attempt.furthest_step is None:
        return clean(name)
    return clean(f"{name}: step {attempt.furthest_step}" + (f" of {total}" if total is not None else ""))


def _progress(attempts: Sequence[Attempt], speed: float | None) -> list[str]:
    loss = attempts[-1].loss
    parts = [] if loss is None else [f"loss {loss:.4g}"]
    if speed is None:
        return parts
    parts.append(f"{speed:.3g} steps/s" if speed >= 1 else f"{1 / speed:.3g} s a step")
    left = seconds_left(attempts, speed)
    return [*parts, f"about {duration(left)} left"] if left is not None else parts


@dataclass
class LiveLine:
    """Keeps one line at the end of the output up to date."""

    out: TextIO
    _shown: str = ""

    def show(self, text: str, width: int) -> None:
        """Replace the line; the cursor stays at its beginning, so that other output does not hang on to it."""
        # The last column stays free: a full line would make some terminals begin the next one.
        text = text[: max(0, width - 1)]
        if text != self._shown:
            self._write(f"\r{text.ljust(len(self._shown))}\r")
            self._shown = text

    def clear(self) -> None:
        if self._shown:
            self._write(f"\r{' ' * len(self._shown)}\r")
            self._shown = ""

    def _write(self, text: str) -> None:
        self.out.write(text)
        self.out.flush()


def has_live_line(out: TextIO, environ: Mapping[str, str]) -> bool:
    """Tell whether one line of the output can be written again and again."""
    return out.isatty() and environ.get("TERM", "") != "dumb"
