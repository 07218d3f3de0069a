"""Says what a step in FP32 as a whole costs compared with FP16: as it was measured, or at most, by a table of GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rung.jobs.job import Attempt
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs, Precision

# Times of a step within a tenth of each other are the same.
SAME_SPEED = 1.1
# How many times as long FP32 takes at most, by the rates of data sheets for GPUs without bf16: FP16 tensor cores (V100
# 125 to 15.7 TFLOPS, TITAN RTX 130 to 16.3), or none (P100 21.2 to 10.6). Moving numbers of twice the size takes twice
# as long on all of them, also on those before sm_70 whose FP16 arithmetic is slower than a P100's.
WITH_TENSOR_CORES, WITHOUT_TENSOR_CORES = 8.0, 2.0


@dataclass(frozen=True)
class StepCost:
    """How many times as long a step in FP32 takes as one in FP16, and how that is known."""

    factor: float
    source: str
    is_measured: bool = True

    def __str__(self) -> str:
        return f"{self.factor:.3g}x ({self.source})"

    def is_no_more_than(self, places: float) -> bool:
        """Return whether FP32 as a whole is as fast as places in FP32 that take `places` times as long as FP16."""
        return self.factor <= SAME_SPEED * places


def fp32_cost(gpu: Gpu, in_trials: float | None, in_replay: float | None) -> StepCost:
    """Return what FP32 costs on a GPU: whole steps tell more than one forward pass, and both more than a table."""
    if in_trials is not None:
        return StepCost(in_trials, "measured in trials")
    if in_replay is not None:
        return StepCost(in_replay, "measured in the replay")
    most = WITH_TENSOR_CORES if gpu.fp16_tensor_cores else WITHOUT_TENSOR_CORES
    return StepCost(most, f"the most on {gpu.name}", is_measured=False)


def fp32_cost_in_trials(attempts: Sequence[Attempt], gpu: Gpu | None) -> float | None:
    """Return how many times as long steps took in FP32 as in FP16, in the trials of a job on such GPUs; None: unknown.

    On a CPU, FP16 is slower than FP32, which says nothing about a GPU.
    """
    here = [each for each in attempts if not each.gpus or (gpu is not None and each.gpus[0].type == gpu.type)]
    trials = [each.trial for each in here if each.trial is not None and each.trial.ms]
    wide = [each.ms for each in trials if each.ms and each.candidate.knobs.precision is Precision.FP32]
    half = [each.ms for each in trials if each.ms and _is_plain_fp16(each.candidate.knobs)]
    return min(wide) / min(half) if wide and half and gpu is not None else None


def _is_plain_fp16(knobs: Knobs) -> bool:
    return knobs.precision in (None, Precision.AMP_FP16) and not knobs.fp32_modules
