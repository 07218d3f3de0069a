"""Computes what attempts cost: how long they took, which steps they made and lost, and the GPU-seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rung.jobs.job import Attempt, Job, Outcome


def seconds_run(attempt: Attempt, until: float) -> float | None:
    """Return how long an attempt ran, or has run by `until`; None if it was never started."""
    span = _span(attempt, until)
    return round(span[1] - span[0], 1) if span else None


def busy_seconds(attempts: Sequence[Attempt], until: float) -> float:
    """Return how long at least one of these attempts ran; trials that run side by side count once."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(span for attempt in attempts if (span := _span(attempt, until))):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return round(total, 1)


def runs_until(job: Job, now: float) -> float:
    """Return up to when an attempt without an end may have run: now, or the end of its job."""
    return job.updated_at if job.ended else now


def _span(attempt: Attempt, until: float) -> tuple[float, float] | None:
    if attempt.started_at is None:
        return None
    end = attempt.ended_at
    if end is None:
        # The end of an attempt that was lost may not be known: what was seen of it counts.
        end = until if attempt.outcome is Outcome.PENDING else attempt.progress_at or attempt.started_at
    return attempt.started_at, max(attempt.started_at, end)


def gpu_seconds(attempt: Attempt, until: float) -> float:
    """Return the seconds that an attempt ran, times the GPUs that it had."""
    return round((seconds_run(attempt, until) or 0.0) * gpu_count(attempt), 1)


def gpu_count(attempt: Attempt) -> int:
    """Return how many GPUs an attempt had: every node of a site gives it as many as the first one."""
    return len(attempt.gpus) * attempt.nodes


def steps_made(attempt: Attempt) -> int:
    """Return how many steps an attempt made, from where it resumed to the furthest it reached."""
    return max(0, (attempt.furthest_step or 0) - attempt.resume_point)


def steps_lost(attempt: Attempt, after: Attempt | None, attempts: Sequence[Attempt]) -> int:
    """Return how many steps of this attempt were run again, by the next one or by the trial that it goes on from."""
    if attempt.is_trial and attempt.trial is not None and not attempt.trial.won:
        return steps_made(attempt)
    if after is None or attempt.furthest_step is None:
        return 0
    between = (each for each in attempts if attempt.number < each.number < after.number)
    won = [each.resume_point for each in between if each.trial is not None and each.trial.won]
    return max(0, attempt.furthest_step - min([after.resume_point, *won]))


def seconds_lost(attempt: Attempt, after: Attempt | None, lost: int) -> float | None:
    """Return the time of these steps plus the time until the next progress; None if it is not known."""
    if after is None:
        return 0.0
    if after.progress_at is None or attempt.ended_at is None:
        return None
    spent = 0.0
    if attempt.progress_at is not None and attempt.furthest_step and attempt.first_step is not None:
        done = max(1, attempt.furthest_step - attempt.first_step)
        spent = lost * (attempt.ended_at - attempt.progress_at) / done
    return round(max(0.0, spent) + max(0.0, after.progress_at - attempt.ended_at), 1)


# Of a history, as text


def gpu_cost(cost: Mapping[str, Any]) -> str:
    """Return the GPU-seconds of an attempt or of a whole job, or why there are none."""
    if cost["gpus"]:
        return f"{cost['gpu_seconds']:.0f} GPU-seconds"
    return unseen_gpus(cost) or "no GPU leased"


def gpu_names(attempt: Mapping[str, Any]) -> str:
    """Return the names of the GPUs of an attempt, or that its node shows none of those that were asked for."""
    return ", ".join(gpu["name"] for gpu in attempt["gpus"]) or unseen_gpus(attempt) or ""


def unseen_gpus(cost: Mapping[str, Any]) -> str | None:
    """Return what a site was asked for where its node reports no GPU; None: nothing, or GPUs were seen."""
    return f"{cost['gpus_asked']} asked; the node reports none" if cost["gpus_asked"] and not cost["gpus"] else None


def hosts_text(row: Mapping[str, Any]) -> str | None:
    """Return all hosts of an attempt, or of a job in its newest attempt, the leading one first."""
    return " + ".join([row["host"], *(each["host"] for each in row["members"])]) if row["host"] else None


def some_host_text(row: Mapping[str, Any]) -> str:
    """Return the host of an attempt, or that it is one of several."""
    return f"one of {hosts_text(row)}" if row["members"] else str(row["host"])
