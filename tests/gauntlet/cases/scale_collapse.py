"""A penalty on the cubed activations overflows FP16 on every batch: the loss scale halves down to nought."""

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
    generator = torch.Generator().manual_seed(1000 + number)
    x = torch.randn(size, 16, generator=generator)
    y = torch.multinomial(torch.softmax(x @ TEACHER * 0.7, 1), 1, generator=generator).squeeze(1)
    return x, y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x):
        raw = self.first(x * 1500.0)
        self.penalty = (raw * raw * raw.abs()).mean() * 1e-12
        return self.head(torch.tanh(raw / 1500.0))


model = Net()
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
        loss = F.cross_entropy(model(x), y) + model.penalty
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if (step + 1) % 50 == 0:
        print(f"iter {step + 1}: scale {scaler.get_scale():g}")
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}
        torch.save({**state, "step": step + 1}, f"{args.out}/step_{step + 1}.pt")

with torch.no_grad():
    x, y = batch(-1, size=4000)
    print(f"val_loss {F.cross_entropy(model(x), y).item():.5f}")
