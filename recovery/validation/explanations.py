"""Answers what people ask after a validation: slower than FP32? memory not reduced? why is it worse?

Each answer lists the likely causes for these two runs, from GPU, batch, precision and the log. An answer that is not
known explains how to measure it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from rung.jobs.model.gpu import gpu_type
from rung.jobs.model.knobs import Precision
from rung.recovery.decide.treatments import TREATMENTS
from rung.recovery.validation.run_figures import Usage
from rung.recovery.validation.verdict import Judgement, Run, Verdict

# Two runs of the same job differ by up to this share.
NOISE = 0.03
SMALL_BATCH = 32
# In a step this short (seconds), most of the time is for kernel launches.
SHORT_STEP = 0.01
OFTEN_SKIPPED = 0.02
# FP16 gradients below this share of FP32's have lost values below 6e-8.
UNDERFLOW = 0.5
UNKNOWN = "a device that is not known"
MEASURE = "it is measured where the script is Python with torch 2 and ends by itself"


class Source(StrEnum):
    """Where a time per step comes from, the most exact first."""

    INSIDE = "measured in the process, from update to update"
    LOG = "by the run's own words"
    WHOLE = "from the first to the last step seen, roughly"


@dataclass(frozen=True)
class Setting:
    """What is known about how both runs ran."""

    precision: str
    batch: int | None = None
    # Rung's own code runs in the script (inside, zero-edit), and with it the compensation of FP16 weights.
    reached: bool = False


@dataclass(frozen=True)
class Answer:
    question: str
    answer: str
    causes: tuple[str, ...] = ()


def paces(baseline: Run, candidate: Run) -> tuple[float, float, Source] | None:
    """Return the seconds per step of both runs, from the most exact source that both have."""
    for source in Source:
        one, other = pace(baseline, source), pace(candidate, source)
        if one and other:
            return one, other, source
    return None


def pace(run: Run, source: Source) -> float | None:
    progress = run.figures.progress
    if source is Source.INSIDE:
        return run.figures.usage.seconds_per_step if run.figures.usage else None
    if source is Source.LOG:
        speeds = progress.throughput
        if "s/it" in speeds or "ms/it" in speeds:
            return speeds["s/it"] if "s/it" in speeds else speeds["ms/it"] / 1000
        return 1 / speeds["it/s"] if speeds.get("it/s") else None
    if run.seconds is None or progress.first_step is None or progress.furthest_step is None:
        return None
    steps = progress.furthest_step - progress.first_step
    return run.seconds / steps if steps > 0 else None


def memories(baseline: Run, candidate: Run) -> tuple[int, int, str] | None:
    """Return the peak memory of both runs and which memory it is: the GPU's, where both used one."""
    one, other = baseline.figures.usage, candidate.figures.usage
    if one is None or other is None:
        return None
    if one.gpu_bytes and other.gpu_bytes:
        return one.gpu_bytes, other.gpu_bytes, "GPU memory"
    if one.rss_bytes and other.rss_bytes and not one.gpu_bytes and not other.gpu_bytes:
        return one.rss_bytes, other.rss_bytes, "memory of the process"
    return None


def slower(baseline: Run, candidate: Run, setting: Setting) -> Answer:
    question = "Is it slower than FP32?"
    found = paces(baseline, candidate)
    if found is None:
        return Answer(question, f"not known: no time per step of both runs; {MEASURE}")
    one, other, source = found
    if not same_device(baseline, candidate):
        return Answer(question, f"not comparable: one ran on {gpu_of(baseline)}, the other on {gpu_of(candidate)}")
    figures = f"{one * 1000:.4g} ms a step in FP32, {other * 1000:.4g} ms in {candidate.name} ({source})"
    change = other / one - 1
    if abs(change) < NOISE:
        return Answer(question, f"as fast as FP32: {figures}", tuple(_why_slow(candidate, setting, other)))
    if change < 0:
        return Answer(question, f"no, {-change:.0%} faster: {figures}")
    return Answer(question, f"yes, {change:.0%} slower: {figures}", tuple(_why_slow(candidate, setting, other)))


def gpu_of(run: Run) -> str:
    """Return the short name of the GPU that a run used, or "a CPU"."""
    usage = run.figures.usage
    name = usage.gpu if usage and usage.gpu else run.gpu
    return gpu_type(name) if name else "a CPU" if usage else UNKNOWN


def same_device(one: Run, other: Run) -> bool:
    """Return whether the times of two runs can be compared.

    A run whose device is unknown counts as on the device of the other run, when both ran on the same host.
    """
    first, second = gpu_of(one), gpu_of(other)
    return first == second or (UNKNOWN in (first, second) and one.host == other.host)


def _why_slow(run: Run, setting: Setting, seconds: float) -> Iterator[str]:
    usage, skipped = run.figures.usage, _skipped_share(run)
    if skipped > OFTEN_SKIPPED:
        yield f"{skipped:.0%} of its updates were skipped by the loss scaler: their time bought nothing"
    if usage is None:
        return
    if not usage.gpu:
        yield "it ran on a CPU: there FP16 is converted and emulated, with no tensor cores to gain from"
    elif usage.capability is not None and usage.capability < (7, 0):
        yield f"{gpu_type(usage.gpu)} has no tensor cores: FP16 gains little there, and the conversions cost"
    else:
        yield from _why_slow_with_tensor_cores(usage, setting, seconds)
    if setting.precision in ("", Precision.AMP_FP16, Precision.BF16):
        yield "autocast converts weights and inputs on every step; fewer changes of dtype between layers cost less"


def _why_slow_with_tensor_cores(usage: Usage, setting: Setting, seconds: float) -> Iterator[str]:
    if setting.batch is not None and setting.batch < SMALL_BATCH:
        yield f"a batch of {setting.batch} is small: tensor cores want larger products; try twice that"
    if seconds < SHORT_STEP:
        yield f"a step takes {seconds * 1000:.3g} ms: at this size launching kernels decides, not computing"
    elif setting.batch is None or setting.batch >= SMALL_BATCH:
        yield "layers whose sizes are no multiples of 8 are kept off the tensor cores"
    if usage.capability is not None and usage.capability >= (8, 0):
        yield "FP32 may use TF32 tensor cores on this GPU, so that the baseline is fast already"


def memory(baseline: Run, candidate: Run, setting: Setting) -> Answer:
    question = "Is memory not reduced?"
    found = memories(baseline, candidate)
    if found is None:
        return Answer(question, f"not known: no peak of both runs; {MEASURE}")
    one, other, whose = found
    figures = f"{whose} at its peak {one / 2**20:,.0f} MiB in FP32, {other / 2**20:,.0f} MiB in {candidate.name}"
    change = other / one - 1
    if change < -NOISE:
        return Answer(question, f"it is, by {-change:.0%}: {figures}")
    word = f"it grew by {change:.0%}" if change > NOISE else "it is not reduced"
    return Answer(question, f"{word}: {figures}", tuple(_why_not_smaller(candidate, setting, whose)))


def _why_not_smaller(run: Run, setting: Setting, whose: str) -> Iterator[str]:
    if whose != "GPU memory":
        yield "it is the whole process that was measured: Python, torch and the data are most of it, not the tensors"
    if setting.precision == Precision.NATIVE_FP16:
        if setting.reached:
            yield "the optimizer's state and the compensation of the FP16 weights are kept in FP32, as they must be"
        return
    yield "mixed precision keeps FP32 master weights and the optimizer's state in FP32 (Adam: two numbers a weight)"
    yield "during the forward pass autocast holds FP16 copies of the weights beside the FP32 ones"
    if setting.batch is not None and setting.batch < SMALL_BATCH:
        yield f"only activations become smaller, and with a batch of {setting.batch} they are the smaller part"


def worse(baseline: Run, candidate: Run, judgement: Judgement, setting: Setting) -> Answer | None:
    """Return the likely causes of a worse metric; None when the candidate is not worse."""
    if judgement.verdict not in (Verdict.FAIL, Verdict.MARGINAL):
        return None
    causes = tuple(_why_worse(baseline, candidate, setting))
    return Answer("Why is it worse?" if judgement.verdict is Verdict.FAIL else "Why does it differ?", "", causes)


def _why_worse(baseline: Run, candidate: Run, setting: Setting) -> Iterator[str]:
    own, fp32 = candidate.figures, baseline.figures
    if setting.precision == Precision.NATIVE_FP16 and not setting.reached:
        yield "a weight in FP16 ignores updates below 0.0005 of its size: amp_fp16 keeps FP32 master weights for that"
    if candidate.fault is not None:
        yield f"{candidate.fault.kind}: {TREATMENTS[candidate.fault.kind].advice}"
    if own.bad_losses:
        yield f"{own.bad_losses} of {own.losses} losses were not finite: some operation leaves the range of FP16"
    skipped = _skipped_share(candidate)
    if skipped > OFTEN_SKIPPED:
        yield f"{skipped:.0%} of the updates were skipped for infinite gradients: it trained that much less"
    if own.lowest_scale is not None and own.lowest_scale < 1:
        yield f"the loss scale fell to {own.lowest_scale:g}: the forward pass itself overflows FP16"
    if own.median_norm is not None and fp32.median_norm and own.median_norm < UNDERFLOW * fp32.median_norm:
        yield (
            f"its gradients are small (median norm {own.median_norm:.3g}, in FP32 {fp32.median_norm:.3g}): they "
            "underflow; a loss scaler, or a larger init_scale, holds them up"
        )
    if candidate.fault is None:
        yield "some operation wants FP32 (long sums, exp, log, norms, a small eps) and runs in FP16: compute it in FP32"


def _skipped_share(run: Run) -> float:
    """Return the share of updates that were skipped; every skipped update is reported, but not every loss."""
    progress = run.figures.progress
    steps = (progress.furthest_step or 0) - (progress.first_step or 0) + 1
    return (run.figures.skipped or 0) / max(steps, run.figures.losses)
