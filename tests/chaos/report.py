"""Says what a run of the harness found: each violation with the command that runs it again, and a summary."""

from __future__ import annotations

from tests.chaos.run import Result


def report(result: Result, again: str) -> tuple[list[str], int]:
    """Return the lines for a person, and the exit code."""
    lines = [f"VIOLATION {each.job}: {each.what} [{again}]" for each in result.found]
    return [*lines, summary(result)], 1 if result.found else 0


def summary(result: Result) -> str:
    jobs, faults = result.evidence.jobs, result.journal.faults
    attempts = sum(len(job.runs) for job in jobs)
    states = {state: sum(job.state == state for job in jobs) for state in ("SUCCEEDED", "FAILED", "CANCELLED")}
    ended = ", ".join(f"{count} {state}" for state, count in states.items())
    refused = sum(job.job_id is None for job in jobs)
    kinds = "".join(f"\n  {count:5} {kind}" for kind, count in sorted(faults.items()) if count)
    head = f"{faults.total()} faults in {result.seconds:.0f} s; {len(jobs)} jobs ({ended}, {refused} refused)"
    return f"{head}, {attempts} attempts that ran; faults of each kind:{kinds}"
