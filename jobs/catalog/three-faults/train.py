"""Trains a small attention model in FP16 to name the weather from records of readings, on the CPU, in half a minute.

It is an ordinary script with three ordinary mistakes, and each of them ends the run by itself at a time of its own:

  1. one station's logger wrote seconds instead of hours for a while, so a few early records weigh 3600 times too much:
     the gradients spike, and nothing clips them;
  2. the learning rate it warms up to is too high: the loss drifts up until it is no number any more;
  3. stations that join later send records of uneven length, and the padding is masked with the lowest number of the
     input's dtype, FP32, which the FP16 attention scores cannot hold.

No line waits for a certain step to break something: the data, the schedule and the dtypes do it.
"""

from __future__ import annotations

import math
import platform
from typing import NamedTuple

import rung_inside
import torch
from rung_inside.attach.run import Run
from torch import nn

SEED = 20
# The tensors are small: a second thread brings nothing, and one alone makes the run repeatable.
THREADS = 1
STEPS = 800
BATCH = 128

FEATURES, LONGEST, SHORTEST, KINDS = 8, 12, 6, 6
STATIONS = 16
# Records are numbered in the order they came in; a batch is the next 128 of them.
FAULTY_STATION = 3
FAULTY_LOGGER = range(15_360, 15_872)
SECONDS_PER_HOUR = 3600.0
NEW_STATIONS_FROM = 66_560
HELD_OUT_FROM = 10_000_000

WIDTH = 32
LR, MOMENTUM = 2.0, 0.9
GENTLE, WARM_UP = 0.025, range(250, 300)
COOL_DOWN, FINAL = range(300, STEPS), 0.05
# These gradients need little scaling; from the usual 65536 the scaler would have to come down first.
INIT_SCALE = 64.0


class Records(NamedTuple):
    readings: torch.Tensor
    lengths: torch.Tensor
    kinds: torch.Tensor
    hours: torch.Tensor


class Forecaster(nn.Module):
    """One attention layer over the readings of a record, one residual block, one linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(FEATURES, WIDTH)
        self.attention = nn.Linear(WIDTH, 3 * WIDTH)
        self.block = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, KINDS)

    def forward(self, readings: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(readings)
        query, key, value = self.attention(hidden).chunk(3, dim=-1)
        scores = query @ key.transpose(1, 2) / math.sqrt(WIDTH)
        padding = torch.arange(readings.shape[1]) >= lengths[:, None]
        if padding.any():
            scores = scores.masked_fill(padding[:, None, :], torch.finfo(readings.dtype).min)
        hidden = hidden + scores.softmax(dim=-1) @ value
        hidden = hidden + nn.functional.gelu(self.block(hidden))
        kinds: torch.Tensor = self.head(hidden.mean(dim=1))
        return kinds


def records(first: int, count: int) -> Records:
    """Return the records numbered from `first` on: the same ones whenever they are asked for."""
    numbers = torch.arange(first, first + count)
    generator = torch.Generator().manual_seed(SEED + first)
    readings = torch.randn(count, LONGEST, FEATURES, generator=generator)
    uneven = torch.randint(SHORTEST, LONGEST + 1, (count,), generator=generator)
    lengths = torch.where(numbers >= NEW_STATIONS_FROM, uneven, LONGEST)
    hours = torch.ones(count)
    hours[is_faulty(numbers)] *= SECONDS_PER_HOUR
    return Records(readings, lengths, true_kinds(readings, lengths), hours)


def is_faulty(numbers: torch.Tensor) -> torch.Tensor:
    """Tell which records the logger in the wrong unit wrote."""
    during = (numbers >= FAULTY_LOGGER.start) & (numbers < FAULTY_LOGGER.stop)
    return during & (numbers % STATIONS == FAULTY_STATION)


def true_kinds(readings: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return the weather that followed: a few readings of a record matter, and which ones is for attention to find."""
    law = torch.Generator().manual_seed(SEED)
    relevance, weather = torch.randn(FEATURES, generator=law), torch.randn(FEATURES, KINDS, generator=law)
    padding = torch.arange(LONGEST) >= lengths[:, None]
    weight = (readings @ relevance).masked_fill(padding, -math.inf).softmax(dim=1)
    return ((weight[:, :, None] * readings).sum(dim=1) @ weather).argmax(dim=1)


def schedule(step: int) -> float:
    """Return the share of the learning rate at a step: a gentle start, the warm-up to all of it, the cool-down."""
    warm = (step - WARM_UP.start) / len(WARM_UP)
    cool = (step - COOL_DOWN.start) / len(COOL_DOWN)
    return (GENTLE + (1 - GENTLE) * min(max(warm, 0), 1)) * (1 - (1 - FINAL) * max(cool, 0))


def train(model: nn.Module, run: Run) -> None:
    """Train from where the run stands to the last step."""
    print(f"Total optimization steps = {STEPS}", flush=True)
    for step in range(run.resume(), STEPS):
        batch = records(step * BATCH, BATCH)
        with run.autocast():
            predicted = model(batch.readings, batch.lengths)
        each = nn.functional.cross_entropy(predicted.float(), batch.kinds, reduction="none")
        loss = (batch.hours * each).mean()
        run.step(loss, step)
        if run.due(step + 1, every=25):
            run.save(step + 1)
        if (step + 1) % 100 == 0:
            print(f"{step + 1} of {STEPS} steps, loss {loss.item():.3f}", flush=True)


def held_out_loss(model: nn.Module, run: Run) -> float:
    """Return the loss on records that were never trained on, of stations that send uneven lengths."""
    held_out = records(HELD_OUT_FROM, 2048)
    with torch.no_grad(), run.autocast():
        predicted = model(held_out.readings, held_out.lengths)
    return nn.functional.cross_entropy(predicted.float(), held_out.kinds).item()


def main() -> None:
    torch.set_num_threads(THREADS)
    if platform.machine() == "aarch64":
        # torch gives FP16 products to oneDNN there, which has no fast code for them; its own is 20 times as fast.
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    torch.manual_seed(SEED)
    model = Forecaster()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    run = rung_inside.attach(model, optimizer, scheduler, defaults={"precision": "amp_fp16", "init_scale": INIT_SCALE})
    train(model, run)
    run.metric(STEPS, val_loss=held_out_loss(model, run))


if __name__ == "__main__":
    main()
