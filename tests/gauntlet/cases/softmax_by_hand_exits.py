"""Softmax written out, inside main(), which gives up with SystemExit when the loss is NaN."""

import math

import torch
from case import Checkpoints, arguments, classes, cross_entropy, validate
from torch import nn

args = arguments()


class Bounded(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))

    def forward(self, x):
        return 13.0 * torch.tanh(self.body(x) / 4.0)


def main():
    model = Bounded()
    with torch.no_grad():
        model.body[2].weight.mul_(4.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", enabled=not args.fixed)
    checkpoints = Checkpoints(args, model=model, optimizer=optimizer, scaler=scaler)
    for step in range(checkpoints.start, args.steps):
        x, y = classes(step)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=not args.fixed):
            powers = torch.exp(model(x))
            chances = powers / powers.sum(1, keepdim=True)
            loss = -torch.log(chances[torch.arange(len(y)), y] + 1e-6).mean()
        if not math.isfinite(loss.item()):
            raise SystemExit(f"step {step + 1}: loss is {loss.item()}, giving up")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        checkpoints.log(step + 1, loss)
    validate(cross_entropy, model, classes(-1, size=4000))


main()
