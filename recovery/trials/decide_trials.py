"""Decides with trials: the first one after a fault, the next one, and the launch of the winner.

It is a pure function of the attempts, which carry the plan. So a controller that is killed between two trials goes on
with the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rung.jobs.job import Attempt, Job, main_line
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import RungName
from rung.jobs.model.trial import Trial
from rung.recovery.decide.checkpoint_choice import Checkpoint, Sighting
from rung.recovery.decide.decide import BACKOFF, Decision, Relaunch, Wait, climb_of, decide
from rung.recovery.decide.script_values import read_script_values
from rung.recovery.decide.wording import describe_change, describe_fault
from rung.recovery.ledger.ledger import EMPTY, Ledger
from rung.recovery.monitors.learning import EARLY
from rung.recovery.trials.between import lr_between
from rung.recovery.trials.judge import choose
from rung.recovery.trials.own_run import own_run
from rung.recovery.trials.plan import plan_trials
from rung.recovery.trials.sequence import (
    lower_lr_at_once,
    lower_lr_to_try,
    may_go_on,
    next_index,
    run_order,
    to_repeat,
    was_machine,
)


@dataclass(frozen=True)
class Winner:
    """The trials are over, and this attempt won. Its newest checkpoint has to be found before it can go on."""

    attempt: Attempt


def open_trials(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the trials after the job's last run, if they are not decided yet; those of a lost host do not count."""
    found: list[Attempt] = []
    for attempt in reversed(attempts):
        if not attempt.is_trial or attempt.host_lost:
            break
        found.insert(0, attempt)
    return found


def with_own_run(attempts: Sequence[Attempt], trials: Sequence[Attempt]) -> list[Attempt]:
    """Return some trials about one fault, and the run as it is before them where it can be compared with them."""
    trial = trials[0].trial if trials else None
    own = own_run(attempts, trial) if trial is not None else None
    return [own, *trials] if own is not None else list(trials)


def decide_with_trials(
    job: Job,
    attempts: Sequence[Attempt],
    checkpoints: Sequence[Sighting],
    gpu: Gpu | None,
    other_hosts: Sequence[str] = (),
    ledger: Ledger = EMPTY,
) -> Decision | Wait:
    """Return what to do after a fault: the first trial, or what `decide` says where there are none."""
    decision = decide(job, attempts, checkpoints, gpu, other_hosts, ledger)
    if not isinstance(decision, Relaunch) or open_trials(attempts):
        return decision
    planned = plan_trials(job, climb_of(job, attempts, gpu, ledger), decision, attempts)
    if isinstance(planned, Trial):
        first = first_trial(attempts, planned, decision.checkpoint if planned.start else None)
        return replace(first, avoid=decision.avoid, skipped=decision.skipped, undone=decision.undone)
    return replace(decision, because=f"{decision.because}; {planned.why}") if planned.why else decision


def first_trial(attempts: Sequence[Attempt], planned: Trial, checkpoint: Checkpoint | None) -> Relaunch:
    """Return the launch of the first of the trials that are planned."""
    first = run_order(len(planned.candidates))[0]
    return _launch(attempts, replace(planned, index=first), checkpoint)


def side_by_side(attempts: Sequence[Attempt], first: Relaunch, spare: int) -> tuple[list[Relaunch], Relaunch]:
    """Return the trials that run beside the job's own GPUs, as many as there is room for, and the one that runs there.

    That is the most likely one: it can go on without a stop.
    """
    trial = first.trial
    assert trial is not None
    affordable = trial.bound // max(1, trial.until - trial.start)
    count = min(spare, affordable, len(trial.candidates) - 1)
    if count < 1:
        return [], first
    beside = [_launch(attempts, _fresh(trial, each), first.checkpoint, beside=each - 1) for each in range(1, count + 1)]
    likely = _launch(attempts, _fresh(trial, 0), first.checkpoint, beside=count)
    assert likely.trial is not None
    likely = replace(likely, trial=replace(likely.trial, may_go_on=True), skipped=first.skipped, undone=first.undone)
    return beside, likely


def next_trial(job: Job, attempts: Sequence[Attempt], gpu: Gpu | None) -> Relaunch | Winner | None:
    """Return the next of the open trials, or the winner; None: no candidate helped."""
    over = open_trials(attempts)
    trial = over[-1].trial
    assert trial is not None
    failures, again = sum(map(was_machine, over)), to_repeat(over)
    if again is not None and failures <= job.spec.recovery.infra_retries:
        delay = min(BACKOFF[0] * 2 ** (failures - 1), BACKOFF[1])
        return replace(_launch(attempts, _fresh(trial, again), start_of(over)), delay=delay)
    compared = with_own_run(attempts, over)
    at_once = lower_lr_at_once(over, attempts)
    index = next_index(trial, compared) if at_once is None else None
    if index is not None:
        return _launch(attempts, _fresh(trial, index), start_of(over))
    winner = choose(compared, on_gpu=gpu is not None)
    another = at_once or lower_lr_to_try(winner, over, attempts) or lr_between(winner, over, attempts, most_trials(job))
    if another is not None:
        listed = trial if another in trial.candidates else replace(trial, candidates=(*trial.candidates, another))
        return _launch(attempts, _fresh(listed, listed.candidates.index(another)), start_of(over))
    return Winner(winner) if winner is not None else None


def most_trials(job: Job) -> int:
    asked = job.spec.recovery.trials
    return asked.candidates if asked is not None else 0


def begins_anew(about: Attempt, trial: Trial, attempts: Sequence[Attempt]) -> bool:
    """Return whether a lower lr that wins a look begins from scratch, though its trial began from a checkpoint.

    A young run has little to lose, and its state may be spoiled: a small GPT that had run for 600 steps with ten times
    the right lr never came back to the healthy loss.
    """
    young = about.level_at is not None and about.level_at <= EARLY and _is_from_scratch(about, attempts)
    return young and trial.start > 0 and trial.candidate.rung == RungName.LOWER_LR


def _is_from_scratch(run: Attempt, attempts: Sequence[Attempt]) -> bool:
    """Return whether a run began from scratch, or goes on from a trial that did."""
    if run.resume_point == 0:
        return True
    source = run.checkpoint_from[1] if run.checkpoint_from is not None else None
    return any(each.trial is not None and each.trial.start == 0 and each.residence == source for each in attempts)


def _fresh(trial: Trial, index: int) -> Trial:
    """Return the trial of a candidate that has not run yet, over the same steps."""
    return replace(trial, index=index, readings=(), ms=None, verdict="", won=False, goes_on=False)


def start_of(over: Sequence[Attempt]) -> Checkpoint | None:
    """Return the checkpoint that all trials about a fault start from."""
    first = over[0]
    if first.resumed_from is None:
        return None
    return Checkpoint(first.resumed_from, first.planned_step or 0, 0.0, residence=first.checkpoint_from)


def _launch(attempts: Sequence[Attempt], trial: Trial, checkpoint: Checkpoint | None, beside: int = 0) -> Relaunch:
    """Return the launch of a trial; `beside`: how many are launched before it at the same time."""
    candidate = trial.candidate
    about = next(each for each in attempts if each.number == trial.about)
    change = describe_change(about.asked, candidate.knobs, read_script_values(main_line(attempts)))
    number = f"trial {1 + beside + len(open_trials(attempts))}, of at most {len(trial.candidates)}"
    what = f"{candidate.label} ({change})" if change else candidate.label
    place = f"from {checkpoint.name}" if checkpoint else "from scratch"
    because = f"{describe_cause(attempts, trial)}: {number}, {place} to step {trial.until}: {what}"
    trial = replace(trial, may_go_on=may_go_on(trial, open_trials(attempts)))
    rung = RungName(candidate.rung) if candidate.rung else None
    return Relaunch(rung, candidate.knobs, checkpoint, because, trial=trial)


def describe_cause(attempts: Sequence[Attempt], trial: Trial) -> str:
    """Say what the trials are about: the fault of a run, or its level loss."""
    about = next(each for each in attempts if each.number == trial.about)
    if about.fault is not None:
        return describe_fault(about.fault)
    return f"the loss is level at step {about.level_at}"
