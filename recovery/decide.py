"""Owns the decision: what to do about a fault. Pure: no I/O, no clock; `relaunch` carries it out.

Detect, decide and act are apart: this file sees faults and attempts as data and answers with a Relaunch or a Stop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from jobs.attempt import Attempt, Job
from jobs.fault import Fault, FaultKind
from jobs.gpu import Gpu
from jobs.knobs import Knobs, Precision, RungName
from jobs.recoveryspec import RungSpec
from recovery.checkpoint import Checkpoint, Choice, choose, numeric
from recovery.faults import TREATMENTS, Budget
from recovery.ladder import climb
from recovery.standing import Standing, later, stand

# Seconds before an infra fault is tried again: the first wait, doubled each time, at most.
BACKOFF = (5.0, 300.0)
# A host gets one more chance after an infra fault; then the job goes elsewhere, where there is such a place.
FAULTS_PER_HOST = 2
# A dtype error after this many steps may come from values that grew; before, clipping cured none (0 of 104 settings).
LONG_PROGRESS = 10_000
# A scale that collapses this early does so because every batch overflows, which only FP32 cures.
FIRST_STEPS = 200


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
) -> Decision:
    """Return what to do after the last of these attempts (oldest first, since a person last set the knobs).

    `elsewhere` are the other hosts that could take the job, whether or not they are free now.
    """
    avoid = _avoid(attempts, elsewhere)
    decision = _decide(job, attempts, checkpoints, gpu)
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


def _decide(job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Checkpoint], gpu: Gpu | None) -> Decision:
    fault = attempts[-1].fault
    assert fault is not None, "decide is asked about a fault"
    standing = stand(attempts, job.knobs)
    budget = TREATMENTS[fault.kind].budget
    own = len(attempts) - standing.infra
    if budget is Budget.STOP:
        why = "as asked" if fault.kind is FaultKind.RULE_STOP else "no relaunch can help"
        return Stop(_advised(f"{_told(fault)}: {why}", fault))
    if budget is Budget.INFRA:
        return _again_later(job, attempts, checkpoints, standing)
    if own >= job.spec.recovery.max_attempts:
        return Stop(_advised(f"{_told(fault)}: {own} attempts made, the most this job may have", fault))
    if budget is Budget.ONCE and not standing.undone:
        return _once_more(job, attempts, checkpoints, standing)
    return _climb(job, attempts, checkpoints, standing, gpu)


def resume_limit(attempts: Sequence[Attempt], knobs: Knobs) -> int | None:
    """Return the step a checkpoint must be older than after these attempts; None: any will do."""
    fault = attempts[-1].fault
    if fault is None or not numeric(fault):
        return None
    root = stand(attempts, knobs).root
    if fault.kind is FaultKind.NOT_LEARNING and root is not None and root.began is not None:
        return root.began
    return fault.began if fault.began is not None else attempts[-1].furthest_step


def _again_later(
    job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Checkpoint], standing: Standing
) -> Decision:
    last = attempts[-1]
    assert last.fault is not None
    if standing.infra > job.spec.recovery.infra_retries:
        return Stop(_advised(f"{_told(last.fault)}: came {standing.infra} times", last.fault))
    # Who has waited for a lost host has waited enough.
    delay = 0.0 if last.host_lost else min(BACKOFF[0] * 2 ** (standing.infra - 1), BACKOFF[1])
    choice = choose(checkpoints, attempts, None)
    why = "as asked" if last.fault.kind is FaultKind.RULE_RETRY else "the machine's fault, not the run's"
    after = f" after {delay:g} s" if delay else ""
    because = f"{_told(last.fault)}: {why}; the same knobs again{after}"
    return Relaunch(None, last.asked, choice.checkpoint, _from(because, choice), delay=delay)


def _once_more(
    job: Job, attempts: Sequence[Attempt], checkpoints: Sequence[Checkpoint], standing: Standing
) -> Decision:
    last = attempts[-1]
    assert last.fault is not None
    if standing.unknown > 1:
        return Stop(_advised(f"{_told(last.fault)}: it ended twice without a fault that Rung knows", last.fault))
    choice = choose(checkpoints, attempts, None)
    because = f"{_told(last.fault)}: no known fault; the same knobs once more"
    return Relaunch(None, last.asked, choice.checkpoint, _from(because, choice))


def _climb(
    job: Job,
    attempts: Sequence[Attempt],
    checkpoints: Sequence[Checkpoint],
    standing: Standing,
    gpu: Gpu | None,
) -> Decision:
    fault = attempts[-1].fault
    root = standing.root or fault
    assert fault is not None and root is not None
    rungs, first = _order(job, root, gpu)
    options = {step.rung: _option(step, job, standing, root) for step in rungs}
    chosen = next((step.rung for step in rungs if isinstance(options[step.rung], Knobs)), None)
    reasons = {rung: option for rung, option in options.items() if isinstance(option, str)}
    if chosen is None:
        return Stop(_diagnosis(fault, root, attempts, standing), tuple((r.value, why) for r, why in reasons.items()))
    knobs = options[chosen]
    assert isinstance(knobs, Knobs)
    choice = choose(checkpoints, attempts, resume_limit(attempts, job.knobs))
    why = first if chosen is rungs[0].rung and first else _place(chosen, rungs, standing)
    because = f"{_told(root)}: {why}: {chosen} ({_change(standing.kept, knobs)})"
    return Relaunch(
        chosen,
        knobs,
        choice.checkpoint,
        _from(because, choice),
        _passed_over(job, chosen, reasons, first),
        standing.undone,
    )


def _order(job: Job, root: Fault, gpu: Gpu | None) -> tuple[list[RungSpec], str]:
    """Return the rungs in the order to try them for this fault, and the diagnosis that put one first."""
    ladder = list(job.spec.recovery.rungs)
    if root.kind is FaultKind.OOM and all(step.rung is not RungName.LOWER_BATCH for step in ladder):
        ladder.append(RungSpec(rung=RungName.LOWER_BATCH))
    rung, why = _diagnose(root, gpu)
    ahead = [step for step in ladder if step.rung is rung]
    return ahead + [step for step in ladder if step.rung is not rung], why if ahead else ""


def _diagnose(root: Fault, gpu: Gpu | None) -> tuple[RungName | None, str]:
    """Name the rung this fault points at by itself, and why; None where the ladder's own order is as good."""
    if root.kind in (FaultKind.NAN_LOSS, FaultKind.GRAD_NONFINITE, FaultKind.DIVERGENCE):
        if root.shape == "drift":
            return RungName.LOWER_LR, "the numbers grew over many steps, as with too high an lr"
        if root.shape == "spike":
            return RungName.RAISE_CLIP, "the gradients jumped from one step to the next"
    if root.kind is FaultKind.FP16_OVERFLOW and gpu is not None and not gpu.fp16_tensor_cores:
        return RungName.FP32, f"{gpu.name} has no FP16 tensor cores, so FP32 is cheap"
    if root.kind is FaultKind.FP16_OVERFLOW and (root.step or 0) >= LONG_PROGRESS:
        return RungName.RAISE_CLIP, f"the value grew over {root.step} steps"
    if root.kind is FaultKind.SCALE_COLLAPSE and (root.step or 0) < FIRST_STEPS:
        return RungName.FP32, "the scale collapsed from the first steps on: every batch overflows FP16"
    if root.kind is FaultKind.SCALE_THRASH:
        return RungName.INCREASE_GROWTH_INTERVAL, "the scale grows too soon and falls back"
    return None, ""


def _option(step: RungSpec, job: Job, standing: Standing, root: Fault) -> Knobs | str:
    """Return the knobs this rung would give, or why it is not taken."""
    late_overflow = root.kind is FaultKind.FP16_OVERFLOW and (root.step or 0) >= LONG_PROGRESS
    cannot = TREATMENTS[root.kind].cannot.get(step.rung)
    if cannot and not (late_overflow and step.rung is RungName.RAISE_CLIP):
        return f"cannot cure {root.kind}: {cannot}"
    if step.rung.value in standing.tried:
        return standing.tried[step.rung.value]
    return climb(step, standing.kept, job.spec, job.knobs)


def _place(chosen: RungName, rungs: Sequence[RungSpec], standing: Standing) -> str:
    """Say where on the ladder the chosen rung stands, when nothing in the fault points at it by itself."""
    if standing.tried:
        return "next on the ladder"
    return "the lowest rung" if chosen is rungs[0].rung else "the lowest rung that can help"


def _passed_over(job: Job, chosen: RungName, reasons: dict[RungName, str], first: str) -> tuple[tuple[str, str], ...]:
    """Return the rungs below the chosen one that were not taken, with their reasons."""
    ladder = [step.rung for step in job.spec.recovery.rungs]
    below = ladder[: ladder.index(chosen)] if chosen in ladder else ladder
    return tuple((rung.value, reasons.get(rung, f"not first: {first}")) for rung in below)


def _diagnosis(fault: Fault, root: Fault, attempts: Sequence[Attempt], standing: Standing) -> str:
    """Say what the end of the ladder means."""
    steps = standing.fault_steps
    in_fp32 = [a for a in attempts if a.asked.precision is Precision.FP32 and a.fault and a.fault.kind is root.kind]
    if root.kind is FaultKind.NAN_LOSS and in_fp32 and not later(in_fp32[-1].fault_step, standing.reach):
        text = (
            f"NaN in FP32 too, at step {in_fp32[-1].fault_step}: precision is not the cause, the model or the data is"
        )
    elif len(steps) > 2 and all(later(b, a) for a, b in pairwise(steps)):
        text = (
            f"{_told(fault)}: every rung only delayed it (steps {', '.join(map(str, steps))}); the cause is in the code"
        )
    else:
        text = f"{_told(root)}: no rung is left"
    return _advised(text, root)


def _advised(text: str, fault: Fault) -> str:
    return f"{text}. What to do: {TREATMENTS[fault.kind].advice}."


def _told(fault: Fault) -> str:
    told = f"{fault.kind} at step {fault.step}" if fault.step is not None else f"{fault.kind}"
    return f"{told} ({fault.note})" if fault.note else told


def _change(before: Knobs, after: Knobs) -> str:
    changes = after.changes_from(before).items()
    return ", ".join(f"{name} {'off' if old is None else old} -> {new}" for name, (old, new) in changes)


def _from(because: str, choice: Choice) -> str:
    if choice.checkpoint is None:
        return f"{because}; {choice.because}"
    return f"{because}; resume at step {choice.checkpoint.step}: {choice.because}"
