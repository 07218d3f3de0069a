"""Chooses the rung for a fault: the order in which rungs are tried, and the first that can be taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rung.jobs.job import Job
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs, RungName
from rung.jobs.spec.recovery_spec import DEFAULT_LADDER, RungSpec
from rung.recovery.decide.diagnose import diagnose
from rung.recovery.decide.diagnosis import Diagnosis
from rung.recovery.decide.incident import Incident
from rung.recovery.decide.rungs import RungContext, apply_rung
from rung.recovery.decide.treatments import cannot_cure
from rung.recovery.ledger.ledger import RulesOrder
from rung.recovery.ledger.row import gpu_type

# On the default ladder these wait for a diagnosis that names them: without one they would be a launch for nothing.
NEED_EVIDENCE = {
    RungName.CLAMP_CONSTANTS: "nothing shows a constant that FP16 cannot hold",
    RungName.BF16: "nothing shows that numbers leave the range of FP16",
}


@dataclass(frozen=True)
class ChosenRung:
    """The rung to take, its knobs and the reason. `passed_over` has the reasons of the rungs below it."""

    rung: RungName
    knobs: Knobs
    why: str
    passed_over: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class NoRung:
    """No rung can be taken: the reason of each, and the verdict if there is one."""

    reasons: tuple[tuple[str, str], ...]
    verdict: str = ""
    advice: str = ""


def rung_order(job: Job, root: Fault, context: RungContext) -> list[RungSpec]:
    """Return the rungs of a job in the order to try them; with `ladder: auto` the ledger ranks them."""
    steps = _by_rules(job, root, context)
    if not job.spec.recovery.auto:
        return steps
    by_rung = {step.rung: step for step in steps}
    ranked = context.ledger.ranked(root.kind, gpu_type(context.gpu), rules_order(job, root, context))
    return [by_rung[rung] for rung in ranked]


def rules_order(job: Job, root: Fault, context: RungContext) -> RulesOrder:
    """Return the order of the rules alone, which stands for what is known before any run."""
    rungs = [step.rung for step in _by_rules(job, root, context)]
    return RulesOrder(rungs, diagnosed=bool(rungs) and rungs[0] in diagnose(context).rungs)


def _by_rules(job: Job, root: Fault, context: RungContext) -> list[RungSpec]:
    """Return the rungs the diagnosis names, then the others in the order of the ladder."""
    ladder = list(job.spec.recovery.rungs)
    if root.kind is FaultKind.OOM and all(step.rung is not RungName.LOWER_BATCH for step in ladder):
        ladder.append(RungSpec(rung=RungName.LOWER_BATCH))
    ahead = [step for rung in diagnose(context).rungs for step in ladder if step.rung is rung]
    steps = ahead + [step for step in ladder if step not in ahead]
    # With `auto` the default ladder comes first, so that an empty ledger chooses as it does.
    return sorted(steps, key=lambda step: job.spec.recovery.auto and step.rung not in DEFAULT_LADDER)


def choose_rung(job: Job, root: Fault, context: RungContext, incident: Incident) -> ChosenRung | NoRung:
    """Return the first rung that can be taken, or the reason of each when none can."""
    rungs, diagnosis = rung_order(job, root, context), diagnose(context)
    options = {step.rung: _option(step, context, incident, diagnosis) for step in rungs}
    reasons = {rung: option for rung, option in options.items() if isinstance(option, str)}
    for step in rungs:
        knobs = options[step.rung]
        if isinstance(knobs, Knobs):
            order = rules_order(job, root, context)
            why = _why(step.rung, order, diagnosis, incident)
            if job.spec.recovery.auto:
                by_rules = next(rung for rung in order.rungs if rung not in reasons)
                evidence = context.ledger.because(root.kind, gpu_type(context.gpu), order, step.rung, by_rules)
                why = f"{why}, and {evidence}" if step.rung in (by_rules, *diagnosis.rungs) else evidence
            return ChosenRung(step.rung, knobs, why, _passed_over(job, step.rung, reasons, why))
    return NoRung(tuple((rung.value, why) for rung, why in reasons.items()), diagnosis.verdict, diagnosis.advice)


def rung_options(job: Job, root: Fault, context: RungContext, incident: Incident) -> list[tuple[RungSpec, Knobs]]:
    """Return every rung that can be taken, in the order to try them, with the knobs it gives."""
    diagnosis = diagnose(context)
    found = [(step, _option(step, context, incident, diagnosis)) for step in rung_order(job, root, context)]
    return [(step, knobs) for step, knobs in found if isinstance(knobs, Knobs)]


def _option(step: RungSpec, context: RungContext, incident: Incident, diagnosis: Diagnosis) -> Knobs | str:
    """Return the knobs this rung would give, or why it is not taken."""
    assert context.fault is not None
    rung, kind = step.rung, context.fault.kind
    cannot = diagnosis.ruled_out.get(rung) or cannot_cure(kind, rung)
    if cannot and rung not in diagnosis.allowed:
        return f"cannot cure {kind}: {cannot}"
    if rung.value in incident.rejected_rungs:
        return incident.rejected_rungs[rung.value]
    if diagnosis.verdict and rung not in diagnosis.rungs:
        return "cannot cure what no setting causes"
    unnamed = rung not in diagnosis.rungs and not context.spec.recovery.names_its_rungs
    if unnamed and rung in NEED_EVIDENCE:
        return NEED_EVIDENCE[rung]
    return apply_rung(_with_places(step, diagnosis), context)


def _with_places(step: RungSpec, diagnosis: Diagnosis) -> RungSpec:
    """Return the rung with the places that the replay has found, where the job file names none."""
    if step.rung is not RungName.FP32_MODULES or step.places:
        return step
    return RungSpec(rung=step.rung, places=diagnosis.places)


def _why(chosen: RungName, order: RulesOrder, diagnosis: Diagnosis, incident: Incident) -> str:
    """Return why this rung is chosen: the diagnosis, or its place on the ladder."""
    if chosen in diagnosis.rungs:
        return diagnosis.why_rung(chosen)
    if incident.rejected_rungs:
        return "next on the ladder"
    return "the lowest rung" if chosen is order.rungs[0] else "the lowest rung that can help"


def _passed_over(
    job: Job, chosen: RungName, reasons: Mapping[RungName, str], first: str
) -> tuple[tuple[str, str], ...]:
    """Return the rungs below the chosen one that were not taken, with their reasons."""
    ladder = [step.rung for step in job.spec.recovery.rungs]
    below = ladder[: ladder.index(chosen)] if chosen in ladder else ladder
    return tuple((rung.value, reasons.get(rung, f"not first: {first}")) for rung in below)
