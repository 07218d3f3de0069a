"""Reads the cure that a replay found on the failing step: the rung, the places, and what it costs.

The record comes from the job, which can write anything. What is not a cure in every part is no cure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from rung.jobs.model.fault import Fault
from rung.jobs.model.knobs import RungName
from rung.jobs.model.terminal_text import hidden_character
from rung.jobs.spec.fields import LONGEST_PLACE, PLACE
from rung.recovery.decide.diagnosis import Diagnosis
from rung.recovery.decide.rungs import BF16_CAPABILITY, RungContext, why_fp32_does_not_fit
from rung.recovery.ledger.step_cost import SAME_SPEED, StepCost, fp32_cost

_R = RungName
# The rungs that a replay can name.
CURES = (_R.CLAMP_CONSTANTS, _R.FP32_MODULES, _R.BF16, _R.FP32)
# A replay adds places one by one and gives up beyond this many.
MOST_PLACES = 16
_COST = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,3})?%")
LOSS = "loss"


@dataclass(frozen=True)
class ReplayCure:
    """The smallest change with which the failing step is finite.

    `cost`: by how many per cent a forward pass gets slower with it, and `whole`: in FP32 as a whole; None: not known.
    """

    rung: RungName
    places: tuple[str, ...] = ()
    cost: float | None = None
    whole: float | None = None

    @property
    def was_run(self) -> bool:
        """Return whether the replay computed the step with this cure, and did not only conclude it."""
        return self.places != (LOSS,)

    def describe(self, present: str | None = None) -> str:
        """Say what was seen, as a sentence for a person. `present`: the places that were in FP32 at that step."""
        slower = "" if self.cost is None else f": {self.cost:g} % slower" if self.cost else ": no slower"
        if self.rung is _R.CLAMP_CONSTANTS:
            return "the same step is finite once its constants are clamped to FP16's limit; all of it stays FP16"
        if self.rung is _R.BF16:
            return f"the same step is finite in bf16{slower}; nothing narrower was found"
        if self.rung is _R.FP32:
            return "the same step is finite in FP32; nothing narrower was found"
        where, rest = f"FP32 in {listed(self.places)} {'too' if present else 'only'}", "the rest stays FP16"
        if not self.was_run:
            return f"the model is finite in FP16 at the same step, and what follows it is not: {where}; {rest}"
        return f"the same step is finite with {where}{slower}; {rest}"


def read_cure(fault: Fault) -> ReplayCure | None:
    """Return the cure that the replay of a fault's step reports; None where it reports none, or nonsense."""
    name, _, listing = fault.replay.get("cure", "").partition(":")
    if name not in CURES:
        return None
    rung, places = RungName(name), tuple(listing.split(",")) if listing else ()
    if bool(places) is not (rung is _R.FP32_MODULES) or not _are_places(places):
        return None
    return ReplayCure(rung, places, _per_cent(fault, "cost"), _per_cent(fault, "whole"))


def _per_cent(fault: Fault, name: str) -> float | None:
    text = fault.replay.get(name, "")
    return float(text[:-1]) if _COST.fullmatch(text) else None


def _are_places(places: tuple[str, ...]) -> bool:
    if len(places) > MOST_PLACES or len(set(places)) < len(places):
        return False
    return all(len(each) <= LONGEST_PLACE and PLACE.fullmatch(each) and not hidden_character(each) for each in places)


def with_cure(diagnosis: Diagnosis, cure: ReplayCure | None, context: RungContext) -> Diagnosis:
    """Return the diagnosis with the cure as its first rung, if there is one; wider precisions follow it.

    Where places in FP32 would take as long as FP32 as a whole, that comes first: it needs no list that may grow.
    """
    if cure is None:
        return diagnosis
    # Where the replay found nothing narrower than FP32, nothing narrower is named.
    rest = () if cure.rung is _R.FP32 else tuple(rung for rung in diagnosis.rungs if rung is not cure.rung)
    whole = _cost_of_whole(cure, context)
    if whole is not None and cure.cost is not None and whole.is_no_more_than(1 + cure.cost / 100):
        rungs = (_R.FP32, cure.rung, *(rung for rung in rest if rung is not _R.FP32))
        return replace(diagnosis, rungs=rungs, first_why=_why_whole(whole, cure), places=cure.places)
    first_why = cure.describe(context.now.fp32_modules) + _price_of_whole(whole, context)
    proven = diagnosis.proven and cure.was_run
    return replace(diagnosis, rungs=(cure.rung, *rest), first_why=first_why, places=cure.places, proven=proven)


def _cost_of_whole(cure: ReplayCure, context: RungContext) -> StepCost | None:
    """Return what FP32 as a whole costs where it may take the place of the places; None: it may not.

    Where a GPU has bf16, that is the next wider precision, and costs nothing.
    """
    gpu = context.gpu
    if cure.rung is not _R.FP32_MODULES or gpu is None or gpu.capability >= BF16_CAPABILITY:
        return None
    if why_fp32_does_not_fit(context):
        return None
    return fp32_cost(gpu, context.fp32_in_trials, None if cure.whole is None else 1 + cure.whole / 100)


def _why_whole(whole: StepCost, cure: ReplayCure) -> str:
    assert cure.cost is not None
    places = 1 + cure.cost / 100
    relation = "less" if SAME_SPEED * whole.factor < places else "the same within a tenth"
    costs = f"FP32 as a whole costs {whole}, FP32 in {listed(cure.places)} only {places:.3g}x"
    return f"the same step is finite with either, and {costs}: {relation}, without a list of places that may grow"


def _price_of_whole(whole: StepCost | None, context: RungContext) -> str:
    """Say what FP32 as a whole costs, where that was measured, or is little by the table."""
    if whole is None or (not whole.is_measured and context.gpu is not None and context.gpu.fp16_tensor_cores):
        return ""
    return f"; FP32 as a whole costs {whole}"


def listed(places: tuple[str, ...]) -> str:
    """Return places as a person lists them: head.norm, head.out and the loss."""
    words = ["the loss" if place == LOSS else place for place in places]
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
