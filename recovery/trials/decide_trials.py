"""Decides with trials: the first one after a fault, the next one, and the launch of the winner.

It is a pure function of the attempts, which carry the plan. So a controller that is killed between two trials goes on
with the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rung.jobs.job import Attempt, Job
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import RungName
from rung.jobs.model.trial import Candidate, Trial
from rung.recovery.decide.checkpoint_choice import SOUND, Checkpoint, Sighting
from rung.recovery.decide.decide import BACKOFF, Climb, Decision, Relaunch, Wait, climb_of, decide
from rung.recovery.decide.rung_stats import EMPTY, Ledger
from rung.recovery.decide.rungs import with_defaults
from rung.recovery.decide.wording import describe_change, describe_fault
from rung.recovery.trials.candidates import lower_lr
from rung.recovery.trials.compare import level
from rung.recovery.trials.judge import choose, next_lower_lr, survivors, to_repeat, was_machine
from rung.recovery.trials.plan import plan_trials


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
    climb = climb_of(job, attempts, gpu, ledger)
    planned = plan_trials(job, climb, decision)
    if isinstance(planned, Trial):
        first = _launch(planned, climb, decision.checkpoint)
        return replace(first, avoid=decision.avoid, skipped=decision.skipped, undone=decision.undone)
    return replace(decision, because=f"{decision.because}; {planned.why}") if planned.why else decision


def side_by_side(
    job: Job, attempts: Sequence[Attempt], first: Relaunch, spare: int, gpu: Gpu | None
) -> tuple[list[Relaunch], Relaunch]:
    """Return the trials that run beside the job's own GPUs, as many as there is room for, and the one that runs there.

    The last of them runs on the job's own GPUs: it is the most likely one, and can go on without a stop.
    """
    trial = first.trial
    assert trial is not None
    climb, last_index = climb_of(job, attempts, gpu), len(trial.candidates) - 1
    affordable = trial.bound // (trial.until - trial.start)
    count = min(spare, affordable, last_index)
    beside = [_launch(_fresh(trial, index), climb, first.checkpoint) for index in range(count)]
    # Those that would cost too much are left out, as in a row.
    own = last_index if affordable <= spare and count else count
    last = _launch(_fresh(trial, own), climb, first.checkpoint)
    return beside, replace(last, skipped=first.skipped, undone=first.undone)


def next_trial(job: Job, attempts: Sequence[Attempt], gpu: Gpu | None) -> Relaunch | Winner | None:
    """Return the next of the open trials, or the winner; None: no candidate helped."""
    over, climb = open_trials(attempts), climb_of(job, attempts, gpu)
    trial = over[-1].trial
    assert trial is not None
    failures, again = sum(map(was_machine, over)), to_repeat(over)
    if again is not None and failures <= job.spec.recovery.infra_retries:
        delay = min(BACKOFF[0] * 2 ** (failures - 1), BACKOFF[1])
        return replace(_launch(_fresh(trial, again), climb, _start(over)), delay=delay)
    index = _next_index(trial, over)
    if index is not None:
        return _launch(_fresh(trial, index), climb, _start(over))
    winner = choose(over, on_gpu=gpu is not None)
    lower = _lower_lr(winner, over)
    if lower is not None:
        longer = replace(trial, candidates=(*trial.candidates, lower))
        return _launch(_fresh(longer, len(trial.candidates)), climb, _start(over))
    return Winner(winner) if winner is not None else None


def _lower_lr(winner: Attempt | None, over: Sequence[Attempt]) -> Candidate | None:
    """Return the next lower lr to try, if the lowest so far failed, or won and is clearly better than the others."""
    lowered = [each for each in over if each.trial and each.trial.candidate.rung == RungName.LOWER_LR]
    lowest = min(lowered, key=lambda each: each.asked.lr or 0.0, default=None)
    if lowest is not None and lowest.trial and lowest.fault is not None and not was_machine(lowest):
        return lower_lr(lowest.trial.candidate)
    if winner is None or winner.trial is None:
        return None
    return next_lower_lr(winner.trial, [each.trial for each in over if each.trial])


def _next_index(trial: Trial, over: Sequence[Attempt]) -> int | None:
    """Return the next candidate to run: the last one, which is the most likely, when the others cost too much."""
    begun = max(each.trial.index for each in over if each.trial)
    left = [each for each in range(begun + 1, len(trial.candidates)) if not _is_hopeless(trial, each, over)]
    if not left:
        return None
    spent = sum(max(0, (each.furthest_step or 0) - trial.start) for each in over)
    return left[0] if spent + trial.until - trial.start <= trial.bound else left[-1]


def _is_hopeless(trial: Trial, index: int, over: Sequence[Attempt]) -> bool:
    """Return whether a lower lr than this candidate's has failed, so that this one would fail too."""
    candidate = trial.candidates[index]
    failed = (each.trial.candidate for each in over if each.trial and each.fault is not None and not was_machine(each))
    lowered = [each.knobs.lr for each in failed if each.rung == RungName.LOWER_LR and each.knobs.lr is not None]
    lr = candidate.knobs.lr
    return candidate.rung == RungName.LOWER_LR and lr is not None and any(lr > each for each in lowered)


def _fresh(trial: Trial, index: int) -> Trial:
    """Return the trial of a candidate that has not run yet, over the same steps."""
    return Trial(trial.about, index, trial.candidates, trial.start, trial.fault_step, trial.until, trial.bound)


def _start(over: Sequence[Attempt]) -> Checkpoint | None:
    """Return the checkpoint that all trials about a fault start from."""
    first = over[0]
    if first.resumed_from is None:
        return None
    return Checkpoint(first.resumed_from, first.planned_step or 0, 0.0, residence=first.checkpoint_from)


def _launch(trial: Trial, climb: Climb, checkpoint: Checkpoint | None) -> Relaunch:
    """Return the launch of a trial."""
    candidate = trial.candidate
    change = describe_change(climb.context.now, with_defaults(candidate.knobs, climb.context.script_values))
    number = f"trial {trial.index + 1} of {len(trial.candidates)}"
    what = f"{candidate.label} ({change})" if change else candidate.label
    place = f"from {checkpoint.name}" if checkpoint else "from scratch"
    because = f"{describe_fault(climb.root)}: {number}, {place} to step {trial.until}: {what}"
    rung = RungName(candidate.rung) if candidate.rung else None
    return Relaunch(rung, candidate.knobs, checkpoint, because, trial=trial)


# The winner


def launch_winner(
    job: Job, attempts: Sequence[Attempt], winner: Attempt, found: Sequence[Sighting], gpu: Gpu | None
) -> Relaunch:
    """Return the launch of the winner: from the newest checkpoint of its trial, else from where all trials began."""
    climb, over = climb_of(job, attempts, gpu), open_trials(attempts)
    assert winner.trial is not None
    candidate = winner.trial.candidate
    own = [each for each in found if isinstance(each, Checkpoint) and each.verdict in SOUND]
    own = [each for each in own if each.step > winner.trial.start]
    newest = max(own, key=lambda each: each.step, default=None)
    place = (
        f"it goes on from {newest.name} of its trial" if newest else "its trial saved nothing: it begins there again"
    )
    because = f"{describe_fault(climb.root)}: {why_won(winner, over)}; {place}"
    rung = RungName(candidate.rung) if candidate.rung else None
    left_alone = rung is None or winner.left_alone
    return Relaunch(rung, candidate.knobs, newest or _start(over), because, left_alone=left_alone)


def why_won(winner: Attempt, over: Sequence[Attempt]) -> str:
    """Say what the trials have shown, with the losses that decided."""
    trial = winner.trial
    assert trial is not None
    others = [each for each in over if each.number != winner.number and each.trial is not None]
    seen = level(trial.readings, trial.start, trial.until)
    loss = f"a loss of {seen:.4g}" if seen is not None else "no loss was seen"
    rest = "; ".join(f"{each.trial.candidate.label}: {_came_to(each)}" for each in others if each.trial)
    if trial.candidate.rung is None:
        return f"no rung changes it ({loss} at step {trial.until} as it is; {rest}), so the run is left alone"
    return f"{trial.candidate.label} won the trials with {loss} at step {trial.until} ({rest})"


def _came_to(attempt: Attempt) -> str:
    trial = attempt.trial
    assert trial is not None
    seen = level(trial.readings, trial.start, trial.until)
    return f"{seen:.4g}" if seen is not None and attempt in survivors([attempt]) else trial.verdict or "no result"
