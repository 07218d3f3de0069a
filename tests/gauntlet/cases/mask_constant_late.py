"""Trains on full sentences first and meets padding only later; the mask value is -1e9."""

import argparse
import os

import torch
from torch import nn
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--out", default="checkpoints")
parser.add_argument("--resume")
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()
os.makedirs(args.out, exist_ok=True)
torch.set_num_threads(1)
torch.manual_seed(0)

TEACHER = torch.randn(16, 4, generator=torch.Generator().manual_seed(1))


def batch(number, size=64):
    """Sentences of up to eight words; the padding mask is True where there is no word."""
    generator = torch.Generator().manual_seed(1000 + number)
    x = torch.randn(size, 8, 16, generator=generator)
    shortest = 3 if number >= 170 or number < 0 else 8  # full sentences first, then all of them
    length = torch.randint(shortest, 9, (size, 1), generator=generator)
    pad = torch.arange(8).expand(size, 8) >= length
    mean = x.masked_fill(pad.unsqueeze(2), 0.0).sum(1) / length**0.5
    y = torch.multinomial(torch.softmax(mean @ TEACHER * 0.7, 1), 1, generator=generator).squeeze(1)
    return x, pad, y


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.score, self.value, self.head = nn.Linear(16, 1), nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x, pad):
        scores = self.score(x).squeeze(2)
        if pad.any():
            scores = scores.masked_fill(pad, -1e9)
        mixed = (torch.softmax(scores, 1).unsqueeze(2) * self.value(x)).sum(1)
        return self.head(mixed)


model = Reader()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", enabled=not args.fixed)
start = 0
if args.resume:
    state = torch.load(args.resume)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scaler.load_state_dict(state["scaler"])
    start = state["step"]

for step in range(start, args.steps):
    x, pad, y = batch(step)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16, enabled=not args.fixed):
        loss = F.cross_entropy(model(x, pad), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if (step + 1) % 50 == 0:
        print(f"step {step + 1} loss {loss.item():.4f}")
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}
        torch.save({**state, "step": step + 1}, f"{args.out}/step_{step + 1}.pt")

with torch.no_grad():
    x, pad, y = batch(-1, size=4000)
    print(f"val_loss {F.cross_entropy(model(x, pad), y).item():.5f}")
