"""Owns the choice among the rungs: in which order they are tried for a fault, and which of them can be taken at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rung.jobs.job import Job
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs, RungName
from rung.jobs.spec.recovery_spec import DEFAULT_LADDER, RungSpec
from rung.recovery.decide.diagnose import diagnose
from rung.recovery.decide.diagnosis import Diagnosis
from rung.recovery.decide.incident import Incident
from rung.recovery.decide.rung_stats import EMPTY, word_for
from rung.recovery.decide.rungs import RungContext, apply_rung
from rung.recovery.decide.treatments import cannot_cure


@dataclass(frozen=True)
class Chosen:
    """The rung to take, the knobs it gives and why it is this one; `passed` says why those below it were not taken."""

    rung: RungName
    knobs: Knobs
    why: str
    passed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class NoRung:
    """None can be taken: the reason of each, and the verdict where the evidence has one."""

    reasons: tuple[tuple[str, str], ...]
    verdict: str = ""
    advice: str = ""


def order(job: Job, root: Fault, scene: RungContext) -> list[RungSpec]:
    """Return the rungs of a job in the order to try them for this fault; with `ladder: auto` the ledger has its say."""
    steps = _by_diagnosis(job, root, scene)
    if not job.spec.recovery.auto:
        return steps
    # What the default ladder would do comes first, so that an empty ledger chooses as that does.
    steps = sorted(steps, key=lambda step: step.rung not in DEFAULT_LADDER)
    by_rung = {step.rung: step for step in steps}
    diagnosed = steps[0].rung in diagnose(scene).rungs
    ranked = scene.ledger.ranked(root.kind, word_for(scene.gpu), list(by_rung), diagnosed=diagnosed)
    return [by_rung[rung] for rung in ranked]


def _by_diagnosis(job: Job, root: Fault, scene: RungContext) -> list[RungSpec]:
    """Return the rungs the diagnosis points at, and the others in the ladder's order."""
    ladder = list(job.spec.recovery.rungs)
    if root.kind is FaultKind.OOM and all(step.rung is not RungName.LOWER_BATCH for step in ladder):
        ladder.append(RungSpec(rung=RungName.LOWER_BATCH))
    ahead = [step for rung in diagnose(scene).rungs for step in ladder if step.rung is rung]
    return ahead + [step for step in ladder if step not in ahead]


def choose_rung(job: Job, root: Fault, scene: RungContext, incident: Incident) -> Chosen | NoRung:
    """Return the first rung that can be taken, or, where none can, the reason of each."""
    rungs, diagnosis = order(job, root, scene), diagnose(scene)
    options = {step.rung: _option(step, scene, incident, diagnosis) for step in rungs}
    reasons = {rung: option for rung, option in options.items() if isinstance(option, str)}
    for step in rungs:
        knobs = options[step.rung]
        if isinstance(knobs, Knobs):
            seen = _evidence(job, root, scene, step.rung, reasons)
            why = seen or _why(step.rung, rungs, diagnosis, incident)
            return Chosen(step.rung, knobs, why, _passed(job, step.rung, reasons, seen or diagnosis.why))
    return NoRung(tuple((rung.value, why) for rung, why in reasons.items()), diagnosis.verdict, diagnosis.advice)


def _option(step: RungSpec, scene: RungContext, incident: Incident, diagnosis: Diagnosis) -> Knobs | str:
    """Return the knobs this rung would give, or why it is not taken."""
    assert scene.fault is not None
    rung, kind = step.rung, scene.fault.kind
    cannot = diagnosis.cannot.get(rung) or cannot_cure(kind, rung)
    if cannot and rung not in diagnosis.may:
        return f"cannot cure {kind}: {cannot}"
    if rung.value in incident.tried:
        return incident.tried[rung.value]
    if diagnosis.verdict and rung not in diagnosis.rungs:
        return "cannot cure what no setting causes"
    return apply_rung(step, scene)


def _evidence(job: Job, root: Fault, scene: RungContext, chosen: RungName, reasons: Mapping[RungName, str]) -> str:
    """Say what the ledger knows of the chosen rung, and of the one that would have been taken without a ledger."""
    if not job.spec.recovery.auto:
        return ""
    without = order(job, root, replace(scene, ledger=EMPTY))
    instead = next(step.rung for step in without if step.rung not in reasons)
    words = scene.ledger.because(root.kind, word_for(scene.gpu), chosen, instead)
    diagnosis = diagnose(scene)
    return f"{diagnosis.why}, and {words}" if words and chosen in diagnosis.rungs else words


def _why(chosen: RungName, rungs: Sequence[RungSpec], diagnosis: Diagnosis, incident: Incident) -> str:
    """Say why it is this rung: the diagnosis, or its place on the ladder where nothing points at it by itself."""
    if chosen in diagnosis.rungs:
        return diagnosis.why
    if incident.tried:
        return "next on the ladder"
    return "the lowest rung" if chosen is rungs[0].rung else "the lowest rung that can help"


def _passed(job: Job, chosen: RungName, reasons: Mapping[RungName, str], first: str) -> tuple[tuple[str, str], ...]:
    """Return the rungs below the chosen one that were not taken, with their reasons."""
    ladder = [step.rung for step in job.spec.recovery.rungs]
    below = ladder[: ladder.index(chosen)] if chosen in ladder else ladder
    return tuple((rung.value, reasons.get(rung, f"not first: {first}")) for rung in below)
