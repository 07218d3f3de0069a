"""Carries out validations: the two runs as ordinary jobs, then the comparison, its report and its verdict.

The runs follow each other on this machine or a single host, because their time per step is compared; with two hosts
they run at once. Every step is written in one transaction with what it begins, so that a killed controller continues
from there; a comparison that was not written is made again from the same logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rung.jobs.job import Attempt, Job, Outcome
from rung.jobs.model.errors import RungError, StoreError
from rung.jobs.model.event import EventKind
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.terminal_text import clean
from rung.recovery.validation.explanations import Answer, Setting, memory, slower, worse
from rung.recovery.validation.run_figures import FigureReader, Figures
from rung.recovery.validation.verdict import Rule, Run, judge, rule_of
from rung.runner.context import Context
from rung.runner.files.log_file import read_lines
from rung.runner.launch import submit
from rung.runner.state.store import Store
from rung.runner.task_pool import Lane
from rung.runner.validation.record import Validation, run_spec, validations
from rung.runner.validation.report import Findings
from rung.runner.validation.report_files import write_report

HERE = "localhost"
# After an error, such as a full disk.
RETRY_SECONDS = 5.0


class ValidationRunner:
    """Advances every validation without a verdict by one step in each turn."""

    def __init__(self, context: Context) -> None:
        self._context, self._store = context, context.store

    def turn(self) -> int:
        """Advance all of them; return how many there are."""
        found = validations(self._store, active=True)
        for each in found:
            if not self._context.is_backing_off(each.id):
                self._guarded(each)
        return len(found)

    def _guarded(self, asked: Validation) -> None:
        try:
            self._step(asked)
        except StoreError:
            raise
        except (RungError, OSError) as error:
            self._context.back_off(asked.id, RETRY_SECONDS)
            job_id = asked.for_job or asked.baseline
            if job_id is not None:
                because = clean(f"validation {asked.id}: {error}; it is tried again")[:500]
                with self._store.transaction():
                    self._store.add_event(
                        job_id, None, EventKind.UNEXPECTED_ERROR, {"because": because}, at=self._context.now()
                    )

    def _step(self, asked: Validation) -> None:
        baseline = self._store.job(asked.baseline) if asked.baseline else None
        candidate = self._store.job(asked.candidate) if asked.candidate else None
        self._drop_unwanted(asked, [job for job in (baseline, candidate) if job is not None])
        if baseline is None:
            self._begin(asked, both=self._side_by_side(asked))
        elif not baseline.ended:
            return
        elif candidate is None and self._is_baseline(baseline):
            self._begin(asked, both=False)
        elif candidate is None or candidate.ended:
            self._compare(asked, baseline, candidate)

    def _drop_unwanted(self, asked: Validation, runs: Sequence[Job]) -> None:
        """End the runs of a validation whose job a person has cancelled while it waited."""
        if not asked.blocks_job or asked.for_job is None or not self._store.job(asked.for_job).ended:
            return
        for job in runs:
            if not job.ended and not job.cancel_requested:
                submit.cancel(self._store, job, at=self._context.now())

    def _side_by_side(self, asked: Validation) -> bool:
        return asked.spec.is_remote and len(self._context.engines.hosts) > 1

    def _begin(self, asked: Validation, *, both: bool) -> None:
        """Write the next run, or both, as ordinary jobs."""
        at = self._context.now()
        with self._store.transaction():
            if asked.baseline is None:
                asked = asked.but(baseline=self._add(asked, baseline=True, at=at))
                if both:
                    asked = asked.but(candidate=self._add(asked, baseline=False, at=at))
            else:
                asked = asked.but(candidate=self._add(asked, baseline=False, at=at))
            self._store.put_validation(asked.number, asked.to_dict(), active=True)

    def _add(self, asked: Validation, *, baseline: bool, at: float) -> str:
        about = {"python": asked.python} if asked.python is not None else {}
        job = self._store.add_job(run_spec(asked, baseline=baseline), asked.origin, at=at, about=about)
        what = "the FP32 baseline" if baseline else "the run as asked"
        because = f"{what} of validation {asked.id} of {asked.for_job or asked.spec.name}; nothing is recovered in it"
        self._store.add_event(job.id, None, EventKind.VALIDATING, {"because": because, "validation": asked.id}, at=at)
        return job.id

    def _is_baseline(self, job: Job) -> bool:
        """Tell whether a run finished: without a baseline the other one proves nothing."""
        return finished(self._store.attempts(job.id))

    # Comparing

    def _compare(self, asked: Validation, baseline: Job, candidate: Job | None) -> None:
        """Read the logs in a worker thread, then write the verdict."""
        tasks = self._context.tasks
        if not tasks.busy(asked.id):
            runs = [_with_attempts(self._store, job) for job in (baseline, candidate) if job is not None]
            work = partial(_find, asked, runs, self._context.paths, self._context.now())
            tasks.submit(asked.id, HERE, work, lane=Lane.SLOW)
        task = tasks.take(asked.id)
        if task is not None:
            if task.error is not None:
                raise task.error
            self._write(asked, task.future.result())

    def _write(self, asked: Validation, found: Findings) -> None:
        folder = self._context.paths.validation(asked.id)
        write_report(folder, found)
        judgement, at = found.judgement, self._context.now()
        decided = asked.but(verdict=judgement.verdict, because=judgement.because)
        data = {
            "validation": asked.id,
            "verdict": judgement.verdict,
            "because": f"{judgement.verdict} (validation {asked.id}): {judgement.because}",
            "report": str(folder / "report.html"),
        }
        with self._store.transaction():
            self._store.put_validation(asked.number, decided.to_dict(), active=False)
            # The gate records it for the job that waits, together with the consequence.
            jobs = (asked.baseline, asked.candidate, None if asked.blocks_job else asked.for_job)
            for job_id in dict.fromkeys(filter(None, jobs)):
                self._store.add_event(job_id, None, EventKind.VALIDATED, data, at=at)


def finished(attempts: Sequence[Attempt]) -> bool:
    return bool(attempts) and attempts[-1].outcome in (Outcome.SUCCEEDED, Outcome.FELL_SHORT)


def _with_attempts(store: Store, job: Job) -> tuple[Job, list[Attempt]]:
    return job, store.attempts(job.id)


def _find(asked: Validation, runs: Sequence[tuple[Job, list[Attempt]]], paths: HomePaths, at: float) -> Findings:
    """Read both logs and judge; touches no store."""
    rule = rule_of(asked.spec, asked.metric)
    assert rule is not None, "a validation names its metric"
    made = [_run(job, attempts, paths) for job, attempts in runs]
    return findings(asked, rule, made[0], made[1] if len(made) > 1 else None, at)


def findings(asked: Validation, rule: Rule, baseline: Run, candidate: Run | None, at: float) -> Findings:
    judgement = judge(baseline, candidate, rule)
    answers: list[Answer | None] = []
    if candidate is not None and baseline.finished:
        knobs = asked.spec.knobs
        setting = Setting(candidate.precision, knobs.batch, reached=knobs.mode != "flags")
        answers = [worse(baseline, candidate, judgement, setting)]
        if candidate.finished:
            answers += [slower(baseline, candidate, setting), memory(baseline, candidate, setting)]
    given = tuple(answer for answer in answers if answer is not None)
    return Findings(asked.id, asked.spec.name, rule, judgement, baseline, candidate, given, at)


def _run(job: Job, attempts: list[Attempt], paths: HomePaths) -> Run:
    last = attempts[-1] if attempts else None
    figures = _figures([paths.attempt(job.id, attempt.number).log for attempt in attempts])
    return Run(
        job_id=job.id,
        precision=str(job.knobs.precision or ""),
        finished=finished(attempts),
        ended="finished" if finished(attempts) else job.reason,
        fault=last.fault if last else None,
        figures=figures,
        host=last.host if last else "",
        gpu=last.gpus[0].name if last and last.gpus else "",
        began=(attempts[0].resumed_step or 0) if attempts else 0,
        seconds=last.seconds_of_progress if last else None,
    )


def _figures(logs: Sequence[Path]) -> Figures:
    """Read the logs of a run; a second one is there only after a fault of the machine."""
    reader = FigureReader()
    for log in logs:
        for line in read_lines(log):
            reader.feed(line)
    return reader.figures()
