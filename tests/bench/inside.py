"""Measures what zero-edit costs on the CPU: an FP32 training and one with AMP and a scaler, at about 10 ms a step."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from statistics import median

from tests.bench.switching import Switch, in_turns, overhead, records_in_a_file, start

TARGET = 2.0
STEP = 0.010
STEPS = 20
PAIRS = 40


def main(options: Sequence[str] = ()) -> None:
    start()
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    pairs = 10 if "--short" in options else PAIRS
    print(f"zero-edit on the CPU, blocks of {STEPS} steps in turns, {pairs} pairs")
    for name, amp in (("FP32", False), ("AMP", True)):
        with records_in_a_file() as lines:
            step, model = training(amp)
            for _ in range(40):
                step()
            times = in_turns(Switch(model), step, lambda step=step: block(step), pairs)
            records = sum(line.startswith("rung| step") for line in lines())
        report(name, times, records)


def training(amp: bool, step_time: float = STEP) -> tuple[Callable[[], None], object]:
    """Return one step of a small transformer's training, as a stranger would write it, and its model."""
    import torch

    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.TransformerEncoder(layer, 2), torch.nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=amp)
    sizes = [12]

    def step() -> None:
        batch = torch.randn(sizes[0], 16, 16)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=amp):
            loss = ((model(batch)[:, :, 0] - batch.sum(2)) ** 2).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    _fit(step, sizes, step_time)
    return step, model


def _fit(step: Callable[[], None], sizes: list[int], step_time: float) -> None:
    """Choose the batch so that a step takes about as long as wanted."""
    for _ in range(4):
        took = median([block(step, 1) for _ in range(7)])
        sizes[0] = max(1, min(4096, round(sizes[0] * step_time / took)))


def block(step: Callable[[], None], steps: int = STEPS) -> float:
    # The time of this thread: what others do on the machine is not ours, and a second thread of torch only helps.
    began = time.thread_time()
    for _ in range(steps):
        step()
    return time.thread_time() - began


def report(name: str, times: list[tuple[float, float]], records: int) -> None:
    if not records:
        sys.exit("rung: nothing was reported: zero-edit was not on")
    share, low, high = overhead(times)
    one = median(without for _, without in times) / STEPS
    print(
        f"{name:<6}{1000 * one:6.2f} ms a step, with zero-edit {share:+.2f} % ({low:+.2f} to {high:+.2f}),"
        f" {one * share * 1e4:.0f} us; target {TARGET:g} %; {records} records"
    )
