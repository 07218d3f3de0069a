"""Owns the rungs: what each one does to the knobs, or why it cannot. Pure; which rung to take is decide's question."""

from __future__ import annotations

from collections.abc import Callable

from jobs.knobs import Knobs, Precision, RungName
from jobs.recoveryspec import RungSpec
from jobs.spec import JobSpec

# max_norm when a job clips already: each step tighter. Field reports go 5 -> 1 -> 0.5.
CLIP_VALUES = (5.0, 1.0, 0.5)
# max_norm when clipping is first turned on: the value most public recipes use.
CLIP_FIRST = 1.0
# 0.1 cured too high an lr together with clip 1.0; 0.5 is the usual milder choice.
LR_FACTOR = 0.1
# Below a thousandth of what was asked, a lower lr only hides that the run has stopped.
LR_FLOOR = 1e-3
# torch's own default, then the field reports' 5000.
GROWTH_INTERVALS = (2000, 5000, 10000)

Climb = Callable[[RungSpec, Knobs, Knobs], Knobs | str]


def climb(step: RungSpec, knobs: Knobs, spec: JobSpec, original: Knobs) -> Knobs | str:
    """Return the knobs one rung further, or the reason why this rung cannot be taken."""
    after = RUNGS[step.rung](step, knobs, original)
    if isinstance(after, str):
        return after
    deaf = [name for name in after.changes_from(knobs) if not spec.receives(name)]
    if deaf:
        return f"the job cannot receive {deaf[0]}: `run` and `envs` have no {{{deaf[0]}}}, and knobs.mode is not inside"
    return after


def _raise_clip(step: RungSpec, knobs: Knobs, original: Knobs) -> Knobs | str:
    if step.values:
        index = step.values.index(knobs.clip) + 1 if knobs.clip in step.values else 0
        values = step.values[index:]
    elif knobs.clip is None:
        values = (CLIP_FIRST,)
    else:
        values = tuple(value for value in CLIP_VALUES if value < knobs.clip)
    return knobs.but(clip=values[0]) if values else f"clip is already at {knobs.clip:g}, the tightest value"


def _lower_lr(step: RungSpec, knobs: Knobs, original: Knobs) -> Knobs | str:
    if knobs.lr is None or original.lr is None:
        return "the job states no lr"
    lower = float(f"{knobs.lr * (step.values[0] if step.values else LR_FACTOR):.6g}")
    if lower < original.lr * LR_FLOOR:
        return f"lr is already {knobs.lr:g}, and a thousandth of {original.lr:g} is the floor"
    return knobs.but(lr=lower)


def _increase_growth_interval(step: RungSpec, knobs: Knobs, original: Knobs) -> Knobs | str:
    if knobs.precision not in (None, Precision.AMP_FP16):
        return f"there is no loss scaler in {knobs.precision}"
    current = knobs.growth_interval or 0
    values = [int(value) for value in step.values or GROWTH_INTERVALS if int(value) > current]
    return knobs.but(growth_interval=values[0]) if values else f"growth_interval is already {current}"


def _native_fp16(step: RungSpec, knobs: Knobs, original: Knobs) -> Knobs | str:
    if knobs.precision in (Precision.NATIVE_FP16, Precision.FP32):
        return f"the run is already in {knobs.precision}"
    return knobs.but(precision=Precision.NATIVE_FP16)


def _fp32(step: RungSpec, knobs: Knobs, original: Knobs) -> Knobs | str:
    if knobs.precision is Precision.FP32:
        return "the run is already in fp32"
    return knobs.but(precision=Precision.FP32)


def _lower_batch(step: RungSpec, knobs: Knobs, original: Knobs) -> Knobs | str:
    if knobs.batch is None:
        return "the job states no batch"
    if knobs.batch % 2:
        return f"a batch of {knobs.batch} cannot be halved"
    return knobs.but(batch=knobs.batch // 2, accumulation=(knobs.accumulation or 1) * 2)


RUNGS: dict[RungName, Climb] = {
    RungName.RAISE_CLIP: _raise_clip,
    RungName.LOWER_LR: _lower_lr,
    RungName.INCREASE_GROWTH_INTERVAL: _increase_growth_interval,
    RungName.NATIVE_FP16: _native_fp16,
    RungName.FP32: _fp32,
    RungName.LOWER_BATCH: _lower_batch,
}
