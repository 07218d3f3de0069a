"""Reads a replay: the failing step, computed again in FP32, shows whether data, weights or code are at fault.

A replay covers one step. When the loss had blown up before that step, the replay is not used.
"""

from __future__ import annotations

from dataclasses import replace

from rung.jobs.job import Attempt
from rung.jobs.model.fault import Fault
from rung.jobs.model.knobs import Precision, RungName
from rung.recovery.decide.diagnosis import Diagnosis
from rung.recovery.decide.replay_cure import read_cure, with_cure
from rung.recovery.decide.rungs import RungContext
from rung.recovery.monitors.fault_groups import BAD_VALUE

_R = RungName
# A loss that is NaN this early is not caused by training: the model computes it with its first weights.
UNTRAINED = 2
# The first updates can ruin the weights when the lr is far too high; later, finite weights are good.
EARLY = 16
# Norms at the start of a training are about 1 to 10; recipes clip at 0.5 to 5.
HUGE = 100.0
# A replay at most this many steps before the fault still counts; replays are made at doubling distances.
MAX_REPLAY_DISTANCE = 64
# Weights whose norm has grown this many times within the first updates were ruined by them.
GROWN = 3.0
# No healthy training grows its weights this many times: earlier updates blew up, whatever is not finite now.
WRECKED = 1000.0
UNBOUNDED = "log, sqrt, exp or division without an epsilon, log(sigmoid(x))"
_BAD, _GOOD = "nonfinite", "finite"


def read_replay(fault: Fault, context: RungContext, wider: tuple[RungName, ...]) -> Diagnosis | None:
    """Return the diagnosis from the replay of a fault's step; None when the replay shows nothing."""
    replay = fault.replay
    if not replay or is_stale(fault):
        return None
    if replay.get("weights") == _BAD:
        return _diagnose_state(context)
    if replay.get("inputs") == _BAD and replay.get("fp32") != _GOOD:
        return _diagnose_data(fault)
    if _weight_growth(fault) >= WRECKED and (fault.step or 0) > EARLY:
        why = f"the weights have grown {replay['grown']} times, as with too high an lr"
        return Diagnosis((_R.LOWER_LR, _R.RAISE_CLIP), why)
    if _BAD in (replay.get("grads"), replay.get("fp32")) and replay.get("weights") == _GOOD:
        return _diagnose_code(fault, context)
    if _first_updates_blew_up(fault):
        rungs, why = rungs_for_first_updates(context)
        return Diagnosis(rungs, f"the weights have grown {replay['grown']} times within {fault.step} updates, {why}")
    if replay.get("fp32") == _GOOD and replay.get("weights") == _GOOD and context.now.precision is not Precision.FP32:
        return _diagnose_precision(fault, context, wider)
    return None


def _diagnose_precision(fault: Fault, context: RungContext, wider: tuple[RungName, ...]) -> Diagnosis:
    """Diagnose a step that is finite in FP32: the cure that the replay has found, then the wider precisions."""
    why = f"the same step is finite in FP32{_where(fault)}, so only the precision is at fault"
    diagnosis = Diagnosis(wider, why, proven=_was_learning(context))
    found = with_cure(diagnosis, read_cure(fault), context)
    # No lr and no clipping has a part in what the first weights compute.
    return replace(found, proven=True) if fault.step is not None and fault.step <= UNTRAINED else found


def _was_learning(context: RungContext) -> bool:
    """Return whether the run learned until the fault: a step that is finite in FP32 does not cure too high an lr."""
    return bool(context.attempts and context.attempts[-1].was_falling is not False)


def is_stale(fault: Fault) -> bool:
    """Return whether the replay is of a step long before the fault, such as one that a new scaler skipped."""
    step = fault.replay.get("step", "")
    if fault.step is None or not step.isdecimal():
        return False
    return fault.step - int(step[:15]) > max(MAX_REPLAY_DISTANCE, fault.step // 4)


def _first_updates_blew_up(fault: Fault) -> bool:
    """Return whether the first updates of the run have ruined the weights."""
    return _weight_growth(fault) >= GROWN and fault.step is not None and fault.step <= EARLY


def _weight_growth(fault: Fault) -> float:
    """Return how many times the norm of the weights has grown; 0 when the replay does not have it."""
    try:
        return float(fault.replay.get("grown", "0")[:15])
    except ValueError:
        return 0.0


def _where(fault: Fault) -> str:
    return f", and not finite here from {_place(fault)} on" if _place(fault) else ""


def _place(fault: Fault) -> str:
    """Return the module with the first bad number, or "the loss" for the loss computation of the script."""
    where = fault.replay.get("where", "")
    return "the loss" if where == "loss" else where


def _diagnose_data(fault: Fault) -> Diagnosis:
    why = f"the inputs of step {fault.step} are not finite"
    return Diagnosis(
        (_R.SKIP_DATA,),
        why,
        verdict=f"{why}, though the weights are: the data is at fault, and no rung cures that",
        advice="find the samples of that batch and correct or drop them, or put skip_data on the ladder",
    )


def _diagnose_code(fault: Fault, context: RungContext) -> Diagnosis:
    place = f" in {_place(fault)}" if _place(fault) else ""
    if fault.replay.get("grads") == _BAD:
        finding = f"the gradients are not finite in FP32 either{place}, though weights, inputs and loss are"
        advice = "look for sqrt, norm, log or division whose derivative has no bound at 0, and add an epsilon there"
    else:
        finding = f"NaN in FP32 too{place}, with weights and inputs that are finite"
        advice = f"look there for {UNBOUNDED}, a row that is masked as a whole"
    verdict = f"{finding}: a bug in the model's code, which no rung cures"
    tried = {attempt.rung for attempt in context.attempts}
    rungs, why = rungs_for_first_updates(context)
    left = tuple(rung for rung in rungs if rung not in tried)
    if fault.step is not None and 1 < fault.step <= EARLY and fault.replay.get("grads") != _BAD:
        return Diagnosis(left, f"not finite in FP32 either, after a few updates: {why}", verdict, advice)
    return Diagnosis((), "", verdict, advice)


def rungs_for_first_updates(context: RungContext) -> tuple[tuple[RungName, ...], str]:
    """Return the rungs for a run that its first updates ruined; a huge norm is clipped first."""
    norm = context.fault.first_norm if context.fault else None
    if norm is not None and norm > HUGE:
        return (_R.RAISE_CLIP, _R.LOWER_LR), f"the gradient norm was {norm:.4g}"
    return (_R.LOWER_LR,), "as with an lr far too high"


def _diagnose_state(context: RungContext) -> Diagnosis | None:
    """Diagnose weights that are not finite: a sudden NaN in FP32 too is a bug in the code."""
    before = [attempt for attempt in context.attempts[:-1] if _was_sudden(attempt)]
    if context.now.precision is Precision.FP32 and before and _was_sudden(context.attempts[-1]):
        first, last = before[0].fault_step, context.attempts[-1].fault_step
        where = "again in FP32" if before[-1].asked.precision is context.attempts[-1].asked.precision else "in FP32 too"
        verdict = f"sudden NaN at step {first} and {where} at step {last}: a bug in the model or the data"
        return Diagnosis((), "", verdict, f"look for {UNBOUNDED}")
    return None


def _was_sudden(attempt: Attempt) -> bool:
    """Return whether an attempt's loss went from its normal range to NaN in one step."""
    fault = attempt.fault
    if fault is None or fault.kind not in BAD_VALUE or not fault.replay:
        return False
    # A clip reports the norm, which is NaN one step before the loss.
    since = 1 if attempt.asked.clip is not None else 0
    return fault.shape != "drift" and (fault.onset is None or fault.onset >= (fault.step or 0) - since)
