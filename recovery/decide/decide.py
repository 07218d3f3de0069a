"""Owns the decision: what to do about a fault, and which budget pays. Pure; `relaunch` carries it out.

Detect, decide and act are apart: this file sees faults and attempts as data and answers with a Relaunch or a Stop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rung.jobs.job import Attempt, Job
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs, RungName
from rung.recovery.decide.checkpoint_choice import Checkpoint, choose
from rung.recovery.decide.diagnose import NUMBERS
from rung.recovery.decide.incident import Incident, stand
from rung.recovery.decide.resume_limit import resume_limit
from rung.recovery.decide.rung_choice import NoRung, choose_rung
from rung.recovery.decide.rung_stats import EMPTY, Ledger
from rung.recovery.decide.rungs import RungContext, filled
from rung.recovery.decide.script_values import own_values
from rung.recovery.decide.treatments import TREATMENTS, Budget
from rung.recovery.decide.wording import advised, change, no_rung_left, resumed, told

# Seconds before an infra fault is tried again: the first wait, doubled each time, at most.
BACKOFF = (5.0, 300.0)
# A host gets one more chance after an infra fault; then the job goes elsewhere, where there is such a place.
FAULTS_PER_HOST = 2
# Rungs that took effect and did not cure: after so many it is no fault of the settings.
MOST_TRIES = 3


@dataclass(frozen=True)
class Relaunch:
    """Go on with these knobs from this checkpoint. `rung` None: the same knobs again."""

    rung: RungName | None
    knobs: Knobs
    checkpoint: Checkpoint | None
    because: str
    skipped: tuple[tuple[str, str], ...] = ()
    undone: tuple[tuple[str, str], ...] = ()
    delay: float = 0.0
    # Hosts that it must not go to; empty where there is no other one that could take it.
    avoid: tuple[str, ...] = ()
    # A cured run tries its first precision or lr again.
    stepped_back: bool = False


@dataclass(frozen=True)
class Stop:
    """Give the job back to a person, with what was learned."""

    diagnosis: str
    skipped: tuple[tuple[str, str], ...] = ()


Decision = Relaunch | Stop


def decide(
    job: Job,
    attempts: Sequence[Attempt],
    checkpoints: Sequence[Checkpoint],
    gpu: Gpu | None,
    elsewhere: Sequence[str] = (),
    ledger: Ledger = EMPTY,
) -> Decision:
    """Return what to do after the last of these attempts (oldest first, since a person last set the knobs).

    `elsewhere` are the other hosts that could take the job, whether or not they are free now; `ledger` is
    what rungs did for all jobs, for a job that leaves their order to it.
    """
    avoid = _avoid(attempts, elsewhere)
    decision = _decide(job, attempts, checkpoints, gpu, ledger)
    if not isinstance(decision, Relaunch) or not avoid:
        return decision
    return replace(decision, avoid=avoid, because=f"{decision.because}; on another host than {' and '.join(avoid)}")


def _avoid(attempts: Sequence[Attempt], elsewhere: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts that a job has had enough of, if it has to leave the one it is on and has a place to go."""
    last = attempts[-1]
    failed = Counter(each.host for each in attempts if each.fault and _infra(each.fault))
    avoid = {host: None for host, times in failed.items() if times >= FAULTS_PER_HOST}
    if last.host_lost:
        avoid[last.host] = None
    leaves = last.host in avoid and any(host not in avoid for host in elsewhere)
    return tuple(avoid) if leaves else ()


def _infra(fault: Fault) -> bool:
    return TREATMENTS[fault.kind].budget is Budget.INFRA


def _decide(
    job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Checkpoint], gpu: Gpu | None, ledger: Ledger
) -> Decision:
    fault = attempts[-1].fault
    assert fault is not None, "decide is asked about a fault"
    incident = stand(attempts, job.knobs)
    budget = TREATMENTS[fault.kind].budget
    own = len(attempts) - incident.infra - incident.free
    if budget is Budget.STOP:
        why = "as asked" if fault.kind is FaultKind.RULE_STOP else "no relaunch can help"
        return Stop(advised(f"{told(fault)}: {why}", fault))
    if budget is Budget.INFRA:
        return _again_later(job, attempts, checkpoints, incident)
    if own >= job.spec.recovery.max_attempts:
        return Stop(advised(f"{told(fault)}: {own} attempts made, the most this job may have", fault))
    if budget is Budget.ONCE and not incident.undone:
        return _once_more(job, attempts, checkpoints, incident)
    root = incident.root or fault
    own_knobs, seen = own_values(attempts), _seen(root, fault)
    scene = RungContext(job.spec, incident.kept, job.knobs, own_knobs, seen, gpu, tuple(attempts), ledger)
    return _climb(job, checkpoints, incident, scene, root)


def _again_later(
    job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Checkpoint], incident: Incident
) -> Decision:
    last = attempts[-1]
    assert last.fault is not None
    if incident.infra > job.spec.recovery.infra_retries:
        return Stop(advised(f"{told(last.fault)}: came {incident.infra} times", last.fault))
    # Who has waited for a lost host has waited enough.
    delay = 0.0 if last.host_lost else min(BACKOFF[0] * 2 ** (incident.infra - 1), BACKOFF[1])
    choice = choose(checkpoints, attempts, None)
    why = "as asked" if last.fault.kind is FaultKind.RULE_RETRY else "the machine's fault, not the run's"
    after = f" after {delay:g} s" if delay else ""
    because = f"{told(last.fault)}: {why}; the same knobs again{after}"
    return Relaunch(None, last.asked, choice.checkpoint, resumed(because, choice), delay=delay)


def _once_more(
    job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Checkpoint], incident: Incident
) -> Decision:
    last = attempts[-1]
    assert last.fault is not None
    if incident.unknown > 1:
        said = f"{told(last.fault)}: it ended twice without a fault that Rung knows ({last.fault.evidence[:200]})"
        return Stop(advised(said, last.fault))
    choice = choose(checkpoints, attempts, None)
    because = f"{told(last.fault)}: no known fault; the same knobs once more"
    return Relaunch(None, last.asked, choice.checkpoint, resumed(because, choice))


def _climb(
    job: Job, checkpoints: Sequence[Checkpoint], incident: Incident, scene: RungContext, root: Fault
) -> Decision:
    attempts = scene.attempts
    fault = attempts[-1].fault
    assert fault is not None
    chosen = choose_rung(job, root, scene, incident)
    if isinstance(chosen, NoRung):
        verdict = f"{told(root)}: {chosen.verdict}. What to do: {chosen.advice}." if chosen.verdict else ""
        return Stop(verdict or no_rung_left(fault, root, scene, incident), chosen.reasons)
    if incident.tries >= MOST_TRIES and root.kind is not FaultKind.OOM:
        return Stop(no_rung_left(fault, root, scene, incident), chosen.passed)
    choice = choose(checkpoints, attempts, resume_limit(attempts, job.knobs))
    because = f"{told(root)}: {chosen.why}: {chosen.rung} ({change(scene.now, filled(chosen.knobs, scene.own))})"
    return Relaunch(
        chosen.rung, chosen.knobs, choice.checkpoint, resumed(because, choice), chosen.passed, incident.undone
    )


def _seen(root: Fault, last: Fault) -> Fault:
    """Return the fault being cured, with what the latest replay told: that one is nearer to the cause."""
    return replace(root, replay=last.replay) if last.replay and {root.kind, last.kind} <= NUMBERS else root
