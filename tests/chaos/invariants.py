"""The invariants: what must hold after any faults, from the ledgers of the jobs and not from Rung's words alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from tests.chaos.evidence import (
    CANCELLED_THERE,
    CONTAINER_KILLED,
    CONTAINER_REMOVED,
    DAMAGED_LATE,
    DISK_FULL,
    ENDS_IT,
    ENGINE_KILLED,
    FORGOTTEN,
    HOST_DISK_FULL,
    JOB_KILLED,
    NODE_FAILED,
    POWER_LOST,
    PREEMPTED,
    REQUEUED,
    TIME_UP,
    WRAPPER_KILLED,
    Evidence,
    JobEvidence,
    Told,
)
from tests.chaos.ledger import Run

# Which faults Rung may name where the ledger says that one was printed, or the journal that something was done.
CAUSES = {
    "nan": {"nan_loss"},
    "overflow": {"fp16_overflow"},
    "unscale": {"unscale_error"},
    "oom": {"oom"},
    "crash": {"unknown_exit"},
    "disk": {"infra_fault", "unknown_exit"},
    JOB_KILLED: {"infra_fault", "unknown_exit"},
    WRAPPER_KILLED: {"infra_fault", "unknown_exit"},
    DISK_FULL: {"infra_fault", "unknown_exit"},
    DAMAGED_LATE: {"unknown_exit"},
    CONTAINER_KILLED: {"infra_fault"},
    CONTAINER_REMOVED: {"infra_fault"},
    POWER_LOST: {"infra_fault"},
    ENGINE_KILLED: {"infra_fault"},
    HOST_DISK_FULL: {"infra_fault"},
    CANCELLED_THERE: {"infra_fault", "unknown_exit"},
    REQUEUED: {"infra_fault", "unknown_exit"},
    PREEMPTED: {"infra_fault"},
    TIME_UP: {"infra_fault"},
    NODE_FAILED: {"infra_fault"},
    FORGOTTEN: {"infra_fault"},
}


@dataclass(frozen=True)
class Violation:
    what: str
    job: str = "-"


Found = Iterator[Violation]


def violations(evidence: Evidence) -> list[Violation]:
    """Return all that does not hold."""
    found = [each for job in evidence.jobs for check in JOB_CHECKS for each in check(job)]
    return [*found, *(each for check in CHECKS for each in check(evidence))]


# One job


def one_process_at_a_time(job: JobEvidence) -> Found:
    for before, after in pairwise(job.runs):
        # What is given up with its host may go on there, and does not count.
        if before.last > after.first and not job.was_lost(before.attempt):
            yield Violation(f"attempt {after.attempt} began while attempt {before.attempt} still ran", job.name)


def ended_once(job: JobEvidence) -> Found:
    if job.launched and job.job_id is None:
        yield Violation("was submitted, and Rung does not know it", job.name)
    elif not job.launched and job.job_id is not None:
        yield Violation("was refused, and Rung has it all the same", job.name)
    elif job.launched and job.ends != 1 + job.retries:
        yield Violation(f"ended {job.ends} times after 1 launch and {job.retries} retries", job.name)


def state_is_true(job: JobEvidence) -> Found:
    last = job.runs[-1] if job.runs else None
    finished = last is not None and _finished(job, last)
    if job.state == "SUCCEEDED" and not finished:
        yield Violation("is SUCCEEDED, and its last process did not make all steps", job.name)
    if job.state == "FAILED" and finished and last and not _end_may_be_unknown(job, last):
        yield Violation("is FAILED, and its last process made all steps", job.name)
    if job.state == "CANCELLED" and not job.cancels:
        yield Violation("is CANCELLED, and nobody cancelled it", job.name)


def finished_is_not_run_again(job: JobEvidence) -> Found:
    for run, after in pairwise(job.runs):
        if _finished(job, run) and not _end_may_be_unknown(job, run) and not job.cancels:
            yield Violation(f"attempt {after.attempt} began after attempt {run.attempt} had finished", job.name)


def _end_may_be_unknown(job: JobEvidence, run: Run) -> bool:
    """Tell whether Rung may not know how a process ended. A record on the host proves it, whatever happened there."""
    if job.was_lost(run.attempt):
        return True
    return run.attempt not in job.recorded and job.was(run.attempt, *ENDS_IT)


def _finished(job: JobEvidence, run: Run) -> bool:
    """Tell whether a process made all steps in good health, or found them made."""
    made = any(line.startswith(b"step %d/" % job.steps) for line in run.lines)
    made = made or (run.start["resumed"] or {}).get("step") == job.steps
    return run.code == 0 and made and not any(b"loss nan" in line for line in run.lines)


def each_attempt_started_once(job: JobEvidence) -> Found:
    starts = Counter(run.attempt for run in job.runs)
    known = {told.number for told in job.attempts}
    for number, count in starts.items():
        if count > 1:
            yield Violation(f"attempt {number} was started {count} times", job.name)
        if number not in known:
            yield Violation(f"attempt {number} ran, and Rung does not know it", job.name)
    for told in job.attempts:
        if told.number not in starts and not _may_have_no_process(job, told):
            yield Violation(f"attempt {told.number} is in the history ({told.outcome}), and never ran", job.name)


def _may_have_no_process(job: JobEvidence, told: Told) -> bool:
    """Tell whether an attempt may have ended before its process wrote a word."""
    cancelled = told.outcome == "cancelled" and job.cancels
    return bool(cancelled) or job.was(told.number, *ENDS_IT) or job.was_lost(told.number)


def no_line_lost_or_doubled(job: JobEvidence) -> Found:
    logs = {told.number: told for told in job.attempts}
    for run in job.runs:
        told = logs.get(run.attempt)
        if told is None:
            continue
        if not _is_all(list(told.log), run) and not _may_lack_its_end(job, told, run):
            yield Violation(
                f"the log of attempt {run.attempt} is not what it printed: {_difference(told, run)}", job.name
            )
        if told.shown is not None and not _is_shown(told):
            yield Violation(f"`rung logs` does not show what the log of attempt {run.attempt} holds", job.name)


def _is_all(log: list[bytes], run: Run) -> bool:
    """Tell whether a log has all lines of a process once. One that was killed may not have printed its last line."""
    lines = run.lines
    if any(run.of("unwritten")):
        return log[: len(lines) - 1] == lines[:-1] and len(log) <= len(lines)
    return log == lines or (run.code is None and log == lines[:-1])


def _may_lack_its_end(job: JobEvidence, told: Told, run: Run) -> bool:
    """Tell whether a log holds the first lines of a process, and no more of them may have reached Rung.

    An engine loses what it has not written yet when it is killed or its power is lost. Nobody can read the log of a
    container that was removed, and then Rung says so.
    """
    if list(told.log) != run.lines[: len(told.log)]:
        return False
    removed = job.was(told.number, CONTAINER_REMOVED) and told.incomplete
    return removed or job.was(told.number, POWER_LOST, ENGINE_KILLED) or job.was_lost(told.number)


def _difference(told: Told, run: Run) -> str:
    lines = run.lines
    at = next((n for n, pair in enumerate(zip(told.log, lines, strict=False)) if pair[0] != pair[1]), None)
    where = f"first at line {at + 1}" if at is not None else "one is longer"
    return f"{len(told.log)} lines, {len(lines)} printed, {where}"


def _is_shown(told: Told) -> bool:
    """Compare `rung logs` with the log file. Of a line that is no text only its beginning is compared."""
    shown = told.shown or ()
    return len(shown) == len(told.log) and all(map(_same, shown, told.log))


def _same(shown: str, line: bytes) -> bool:
    if not line.isascii():
        return shown.startswith(" ".join(line.decode("latin-1").split(" ")[:2]))
    return shown.rstrip() == line.decode("ascii").rstrip()


def resumed_from_healthy(job: JobEvidence) -> Found:
    saved = {
        (record["file"], record["step"], record["sum"]): record["healthy"]
        for run in job.runs
        for record in run.of("saving")
    }
    names = {told.number: told.resumed_from for told in job.attempts}
    for run in job.runs:
        resumed = run.start["resumed"]
        name = resumed["file"] if resumed else None
        if name != names.get(run.attempt, name):
            said = names[run.attempt]
            yield Violation(f"attempt {run.attempt} resumed from {name}, and the history says {said}", job.name)
        if resumed is None or job.was(run.attempt, DAMAGED_LATE):
            continue
        what = f"attempt {run.attempt} resumed from {name}"
        healthy = saved.get((name, resumed.get("step"), resumed.get("sum")))
        if "broken" in resumed:
            yield Violation(f"{what}, which is damaged: {resumed['broken']}", job.name)
        elif healthy is None:
            yield Violation(f"{what}, whose numbers no attempt has saved", job.name)
        elif not healthy:
            yield Violation(f"{what}, which was saved with NaN in it", job.name)


def no_false_cause(job: JobEvidence) -> Found:
    runs = {run.attempt: run for run in job.runs}
    for told in job.attempts:
        if told.fault is None:
            continue
        run = runs.get(told.number)
        shown = (run.faults if run else set()) | set(job.injected.get(told.number, ()))
        allowed = set().union(*(CAUSES.get(kind, set()) for kind in shown))
        if job.was_lost(told.number):
            allowed.add("infra_fault")
        if told.fault not in allowed:
            happened = ", ".join(sorted(shown)) or "nothing"
            yield Violation(
                f"attempt {told.number} has the fault {told.fault}, and what happened is: {happened}", job.name
            )


# All jobs together


def slots_hold(evidence: Evidence) -> Found:
    """No GPU belongs to two processes at once, and no more jobs run at once than may."""
    runs = [(run, job.name) for job in evidence.jobs for run in job.runs]
    by_gpu: dict[str, list[tuple[Run, str]]] = {}
    for run, name in runs:
        by_gpu.setdefault(run.start["gpus"], []).append((run, name))
    without = by_gpu.pop("", [])
    for gpu, users in by_gpu.items():
        for (before, first), (after, second) in pairwise(sorted(users, key=lambda user: user[0].first)):
            if before.last > after.first:
                yield Violation(f"used {gpu} while {first} did", second)
    for run, name in without:
        at_once = sum(other.first <= run.first <= other.last for other, _ in without)
        if at_once > evidence.most_at_once:
            yield Violation(f"was the {at_once}th to run at once; {evidence.most_at_once} may", name)


def each_gets_its_secret(evidence: Evidence) -> Found:
    for job in evidence.jobs:
        for run in job.runs:
            if run.start["secret"] != evidence.secret:
                yield Violation(f"attempt {run.attempt} did not get its secret", job.name)


def nothing_is_left(evidence: Evidence) -> Found:
    left = {
        "a lease is left": evidence.leases,
        "a process is left": evidence.processes,
        "something is left on a host": evidence.on_hosts,
        "a draft of a file is left": evidence.drafts,
        "the value of a secret is in a file": evidence.secrets,
        "a controller ended by itself": evidence.controllers,
        "a job never ended": evidence.unsettled,
    }
    for what, lines in left.items():
        for line in lines:
            yield Violation(f"{what}: {line}")


JOB_CHECKS: tuple[Callable[[JobEvidence], Found], ...] = (
    one_process_at_a_time,
    ended_once,
    state_is_true,
    finished_is_not_run_again,
    each_attempt_started_once,
    no_line_lost_or_doubled,
    resumed_from_healthy,
    no_false_cause,
)
CHECKS: tuple[Callable[[Evidence], Found], ...] = (slots_hold, each_gets_its_secret, nothing_is_left)
