"""log(1 + z) of an output that nothing keeps above -1."""

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
    y = torch.exp(0.3 * (x @ TEACHER)) + 0.5 * torch.rand(size, generator=generator)
    return x, y


model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
with torch.no_grad():
    model[2].bias.fill_(2.0)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
start = 0
if args.resume:
    state = torch.load(args.resume)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    start = state["step"]


def logarithm(z):
    return torch.log(1 + (F.softplus(z) if args.fixed else z))


for step in range(start, args.steps):
    x, y = batch(step)
    optimizer.zero_grad()
    loss = F.mse_loss(logarithm(model(x).squeeze(1)), torch.log(1 + y))
    loss.backward()
    optimizer.step()
    if (step + 1) % 50 == 0:
        print(f"step {step + 1} loss {loss.item():.4f}")
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**state, "step": step + 1}, f"{args.out}/step_{step + 1}.pt")

with torch.no_grad():
    x, y = batch(-1, size=4000)
    print(f"val_loss {F.mse_loss(logarithm(model(x).squeeze(1)), torch.log(1 + y)).item():.5f}")
