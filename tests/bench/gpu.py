"""Measures what zero-edit costs on a GPU: an 8-layer transformer with AMP and a scaler, at 25 to 30 ms a step."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from tests.bench.switching import SETTLE, Switch, in_turns, overhead, records_in_a_file, start

TARGET = 1.0
STEP = 0.0275
STEPS = 30
# Everything, the warm-up included, fits into this many seconds after torch is there.
BUDGET = 75.0
# What is trained on, to be spoilt at the end.
DATA: list[Any] = []


def main(_options: Sequence[str] = ()) -> None:
    start()
    import torch

    if not torch.cuda.is_available():
        print("zero-edit on a GPU: there is none here")
        return
    torch.manual_seed(0)
    began = time.perf_counter()
    with records_in_a_file() as lines:
        step, model = training()
        _run(step, 60)
        one = _run(step, STEPS) / STEPS
        pairs = max(8, int((BUDGET - (time.perf_counter() - began)) / (2.05 * (STEPS + SETTLE) * one)))
        times = in_turns(Switch(model), step, lambda: _run(step, STEPS), min(pairs, 80))
        records = sum(line.startswith("rung| step") for line in lines())
        bad = _spoil(step, lines)
    if not records or not bad:
        sys.exit("rung: nothing was reported: zero-edit was not on")
    share, low, high = overhead(times)
    one = median(without for _, without in times) / STEPS
    print(
        f"zero-edit on {torch.cuda.get_device_name()}, torch {torch.__version__}: {len(times)} pairs of {STEPS} steps"
    )
    print(
        f"{1000 * one:.2f} ms a step, with zero-edit {share:+.3f} % ({low:+.3f} to {high:+.3f});"
        f" target {TARGET:g} %; {records} records"
    )
    print(f"the first record with a loss that is not finite: {bad[0]}")


def _spoil(step: Callable[[], None], lines: Callable[[], list[str]]) -> list[str]:
    """Train a few steps on data that are not finite, and return their records."""
    before = len(lines())
    DATA[0][0, 0, 0] = float("nan")
    _run(step, 4)
    return [line for line in lines()[before:] if "loss=nan" in line or line.startswith("rung| replay")]


def training() -> tuple[Callable[[], None], object]:
    """Return one step of the training, and its model."""
    import torch

    width, length = 1024, 512
    layer = torch.nn.TransformerEncoderLayer(width, 16, 4 * width, batch_first=True, norm_first=True)
    model = torch.nn.TransformerEncoder(layer, 8, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    data = torch.randn(256, length, width, device="cuda")
    DATA.append(data)
    sizes = [8]

    def step() -> None:
        batch = data[: sizes[0]]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = (model(batch) - batch.roll(1, 1)).float().square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    for _ in range(4):
        took = min(_run(step, 4) / 4 for _ in range(2))
        sizes[0] = max(1, min(256, round(sizes[0] * STEP / took)))
    return step, model


def _run(step: Callable[[], None], steps: int) -> float:
    import torch

    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return time.perf_counter() - began
