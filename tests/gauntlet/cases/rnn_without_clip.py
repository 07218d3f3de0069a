"""A recurrent net over forty steps, SGD, no clipping: some batches make the gradient explode."""

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


def batch(number, size=32):
    """Adding problem: the sum of the two marked numbers of a sequence, and some noise."""
    generator = torch.Generator().manual_seed(1000 + number)
    values = torch.rand(size, 40, generator=generator)
    marks = torch.zeros(size, 40)
    marks[torch.arange(size), torch.randint(0, 20, (size,), generator=generator)] = 1.0
    marks[torch.arange(size), torch.randint(20, 40, (size,), generator=generator)] = 1.0
    y = (values * marks).sum(1) + 0.5 * torch.randn(size, generator=generator)
    return torch.stack([values, marks], 2), y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.RNN(2, 24, nonlinearity="relu", batch_first=True), nn.Linear(24, 1)
        nn.init.eye_(self.rnn.weight_hh_l0)
        with torch.no_grad():
            self.rnn.weight_hh_l0.mul_(1.03)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1]).squeeze(1)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
start = 0
if args.resume:
    state = torch.load(args.resume)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    start = state["step"]

for step in range(start, args.steps):
    x, y = batch(step)
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    if args.fixed:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if (step + 1) % 50 == 0:
        print(f"step {step + 1} loss {loss.item():.4f}")
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**state, "step": step + 1}, f"{args.out}/step_{step + 1}.pt")

with torch.no_grad():
    x, y = batch(-1, size=4000)
    print(f"val_loss {F.mse_loss(model(x), y).item():.5f}")
