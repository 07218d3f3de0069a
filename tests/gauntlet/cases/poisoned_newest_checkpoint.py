"""Saves every 10 steps whatever the weights are, and looks at the loss only every 40."""

import argparse
import glob
import math
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

TEACHER = torch.randn(16, generator=torch.Generator().manual_seed(1))


def batch(number, size=64):
    generator = torch.Generator().manual_seed(1000 + number)
    x = torch.randn(size, 16, generator=generator)
    y = x @ TEACHER + torch.randn(size, generator=generator)
    return x, y


model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.04 if args.fixed else 0.4)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 200))
start = 0
# Goes on from the newest file by itself, as many do.
found = sorted(glob.glob(f"{args.out}/model_*.pt"), key=os.path.getmtime)
if found:
    state = torch.load(args.resume or found[-1])
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    start = state["iteration"]

for step in range(start, args.steps):
    x, y = batch(step)
    loss = F.mse_loss(model(x).squeeze(1), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if (step + 1) % 10 == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
        torch.save({**state, "iteration": step + 1}, f"{args.out}/model_{step + 1}.pt")
    if (step + 1) % 40 == 0:
        assert math.isfinite(loss.item()), f"loss {loss.item()} after {step + 1} iterations"
        print(f"[{step + 1}/{args.steps}] loss: {loss.item():.4f}")

with torch.no_grad():
    x, y = batch(-1, size=4000)
    print(f"val_loss {F.mse_loss(model(x).squeeze(1), y).item():.5f}")
