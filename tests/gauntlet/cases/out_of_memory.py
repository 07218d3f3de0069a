"""A batch that does not fit into the memory the job may have; smaller ones can be added up."""

import argparse
import os

import torch
from torch import nn
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--batch", type=int, default=24576)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--out", default="checkpoints")
parser.add_argument("--resume")
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()
os.makedirs(args.out, exist_ok=True)
torch.set_num_threads(1)
torch.manual_seed(0)
if args.fixed:
    args.batch, args.accumulate = args.batch // 4, args.accumulate * 4

TEACHER = torch.randn(16, 4, generator=torch.Generator().manual_seed(1))


def batch(number, size):
    generator = torch.Generator().manual_seed(1000 + number)
    x = torch.randn(size, 16, generator=generator)
    y = torch.multinomial(torch.softmax(x @ TEACHER * 0.7, 1), 1, generator=generator).squeeze(1)
    return x, y


model = nn.Sequential(nn.Linear(16, 4096), nn.Tanh(), nn.Linear(4096, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
start = 0
if args.resume:
    state = torch.load(args.resume)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    start = state["step"]

for step in range(start, args.steps):
    optimizer.zero_grad()
    x, y = batch(step, args.batch * args.accumulate)
    for part_x, part_y in zip(x.split(args.batch), y.split(args.batch)):
        loss = F.cross_entropy(model(part_x), part_y) / args.accumulate
        loss.backward()
    optimizer.step()
    if (step + 1) % 2 == 0:
        print(f"step {step + 1} loss {loss.item() * args.accumulate:.4f}")
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
        torch.save(state, f"{args.out}/step_{step + 1}.pt")

with torch.no_grad():
    x, y = batch(-1, 2000)
    print(f"val_loss {F.cross_entropy(model(x), y).item():.5f}")
