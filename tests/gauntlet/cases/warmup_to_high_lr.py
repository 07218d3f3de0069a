"""A linear warm-up to a learning rate that the model cannot bear; the scheduler's state is saved and loaded."""

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
if args.resume:
    state = torch.load(args.resume)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    start = state["step"]

for step in range(start, args.steps):
    x, y = batch(step)
    optimizer.zero_grad()
    loss = F.mse_loss(model(x).squeeze(1), y)
    loss.backward()
    optimizer.step()
    scheduler.step()
    if (step + 1) % 50 == 0:
        print(f"epoch {step // 100} iter {step + 1} loss={loss.item():.4f} lr={scheduler.get_last_lr()[0]:.3g}")
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
        torch.save({**state, "step": step + 1}, f"{args.out}/step_{step + 1}.pt")

with torch.no_grad():
    x, y = batch(-1, size=4000)
    print(f"val_loss {F.mse_loss(model(x).squeeze(1), y).item():.5f}")
