"""Judges whether a run learns: after a fault while it runs and at its end, and without any fault at its end.

The three words are those of `jobs.job.Verdict`; each is written with the readings that show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from rung.jobs.job import Attempt, Job, Verdict, goes_on_after, main_line
from rung.jobs.model.fault import Fault, FaultKind
from rung.recovery.decide.incident import incident_after
from rung.recovery.monitors import learning
from rung.recovery.monitors.learning import MIN_WINDOW, Judgement, LearningBaseline, LossHistory, window_after
from rung.recovery.trials.first_look import untrained_loss
from rung.recovery.trials.judge import best_level
from rung.runner.context import Context
from rung.runner.state import transitions

WORDS = {
    learning.Verdict.LEARNING: Verdict.RECOVERED,
    learning.Verdict.LEVEL: Verdict.SURVIVED,
    learning.Verdict.NOT_LEARNING: Verdict.NOT_LEARNING,
}
NOT_KNOWN = "whether it learns as well as a healthy run is not known"


class RunJudge:
    def __init__(self, context: Context) -> None:
        self._context = context

    def while_running(self, job: Job, history: LossHistory) -> Fault | None:
        """Return the fault of a run that no longer fails but does not learn; record the word for one that does."""
        attempts = self._attempts(job)
        line = main_line(attempts)
        if line[-1].verdict is not None:
            return None
        judgement = judge_cure(job, attempts, history, ended=False)
        if judgement is None or judgement.verdict is learning.Verdict.TOO_EARLY:
            return None
        if judgement.verdict is learning.Verdict.NOT_LEARNING:
            return not_learning(job, line, judgement)
        word = WORDS[judgement.verdict]
        transitions.judged(self._context.store, line[-1], word, judgement.because, at=self._context.now())
        return None

    def at_end(self, job: Job, attempt: Attempt, history: LossHistory, missing: str | None) -> Attempt | Fault:
        """Return a run that ended with exit code 0 and the word for it, or the fault of one that does not learn.

        `missing` is what it lacks for the `success` of its job file, which decides where there is one.
        """
        attempts = [*self._attempts(job)[:-1], attempt]
        line = main_line(attempts)
        judgement = judge_cure(job, attempts, history, ended=True)
        if judgement is None:
            return self._without_fault(job, attempt, history)
        if job.spec.success is not None:
            if missing is None:
                return _with_word(attempt, Verdict.RECOVERED, "it met the success that the job file asks for")
            return not_learning(job, line, Judgement(learning.Verdict.NOT_LEARNING, f"it ended, but {missing}"))
        if judgement.verdict is learning.Verdict.NOT_LEARNING:
            return not_learning(job, line, judgement)
        recovered = _recovered_link(line)
        if judgement.verdict is learning.Verdict.TOO_EARLY and recovered is not None:
            return _with_word(attempt, Verdict.RECOVERED, recovered.verdict_why)
        word = WORDS.get(judgement.verdict, Verdict.SURVIVED)
        why = judgement.because if word is Verdict.RECOVERED else f"{judgement.because}; {NOT_KNOWN}"
        return _with_word(attempt, word, why)

    def _without_fault(self, job: Job, attempt: Attempt, history: LossHistory) -> Attempt | Fault:
        """Judge a run without a fault. One that never learned is told as such, or is a fault where the job says so."""
        line = main_line([*self._attempts(job)[:-1], attempt])
        judgement = learning.never_learned(history, untrained_loss(line[0]))
        if judgement is None or job.spec.success is not None or attempt.left_alone:
            return attempt
        # Where a lower lr was tried while it ran, trials from the beginning would only repeat that.
        if job.spec.recovery.not_learning == "act" and all(each.level_at is None for each in line):
            # From the beginning: nothing that it saved is worth keeping.
            return Fault(FaultKind.NOT_LEARNING, judgement.because, step=1, onset=1)
        return _with_word(attempt, Verdict.NOT_LEARNING, judgement.because)

    def _attempts(self, job: Job) -> list[Attempt]:
        return self._context.store.attempts(job.id)[job.settled :]


def _recovered_link(line: Sequence[Attempt]) -> Attempt | None:
    """Return the run that has recovered: the last one, or one before it with nothing but interruptions since."""
    links = [line[-1], *takewhile(goes_on_after, reversed(line[:-1]))]
    return next((each for each in links if each.recovered), None)


def _with_word(attempt: Attempt, word: Verdict, why: str) -> Attempt:
    return replace(attempt, verdict=word, verdict_why=why)


def judge_cure(job: Job, attempts: Sequence[Attempt], history: LossHistory, *, ended: bool) -> Judgement | None:
    """Judge whether the last of a job's own runs has recovered from its fault; None: there was none, or it is no fault.

    A run that is left alone has no fault: trials have shown that its jump is the script's own doing.
    """
    line = main_line(attempts)
    before, now = line[:-1], line[-1]
    # Asked for every line of every run, and most had no fault before.
    if not any(each.fault for each in before):
        return None
    incident = incident_after(before, job.knobs)
    if incident.root_fault is None or now.left_alone:
        return None
    faulty = next(attempt for attempt in before if attempt.number == incident.root_attempt)
    levels = (attempt.healthy_loss for attempt in reversed(before) if attempt.healthy_loss is not None)
    to_fault = incident.furthest_fault_step - (faulty.resumed_step or 0)
    # One that resumed beyond the fault has to be seen for as long.
    window_end = max(window_after(incident.furthest_fault_step, to_fault), now.resume_point + MIN_WINDOW)
    baseline = LearningBaseline(
        fault_step=incident.furthest_fault_step,
        window_end=window_end,
        healthy=next(levels, None),
        untrained=untrained_loss(line[0]),
        best_trial=best_level(attempts),
    )
    return learning.judge(history, baseline, ended=ended)


def not_learning(job: Job, line: Sequence[Attempt], judgement: Judgement) -> Fault:
    """Return the fault of a run that no longer fails but does not learn."""
    incident = incident_after(line[:-1], job.knobs)
    return Fault(
        FaultKind.NOT_LEARNING, judgement.because, step=line[-1].furthest_step, onset=incident.furthest_fault_step
    )
