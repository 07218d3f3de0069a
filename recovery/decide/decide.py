"""Decides what to do about a fault: relaunch or stop.

It is a pure function of the fault and the attempts; runner/controller carries the decision out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rung.jobs.job import Attempt, Job, main_line
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs, RungName
from rung.jobs.model.trial import Trial
from rung.recovery.decide.checkpoint_choice import (
    Checkpoint,
    Sighting,
    choose_checkpoint,
    describe_wait,
    unseen_among,
    why_wait,
)
from rung.recovery.decide.incident import Incident, incident_after
from rung.recovery.decide.resume_limit import resume_limit
from rung.recovery.decide.rung_choice import NoRung, choose_rung
from rung.recovery.decide.rungs import RungContext
from rung.recovery.decide.script_values import read_script_values
from rung.recovery.decide.treatments import TREATMENTS, Budget
from rung.recovery.decide.wording import describe_fault, describe_rung, no_rung_left, with_advice, with_resume_point
from rung.recovery.ledger.ledger import EMPTY, Ledger
from rung.recovery.ledger.step_cost import fp32_cost_in_trials
from rung.recovery.monitors.fault_groups import BAD_NUMBERS

# Seconds to wait after an infra fault: the first wait, which doubles each time, and the longest.
BACKOFF = (5.0, 300.0)
# A host gets one more chance after an infra fault; then the job goes to another host, where there is one.
FAULTS_PER_HOST = 2
WHY_SAME_KNOBS = {FaultKind.RULE_RETRY: "as asked", FaultKind.STALLED: "no rung cures a run that hangs"}
# After this many rungs that took effect and did not cure, the settings are not the cause.
MAX_RUNGS_WITHOUT_CURE = 3


@dataclass(frozen=True)
class Relaunch:
    """Launch again with these knobs from this checkpoint. `rung` None: the same knobs again."""

    rung: RungName | None
    knobs: Knobs
    checkpoint: Checkpoint | None
    because: str
    skipped: tuple[tuple[str, str], ...] = ()
    undone: tuple[tuple[str, str], ...] = ()
    delay: float = 0.0
    # Hosts not to use; empty where no other host could take the job.
    avoid: tuple[str, ...] = ()
    # A cured run tries its original precision or lr again.
    stepped_back: bool = False
    # This launch is one of several trials.
    trial: Trial | None = None
    # Trials have shown that no rung changes what an early warning found.
    left_alone: bool = False
    # Trials have shown that the run gets through the steps up to this one.
    tried_until: int = 0


@dataclass(frozen=True)
class Stop:
    """Stop and leave the job to a person, with a diagnosis."""

    diagnosis: str
    skipped: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Wait:
    """Decide nothing yet: a host could not be asked, and what it would say decides."""

    because: str


Decision = Relaunch | Stop


def decide(
    job: Job,
    attempts: Sequence[Attempt],
    checkpoints: Sequence[Sighting],
    gpu: Gpu | None,
    other_hosts: Sequence[str] = (),
    ledger: Ledger = EMPTY,
) -> Decision | Wait:
    """Return what to do after the last of these attempts (oldest first, since a person last set the knobs).

    `other_hosts` could take the job, free now or not. `ledger` orders the rungs where the job says `ladder: auto`.
    """
    climb = climb_of(job, attempts, gpu, ledger)
    decision = _decide(job, climb.context.attempts, checkpoints, climb)
    if isinstance(decision, Stop):
        return decision
    return with_place(decision, job, attempts, checkpoints, other_hosts)


def with_place(
    decision: Relaunch,
    job: Job,
    attempts: Sequence[Attempt],
    checkpoints: Sequence[Sighting],
    other_hosts: Sequence[str],
) -> Relaunch | Wait:
    """Add the hosts that a relaunch must avoid; or wait, while a host that may have a better checkpoint is unseen."""
    why = why_wait(checkpoints, decision.checkpoint, resume_limit(main_line(attempts), job.knobs))
    if why is not None:
        return Wait(why)
    unseen, last = {each.host: each for each in unseen_among(checkpoints)}, attempts[-1]
    if last.members and last.host_lost and other_hosts:
        # Which of its hosts is lost is not known here; it is not chosen as long as it does not answer.
        return replace(decision, because=f"{decision.because}; on hosts that answer")
    avoid = _hosts_to_avoid(attempts, other_hosts, list(unseen))
    here = unseen.get(last.host)
    if here is not None and not avoid:
        return Wait(describe_wait(here, ", and no other host could take the job"))
    if not avoid:
        return decision
    return replace(decision, avoid=avoid, because=f"{decision.because}; on another host than {' and '.join(avoid)}")


def why_retry_waits(job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Sighting]) -> str | None:
    """Return why a retry that a person asked for cannot begin yet, by the same rule; None: it can."""
    limit = resume_limit(attempts, job.knobs)
    return why_wait(checkpoints, choose_checkpoint(checkpoints, attempts, limit).checkpoint, limit)


def _hosts_to_avoid(attempts: Sequence[Attempt], other_hosts: Sequence[str], unseen: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts that failed too often, if the job must leave its host and another one could take it.

    Of a job on several hosts nobody knows which of them has failed. One that is away is not chosen anyway.
    """
    last = attempts[-1]
    if last.members:
        return ()
    infra_kinds = {kind for kind, treatment in TREATMENTS.items() if treatment.budget is Budget.INFRA}
    failed = Counter(each.host for each in attempts if each.fault and each.fault.kind in infra_kinds)
    avoid = {host: None for host, times in failed.items() if times >= FAULTS_PER_HOST} | dict.fromkeys(unseen)
    if last.host_lost:
        avoid[last.host] = None
    leaves = last.host in avoid and any(host not in avoid for host in other_hosts)
    return tuple(avoid) if leaves else ()


@dataclass(frozen=True)
class Climb:
    """What a choice between rungs depends on: the incident, the fault that is cured, and what each rung would do."""

    incident: Incident
    root: Fault
    context: RungContext


def climb_of(job: Job, attempts: Sequence[Attempt], gpu: Gpu | None, ledger: Ledger = EMPTY) -> Climb:
    """Return what a choice of a rung depends on after these attempts."""
    line = main_line(attempts)
    fault = line[-1].fault
    assert fault is not None, "a rung is chosen for a fault"
    incident = incident_after(line, job.knobs)
    incident = replace(
        incident, rejected_rungs=incident.rejected_rungs | _failed_in_trials(attempts, line[-1], incident)
    )
    root = incident.root_fault or fault
    script_values, seen = read_script_values(attempts), _with_latest_replay(root, fault)
    context = RungContext(job.spec, incident.proven_knobs, job.knobs, script_values, seen, gpu, tuple(line), ledger)
    context = replace(context, fp32_in_trials=fp32_cost_in_trials(attempts, gpu))
    return Climb(incident, root, context)


def _failed_in_trials(attempts: Sequence[Attempt], last: Attempt, incident: Incident) -> dict[str, str]:
    """Return the rungs that were tried after this fault and did not help, and how each trial ended.

    Trials in which nothing helped count until the run gets past its fault: the rung that is taken after them changes
    nothing about it. Trials that a lost host cut short have decided nothing: they begin anew, with all candidates.
    """
    cut_short = max((each.number for each in attempts if each.is_trial and each.host_lost), default=0)
    since = [each for each in attempts if each.number > cut_short and each.trial and each.trial.verdict]
    won = {each.trial.about for each in since if each.trial and each.trial.won}
    about = {last.number, *range(incident.root_attempt, last.number)} - (won - {last.number})
    trials = [each for each in since if each.trial and each.trial.about in about]
    return {
        each.trial.candidate.rung: f"in its trial, attempt {each.number}: {each.trial.verdict}"
        for each in trials
        if each.trial and each.trial.candidate.rung and not each.trial.won
    }


def _decide(job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Sighting], climb: Climb) -> Decision:
    fault, incident = attempts[-1].fault, climb.incident
    assert fault is not None, "decide is asked about a fault"
    budget = TREATMENTS[fault.kind].budget
    counted = len(attempts) - incident.infra_faults - incident.unbudgeted
    if budget is Budget.STOP:
        why = "as asked" if fault.kind is FaultKind.RULE_STOP else "no relaunch can help"
        return Stop(with_advice(f"{describe_fault(fault)}: {why}", fault))
    if budget is Budget.INFRA:
        return _retry_after_delay(job, attempts, checkpoints, incident)
    if counted >= job.spec.recovery.max_attempts:
        return Stop(with_advice(f"{describe_fault(fault)}: {counted} attempts made, the most this job may have", fault))
    if budget is Budget.ONCE and not incident.undone:
        return _retry_once(job, attempts, checkpoints, incident)
    return _climb(job, checkpoints, climb)


def _retry_after_delay(
    job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Sighting], incident: Incident
) -> Decision:
    last = attempts[-1]
    assert last.fault is not None
    if incident.infra_faults > job.spec.recovery.infra_retries:
        return Stop(with_advice(f"{describe_fault(last.fault)}: came {incident.infra_faults} times", last.fault))
    # The job has waited for its lost host already.
    delay = 0.0 if last.host_lost else min(BACKOFF[0] * 2 ** (incident.infra_faults - 1), BACKOFF[1])
    choice = choose_checkpoint(checkpoints, attempts, None)
    why = WHY_SAME_KNOBS.get(last.fault.kind, "the machine's fault, not the run's")
    after = f" after {delay:g} s" if delay else ""
    because = f"{describe_fault(last.fault)}: {why}; the same knobs again{after}"
    return Relaunch(None, last.asked, choice.checkpoint, with_resume_point(because, choice), delay=delay)


def _retry_once(job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Sighting], incident: Incident) -> Decision:
    last = attempts[-1]
    assert last.fault is not None
    if incident.unknown_exits > 1:
        why = f"it ended twice without a fault that Rung knows ({last.fault.evidence[:200]})"
        return Stop(with_advice(f"{describe_fault(last.fault)}: {why}", last.fault))
    choice = choose_checkpoint(checkpoints, attempts, None)
    because = f"{describe_fault(last.fault)}: no known fault; the same knobs once more"
    return Relaunch(None, last.asked, choice.checkpoint, with_resume_point(because, choice))


def _climb(job: Job, checkpoints: Sequence[Sighting], climb: Climb) -> Decision:
    incident, context, root = climb.incident, climb.context, climb.root
    attempts = context.attempts
    fault = attempts[-1].fault
    assert fault is not None
    chosen = choose_rung(job, root, context, incident)
    if isinstance(chosen, NoRung):
        verdict = f"{describe_fault(root)}: {chosen.verdict}. What to do: {chosen.advice}." if chosen.verdict else ""
        return Stop(verdict or no_rung_left(fault, root, context, incident), chosen.reasons)
    counted = incident.rungs_without_cure - incident.steps_to_fp32
    if counted >= MAX_RUNGS_WITHOUT_CURE and root.kind is not FaultKind.OOM:
        return Stop(no_rung_left(fault, root, context, incident), chosen.passed_over)
    choice = choose_checkpoint(checkpoints, attempts, resume_limit(attempts, job.knobs))
    rung = describe_rung(chosen.rung, chosen.knobs, context)
    because = with_resume_point(f"{describe_fault(root)}: {chosen.why}: {rung}", choice)
    return Relaunch(chosen.rung, chosen.knobs, choice.checkpoint, because, chosen.passed_over, incident.undone)


def _with_latest_replay(root: Fault, last: Fault) -> Fault:
    """Return the fault being cured with the latest replay, which is nearer to the cause."""
    return replace(root, replay=last.replay) if last.replay and {root.kind, last.kind} <= BAD_NUMBERS else root
