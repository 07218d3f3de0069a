"""Defines what each rung does to the knobs, or why it cannot be taken. rung_choice.py decides which rung to take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rung.jobs.job import Attempt
from rung.jobs.model.batch_split import largest_split
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.hands import describe_no_hands
from rung.jobs.model.knobs import Knobs, Precision, RungName
from rung.jobs.spec.fields import parse_size
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.knob_channels import outside_channels, says_it_knows, why_unreachable
from rung.jobs.spec.recovery_spec import RungSpec
from rung.recovery.ledger.ledger import EMPTY, Ledger
from rung.recovery.monitors.fault_groups import BAD_NUMBERS
from rung.recovery.signatures.memory_figures import MemoryFigures, read_memory_figures

# max_norm when a job clips already. Field reports go 5 -> 1 -> 0.5.
CLIP_VALUES = (5.0, 1.0, 0.5)
# max_norm when clipping is first turned on: the value most public recipes use.
CLIP_FIRST = 1.0
# 0.1 cured too high an lr together with clip 1.0; 0.5 is the usual milder choice.
LR_FACTOR = 0.1
# Below a thousandth of the original lr, a run no longer learns.
LR_FLOOR = 1e-3
# The default of torch, then 5000 from field reports.
GROWTH_INTERVALS = (2000, 5000, 10000)
# Skip from a little before the onset to a little after the fault: the bad gradient is from an earlier update than the
# loss that shows it.
SKIP_BEFORE, SKIP_AFTER = 5, 5
# PaLM skipped 200 to 500 batches around a spike; a longer range is not a spike.
SKIP_MOST = 500
# So many times the batch goes down to the next smaller split; then to half or less, so that the attempts suffice.
NEXT_SMALLER_BATCHES = 3
# The first GPUs that compute in bf16.
BF16_CAPABILITY = (8, 0)
# So many lists of places are tried, each longer than the one before; then a wider precision.
MOST_LISTS = 3
# `head.norm.*`: the module with all that is in it.
WHOLE = ".*"


@dataclass(frozen=True)
class RungContext:
    """What a rung depends on: the knobs, the values of the script itself, the fault and the GPU."""

    spec: JobSpec
    # The knobs to change from. None for a knob: the script's own value.
    proven_knobs: Knobs
    # The knobs as a person set them.
    original: Knobs
    # What the script used before any rung changed it. None for a knob: not seen, or off.
    script_values: Knobs = field(default_factory=Knobs)
    fault: Fault | None = None
    gpu: Gpu | None = None
    attempts: tuple[Attempt, ...] = ()
    # What rungs did for other runs, for `ladder: auto`.
    ledger: Ledger = EMPTY
    # How many times as long a step took in FP32 as in FP16, in trials of this job; None: not measured.
    fp32_in_trials: float | None = None

    @property
    def no_hands(self) -> str:
        """Return why Rung cannot set knobs from inside; empty if it can, or where that is not known."""
        return next((attempt.hands for attempt in reversed(self.attempts) if attempt.hands is not None), "")

    @property
    def now(self) -> Knobs:
        """Return the values in force."""
        return with_defaults(self.proven_knobs, self.script_values)

    @property
    def first(self) -> Knobs:
        """Return the values in force before any rung."""
        return with_defaults(self.original, self.script_values)


def with_defaults(asked: Knobs, script_values: Knobs) -> Knobs:
    """Return the requested knobs, with the script's own value for each that is not requested."""
    return asked.but(**{name: value for name, value in vars(script_values).items() if getattr(asked, name) is None})


ApplyRung = Callable[[RungSpec, RungContext], Knobs | str]


def apply_rung(step: RungSpec, context: RungContext) -> Knobs | str:
    """Return the knobs after this rung, or the reason why it cannot be taken."""
    after = RUNGS[step.rung](step, context)
    if isinstance(after, str):
        return after
    changes = after.changes_from(context.proven_knobs).items()
    reasons = (_why_out_of_reach(context, name, new) for name, (_, new) in changes)
    return next(filter(None, reasons), after)


def _why_out_of_reach(context: RungContext, name: str, value: object) -> str | None:
    """Return why this knob cannot reach the script; None if it can."""
    if context.no_hands and not outside_channels(context.spec, name):
        return f"{name} can only be set from inside, where nothing is set. {describe_no_hands(context.no_hands)}"
    return why_unreachable(context.spec, name, value)


def _raise_clip(step: RungSpec, context: RungContext) -> Knobs | str:
    clip = context.now.clip
    if step.values:
        index = step.values.index(clip) + 1 if clip in step.values else 0
        values = step.values[index:]
    elif clip is None:
        values = (CLIP_FIRST,)
    else:
        values = tuple(value for value in CLIP_VALUES if value < clip)
    return context.proven_knobs.but(clip=values[0]) if values else f"clip is already at {clip:g}, the tightest value"


def _lower_lr(step: RungSpec, context: RungContext) -> Knobs | str:
    lr, first = context.now.lr, context.first.lr
    if lr is None or first is None:
        return "the job states no lr, and none was seen in it"
    lower = float(f"{lr * (step.values[0] if step.values else LR_FACTOR):.6g}")
    if lower < first * LR_FLOOR:
        return f"lr is already {lr:g}, and a thousandth of {first:g} is the floor"
    return context.proven_knobs.but(lr=lower)


def _increase_growth_interval(step: RungSpec, context: RungContext) -> Knobs | str:
    if context.now.precision not in (None, Precision.AMP_FP16):
        return f"there is no loss scaler in {context.now.precision}"
    current = context.now.growth_interval or GROWTH_INTERVALS[0]
    values = [int(value) for value in step.values or GROWTH_INTERVALS if int(value) > current]
    return context.proven_knobs.but(growth_interval=values[0]) if values else f"growth_interval is already {current}"


def _native_fp16(step: RungSpec, context: RungContext) -> Knobs | str:
    # Updates of plain FP16 parameters make bad numbers (Adam's eps rounds to 0), and no error about a dtype.
    if lacks_fp32_values(context) and context.fault is not None and context.fault.kind in BAD_NUMBERS:
        return context.proven_knobs.but(precision=Precision.NATIVE_FP16)
    if context.now.precision in (Precision.NATIVE_FP16, Precision.FP32):
        return f"the run is already in {context.now.precision}"
    return context.proven_knobs.but(precision=Precision.NATIVE_FP16)


def lacks_fp32_values(context: RungContext) -> bool:
    """Return whether a script trains FP16 parameters by itself, and Rung can give its optimizer FP32 values.

    Once Rung asks for native_fp16, the optimizer has them. By flags alone they cannot be given.
    """
    can_be_given = context.spec.knobs.mode != "flags" and not context.no_hands
    is_plain = context.proven_knobs.precision is None and context.script_values.precision is Precision.NATIVE_FP16
    return can_be_given and is_plain


def _fp32(step: RungSpec, context: RungContext) -> Knobs | str:
    if context.now.precision is Precision.FP32:
        return "the run is already in fp32"
    if too_large := why_fp32_does_not_fit(context):
        return too_large
    return context.proven_knobs.but(precision=Precision.FP32, fp32_modules=None, matmul=_matmul_of_fp32(context))


def _matmul_of_fp32(context: RungContext) -> str | None:
    """Return what matmuls of FP32 numbers compute in; None: the GPU has no choice, or the script decides."""
    matmul = context.spec.recovery.fp32 if context.gpu is not None and context.gpu.has_tf32 else None
    return None if matmul is None or _why_out_of_reach(context, "matmul", matmul) else matmul


def why_fp32_does_not_fit(context: RungContext) -> str | None:
    """Return what a replay has shown of FP32's memory, with this batch and on no smaller a GPU; None: it may fit."""
    if context.now.precision is Precision.FP32:
        return None
    here = context.gpu.memory if context.gpu is not None else 0
    for attempt in context.attempts:
        replay = attempt.fault.replay if attempt.fault is not None else {}
        there = attempt.gpus[0].memory if attempt.gpus else here
        if attempt.asked.batch != context.proven_knobs.batch or there < here:
            continue
        shown = f"FP32 as a whole does not fit the GPU's memory: the replay of step {replay.get('step', '?')}"
        if replay.get("fp32") == "oom":
            return f"{shown} ran out of it"
        if replay.get("fits") == "no":
            return f"{shown} shows that it needs {replay.get('needs', '?')} or more of {replay.get('limit', '?')}"
    return None


def _fp32_params(step: RungSpec, context: RungContext) -> Knobs | str:
    if context.now.params == "fp32":
        return "the trainable parameters are already in FP32"
    if context.now.precision in (Precision.NATIVE_FP16, Precision.FP32):
        return f"there is no AMP in {context.now.precision} for FP32 parameters to work under"
    return context.proven_knobs.but(params="fp32")


def _bf16(step: RungSpec, context: RungContext) -> Knobs | str:
    if context.now.precision in (Precision.BF16, Precision.FP32):
        return f"the run is already in {context.now.precision}"
    # Without a GPU the run is on a CPU, and every CPU has bf16.
    if context.gpu is not None and context.gpu.capability < BF16_CAPABILITY:
        return f"{context.gpu.name} has no bf16, which begins with sm_80"
    if not context.spec.recovery.names_its_rungs and not says_it_knows(context.spec, Precision.BF16):
        return "nothing in the job file says that the script knows bf16: give knobs.framework or knobs.precision_text"
    return context.proven_knobs.but(precision=Precision.BF16, fp32_modules=None, matmul=None)


def _skip_data(step: RungSpec, context: RungContext) -> Knobs | str:
    fault = context.fault
    if fault is None or fault.step is None or fault.began is None:
        return "the updates around the fault are not known"
    if fault.shape != "spike" and fault.replay.get("inputs") != "nonfinite":
        return "neither a spike nor a bad batch: there is nothing to leave out"
    first, last = max(1, fault.began - SKIP_BEFORE), fault.step + SKIP_AFTER
    if last - first >= SKIP_MOST:
        return f"updates {first} to {last} are too many to leave out"
    span = f"{first}-{last}"
    if span == context.proven_knobs.skip:
        return f"updates {span} are already left out"
    return context.proven_knobs.but(skip=span)


def _lower_batch(step: RungSpec, context: RungContext) -> Knobs | str:
    batch = context.now.batch
    if batch is None:
        return "the job states no batch"
    total = batch * (context.now.accumulation or 1)
    most = batch // 2 if _batch_reductions(context) >= NEXT_SMALLER_BATCHES else batch - 1
    figures = _memory_figures(context)
    split = largest_split(batch, total, min(most, figures.largest_batch(batch)) if figures else most)
    if split is None:
        return f"a batch of {batch} cannot be split"
    return context.proven_knobs.but(batch=split, accumulation=total // split)


def _batch_reductions(context: RungContext) -> int:
    return sum(attempt.rung == RungName.LOWER_BATCH for attempt in context.attempts)


def _memory_figures(context: RungContext) -> MemoryFigures | None:
    if context.fault is None or context.fault.kind is not FaultKind.OOM:
        return None
    limit = context.spec.resources.memory
    return read_memory_figures(context.fault.evidence, parse_size(limit) if limit else None)


def why_so_small_a_batch(context: RungContext, chosen: int | None) -> str | None:
    """Return what the message says about a larger split that was left out; None: it has ruled out none."""
    batch, figures = context.now.batch, _memory_figures(context)
    if batch is None or figures is None:
        return None
    larger = largest_split(batch, batch * (context.now.accumulation or 1), batch)
    if larger is None or larger == chosen or larger <= figures.largest_batch(batch):
        return None
    needed, available = (f"{size / 2**30:.2f} GiB" for size in (figures.needed, figures.available))
    return f"a batch of {batch} needs {needed} or more of {available}, so one of {larger} cannot fit"


def _clamp_constants(step: RungSpec, context: RungContext) -> Knobs | str:
    if context.now.constants == "clamp":
        return "constants are already clamped"
    # Also in bf16, which cannot hold the lowest number of FP32.
    if context.now.precision is Precision.FP32:
        return "the run is in fp32, where every constant of a script fits"
    return context.proven_knobs.but(constants="clamp")


def _fp32_modules(step: RungSpec, context: RungContext) -> Knobs | str:
    if context.now.precision in (Precision.BF16, Precision.FP32):
        return f"the run is in {context.now.precision}, not in FP16"
    if not step.places:
        return "no replay has named places, and the job file names no places: write {fp32_modules: [head.norm, loss]}"
    present = context.now.fp32_modules.split(",") if context.now.fp32_modules else []
    places = _longer_list(present, step.places)
    if places == present:
        return f"{', '.join(step.places)}: already in FP32"
    if sum(attempt.rung == RungName.FP32_MODULES for attempt in context.attempts) >= MOST_LISTS:
        return f"{MOST_LISTS} lists of places did not hold, so the numbers go on growing"
    return context.proven_knobs.but(fp32_modules=",".join(places), matmul=_matmul_of_fp32(context))


def _longer_list(present: list[str], added: tuple[str, ...]) -> list[str]:
    """Return the present places and the added ones; a module as a whole takes the place of its own code."""
    new = [place for place in added if place not in present and place + WHOLE not in present]
    return [*(place for place in present if place + WHOLE not in new), *new]


RUNGS: dict[RungName, ApplyRung] = {
    RungName.RAISE_CLIP: _raise_clip,
    RungName.LOWER_LR: _lower_lr,
    RungName.INCREASE_GROWTH_INTERVAL: _increase_growth_interval,
    RungName.NATIVE_FP16: _native_fp16,
    RungName.CLAMP_CONSTANTS: _clamp_constants,
    RungName.FP32_MODULES: _fp32_modules,
    RungName.BF16: _bf16,
    RungName.FP32: _fp32,
    RungName.FP32_PARAMS: _fp32_params,
    RungName.SKIP_DATA: _skip_data,
    RungName.LOWER_BATCH: _lower_batch,
}
