"""Trains a tiny regression for some seconds, with one real fault in its second half: `rung drill` proves set-ups by it.

Every failure is torch's own. The first 40 steps are healthy and leave checkpoints, so that a recovery has something to
go on from; `--fault` says what the second half does wrong.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable

import rung_inside
import torch
from rung_inside.attach.run import Run
from torch import nn

STEPS, SECOND_HALF, SAVE_EVERY = 120, 40, 10
BATCH, FEATURES = 32, 8
# The gentle start; the second half trains with all of the lr.
GENTLE = 0.05
# What a long record takes: 16 MiB.
LONG_RECORD = 1 << 22
# So long that whoever wants to end the run from outside, or cut its link, finds it running.
PACE_SECONDS = 0.1
HELD_OUT = 10_000


class Model(nn.Module):
    """One linear layer, and in the second half of the run what is wrong with it."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, 1)
        self.flaw = FLAWS.get(fault)

    def forward(self, x: torch.Tensor, *, second_half: bool) -> torch.Tensor:
        out: torch.Tensor = self.layer(x)
        return self.flaw(x, out) if self.flaw and second_half else out


def masked(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Mask padding with the lowest number of the input's dtype, which FP16 scores cannot hold where that is FP32."""
    return out.masked_fill(x[:, :1] > 100, torch.finfo(x.dtype).min)


def squared(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Square what is out of range, which nothing is; but the squares are beyond FP16, and 0 times inf is NaN."""
    large = out * 1e6
    return torch.where(x[:, :1] > 100, large * large, out)


FLAWS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {"overflow": masked, "collapse": squared}


def batch(step: int, size: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(size, FEATURES, generator=torch.Generator().manual_seed(step))
    y = x @ torch.arange(1.0, FEATURES + 1)[:, None] / FEATURES
    return x.to(device), y.to(device)


def train(model: Model, run: Run, args: argparse.Namespace, device: str) -> None:
    precision = rung_inside.knobs().get("precision", "amp_fp16")
    first_attempt = os.environ.get("RUNG_ATTEMPT", "1") == "1"
    for step in range(run.resume(), STEPS):
        second_half = step >= SECOND_HALF
        if args.fault == "unscale" and second_half and precision != "fp32":
            # "It trains in FP16, so its weights may as well be FP16."
            model.half()
        if args.fault == "oom" and step == SECOND_HALF:
            torch.ones(args.batch, LONG_RECORD).add_(1.0)
        if args.fault in ("kill", "link") and second_half and first_attempt:
            time.sleep(PACE_SECONDS)
        x, y = batch(step, BATCH, device)
        with run.autocast():
            predicted = model(x, second_half=second_half)
        run.step(((predicted.float() - y) ** 2).mean(), step)
        if run.due(step + 1, every=SAVE_EVERY):
            run.save(step + 1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", required=True)
    parser.add_argument("--batch", type=int, default=BATCH)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if platform.machine() == "aarch64":
        # torch gives FP16 products to oneDNN there, which has no fast code for them; its own is 20 times as fast.
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Model(args.fault).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if step >= SECOND_HALF else GENTLE)
    run = rung_inside.attach(model, optimizer, scheduler, device=device, defaults={"precision": "amp_fp16"})
    train(model, run, args, device)
    x, y = batch(HELD_OUT, 512, device)
    with torch.no_grad(), run.autocast():
        loss = ((model(x, second_half=True).float() - y) ** 2).mean()
    run.metric(STEPS, val_loss=loss.item())


if __name__ == "__main__":
    main()
