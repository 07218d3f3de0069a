"""Saves every 10 steps without a check of the weights, and checks the loss only every 40."""

import glob
import math
import os

import torch
from case import arguments, regression, validate
from torch import nn
from torch.nn import functional as F

args = arguments()
os.makedirs(args.out, exist_ok=True)


def criterion(model, x, y):
    return F.mse_loss(model(x).squeeze(1), y)


model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.04 if args.fixed else 0.4)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 200))
start = 0
# Resumes from the newest file by itself, as many scripts do.
found = sorted(glob.glob(f"{args.out}/model_*.pt"), key=os.path.getmtime)
if found:
    state = torch.load(args.resume or found[-1])
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    start = state["iteration"]

for step in range(start, args.steps):
    x, y = regression(step)
    loss = criterion(model, x, y)
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

validate(criterion, model, regression(-1, size=4000))
