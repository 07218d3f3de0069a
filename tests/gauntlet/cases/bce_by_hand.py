"""Binary cross entropy written out: in FP16 1 - p is nought for a sure prediction."""

import argparse
import os

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--out", default="checkpoints")
parser.add_argument("--resume")
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()
os.makedirs(args.out, exist_ok=True)
torch.set_num_threads(1)
torch.manual_seed(0)

TEACHER = 3.0 * torch.randn(16, generator=torch.Generator().manual_seed(1))


def batch(number, size=64):
    generator = torch.Generator().manual_seed(1000 + number)
    x = torch.randn(size, 16, generator=generator)
    y = torch.bernoulli(torch.sigmoid(x @ TEACHER), generator=generator)
    return x, y


class Bounded(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x):
        return 12.0 * torch.tanh(self.body(x) / 4.0)


def criterion(p, y):
    return -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()


model = Bounded()
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
    x, y = batch(step)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16, enabled=not args.fixed):
        loss = criterion(torch.sigmoid(model(x)).squeeze(1), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if (step + 1) % 50 == 0:
        print(f"step {step + 1} loss {loss.item():.4f}")
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}
        torch.save({**state, "step": step + 1}, f"{args.out}/step_{step + 1}.pt")

with torch.no_grad():
    x, y = batch(-1, size=4000)
    print(f"val_loss {criterion(torch.sigmoid(model(x)).squeeze(1), y).item():.5f}")
