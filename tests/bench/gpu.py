"""Measures what zero-edit costs on a GPU: transformers with AMP and a scaler, at about 25 ms and at about 3 ms a step.

Every update waits for the GPU, as each with a scaler does that does not unscale in its own kernel: what the host does
more is added to the step as it is.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple

from tests.bench.switching import SETTLE, Switch, in_turns, overhead, records_in_a_file, start

STEPS = 30
# Everything, the warm-up included, fits into this many seconds after torch is there.
BUDGET = 75.0
MOST_PAIRS = 80


class Size(NamedTuple):
    """A training: how long one of its steps is to take, its model, and the most that zero-edit may cost in per cent."""

    step: float
    layers: int
    width: int
    length: int
    most: float


SIZES = (Size(0.025, 8, 1024, 512, 1.0), Size(0.003, 1, 512, 256, 3.0))


class Training(NamedTuple):
    """One step, the model, and what it is trained on, to be spoilt at the end."""

    step: Callable[[], None]
    model: Any
    data: Any


def main(_options: Sequence[str] = ()) -> None:
    start()
    import torch

    if not torch.cuda.is_available():
        print("zero-edit on a GPU: there is none here")
        return
    name = torch.cuda.get_device_name()
    print(f"zero-edit on {name}, torch {torch.__version__}: up to {MOST_PAIRS} pairs of {STEPS} steps")
    for size in SIZES:
        _measure(size, is_last=size is SIZES[-1])


def _measure(size: Size, *, is_last: bool) -> None:
    import torch

    torch.manual_seed(0)
    began = time.perf_counter()
    with records_in_a_file() as lines:
        trained = training(size)
        run(trained.step, 60)
        one = run(trained.step, STEPS) / STEPS
        left = BUDGET / len(SIZES) - (time.perf_counter() - began)
        pairs = max(8, min(MOST_PAIRS, int(left / (2.05 * (STEPS + SETTLE) * one))))
        times = in_turns(Switch(trained.model), trained.step, lambda: run(trained.step, STEPS), pairs)
        records = sum(line.startswith("rung| step") for line in lines())
        # Only now: a replay leaves a hook behind.
        bad = _spoil(trained, lines) if is_last else []
    if not records or (is_last and not bad):
        sys.exit("rung: nothing was reported: zero-edit was not on")
    share, low, high = overhead(times)
    one = median(without for _, without in times) / STEPS
    print(
        f"{1000 * one:.2f} ms a step, with zero-edit {share:+.3f} % ({low:+.3f} to {high:+.3f}),"
        f" {one * share * 1e4:.0f} us an update; target {size.most:g} %; {len(times)} pairs, {records} records"
    )
    if is_last:
        print(f"the first record with a loss that is not finite: {bad[0]}")


def _spoil(trained: Training, lines: Callable[[], list[str]]) -> list[str]:
    """Train a few steps on data that are not finite, and return their records."""
    before = len(lines())
    trained.data[0, 0, 0] = float("nan")
    # Later in a course up to eight updates share a copy, which is read at the next one.
    run(trained.step, 12)
    return [line for line in lines()[before:] if "loss=nan" in line or line.startswith("rung| replay")]


def training(size: Size) -> Training:
    import torch

    width = size.width
    layer = torch.nn.TransformerEncoderLayer(width, width // 64, 4 * width, batch_first=True, norm_first=True)
    model = torch.nn.TransformerEncoder(layer, size.layers, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    data = torch.randn(256, size.length, width, device="cuda")
    batches = [8]

    def step() -> None:
        batch = data[: batches[0]]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = (model(batch) - batch.roll(1, 1)).float().square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    for _ in range(4):
        took = min(run(step, 4) / 4 for _ in range(2))
        batches[0] = max(1, min(256, round(batches[0] * size.step / took)))
    return Training(step, model, data)


def run(step: Callable[[], None], steps: int) -> float:
    import torch

    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return time.perf_counter() - began
