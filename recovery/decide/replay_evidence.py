"""Owns the reading of a replay: the failing step computed once more in FP32 tells data from state, and code from both.

A replay speaks of one step. Where the numbers had soared before, the run was led there, and the replay decides nothing.
"""

from __future__ import annotations

from rung.jobs.job import Attempt
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Precision, RungName
from rung.recovery.decide.diagnosis import Diagnosis
from rung.recovery.decide.rungs import RungContext

_R = RungName
# A first update or two can lead anywhere when the lr is far too high; later on, weights that are finite are sane.
EARLY = 16
# Norms at the start of a training are about 1 to 10; recipes clip at 0.5 to 5.
HUGE = 100.0
# A replay this many steps before the fault still speaks of it; replays are made at doubling distances.
STALE = 64
# Weights that as a whole have grown this much within the first updates were thrown there by them.
GROWN = 3.0
# No training takes its weights this far: whatever is not finite now, updates that blew up have led there.
WRECKED = 1000.0
UNBOUNDED = "log, sqrt, exp or division without an epsilon, log(sigmoid(x))"
_BAD, _GOOD = "nonfinite", "finite"


def read_replay(fault: Fault, scene: RungContext, wider: tuple[RungName, ...]) -> Diagnosis | None:
    """Return what a replay of the fault's step points at; None where it tells nothing."""
    told = fault.replay
    if not told or _is_stale(fault):
        return None
    if told.get("weights") == _BAD:
        return _of_state(scene)
    if told.get("inputs") == _BAD and told.get("fp32") != _GOOD:
        return _of_data(fault)
    if _grown(fault) >= WRECKED and (fault.step or 0) > EARLY:
        why = f"the weights have grown {told['grown']} times, as with too high an lr"
        return Diagnosis((_R.LOWER_LR, _R.RAISE_CLIP), why)
    if _BAD in (told.get("grads"), told.get("fp32")) and told.get("weights") == _GOOD:
        return _of_code(fault, scene)
    if _thrown(fault):
        rungs, why = first_updates(scene)
        return Diagnosis(rungs, f"the weights have grown {told['grown']} times within {fault.step} updates, {why}")
    if told.get("fp32") == _GOOD and told.get("weights") == _GOOD and scene.now.precision is not Precision.FP32:
        why = f"the same step is finite in FP32{_where(fault)}, so only the precision is at fault"
        return Diagnosis(wider, why)
    return None


def _is_stale(fault: Fault) -> bool:
    """Tell whether the replay is of a step long before the fault, such as a scaler's search for its first scale."""
    told = fault.replay.get("step", "")
    if fault.step is None or not told.isdecimal():
        return False
    return fault.step - int(told[:15]) > max(STALE, fault.step // 4)


def _thrown(fault: Fault) -> bool:
    """Tell whether the first updates of all have thrown the weights far off."""
    return _grown(fault) >= GROWN and fault.step is not None and fault.step <= EARLY


def _grown(fault: Fault) -> float:
    """Return how many times the weights as a whole have grown, as far as the replay told."""
    try:
        return float(fault.replay.get("grown", "0")[:15])
    except ValueError:
        return 0.0


def _where(fault: Fault) -> str:
    return f", and not finite here from {_place(fault)} on" if _place(fault) else ""


def _place(fault: Fault) -> str:
    """Name where the first bad number arose; what comes after the model is the script's own reckoning of the loss."""
    where = fault.replay.get("where", "")
    return "the loss" if where == "loss" else where


def _of_data(fault: Fault) -> Diagnosis:
    why = f"the inputs of step {fault.step} are not finite"
    return Diagnosis(
        (_R.SKIP_DATA,),
        why,
        verdict=f"{why}, though the weights are: the data is at fault, and no rung cures that",
        advice="find the samples of that batch and mend or drop them, or put skip_data on the ladder",
    )


def _of_code(fault: Fault, scene: RungContext) -> Diagnosis:
    place = f" in {_place(fault)}" if _place(fault) else ""
    if fault.replay.get("grads") == _BAD:
        said = f"the gradients are not finite in FP32 either{place}, though weights, inputs and loss are"
        advice = "look for sqrt, norm, log or division whose derivative has no bound at 0, and add an epsilon there"
    else:
        said = f"NaN in FP32 too{place}, with weights and inputs that are finite"
        advice = f"look there for {UNBOUNDED}, a row that is masked as a whole"
    verdict = f"{said}: a bug in the model's code, which no rung cures"
    tried = {attempt.rung for attempt in scene.attempts}
    rungs, why = first_updates(scene)
    left = tuple(rung for rung in rungs if rung not in tried)
    if fault.step is not None and 1 < fault.step <= EARLY and fault.replay.get("grads") != _BAD:
        return Diagnosis(left, f"not finite in FP32 either, after a few updates: {why}", verdict, advice)
    return Diagnosis((), "", verdict, advice)


def first_updates(scene: RungContext) -> tuple[tuple[RungName, ...], str]:
    """Return the rungs for a run that its first updates threw off; a norm far above the usual asks to be clipped."""
    norm = scene.fault.first_norm if scene.fault else None
    if norm is not None and norm > HUGE:
        return (_R.RAISE_CLIP, _R.LOWER_LR), f"the gradient norm was {norm:.4g}"
    return (_R.LOWER_LR,), "as with an lr far too high"


def _of_state(scene: RungContext) -> Diagnosis | None:
    """Read weights that are not finite: an update blew up; where that was in FP32 and out of the blue, it is code."""
    before = [attempt for attempt in scene.attempts[:-1] if _out_of_the_blue(attempt)]
    if scene.now.precision is Precision.FP32 and before and _out_of_the_blue(scene.attempts[-1]):
        first, last = before[0].fault_step, scene.attempts[-1].fault_step
        where = "again in FP32" if before[-1].asked.precision is scene.attempts[-1].asked.precision else "in FP32 too"
        verdict = f"NaN out of the blue at step {first} and {where} at step {last}: a bug in the model or the data"
        return Diagnosis((), "", verdict, f"look for {UNBOUNDED}")
    return None


def _out_of_the_blue(attempt: Attempt) -> bool:
    """Tell whether an attempt's loss became NaN from one step to the next, out of its normal range."""
    fault = attempt.fault
    if fault is None or fault.kind not in (FaultKind.NAN_LOSS, FaultKind.GRAD_NONFINITE) or not fault.replay:
        return False
    # A clip reports the norm, which is NaN one step before the loss.
    since = 1 if attempt.asked.clip is not None else 0
    return fault.shape != "drift" and (fault.onset is None or fault.onset >= (fault.step or 0) - since)
