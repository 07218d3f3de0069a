"""A small regression that never saves anything, so that a relaunch would lose everything. It does not know Rung.

One record of one batch of its first pass is far out of range, so without clipping the weights are NaN right after it.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--loop", choices=("loader", "range"), default="loader")
parser.add_argument("--batches", type=int, default=60)
parser.add_argument("--bad_batch", type=int, default=44)
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x = torch.randn(32 * args.batches, 8)
y = x @ torch.linspace(-1, 1, 8)
y[32 * args.bad_batch] *= 1e15
loader = DataLoader(TensorDataset(x, y), batch_size=32)


def update(inputs, targets):
    loss = ((model(inputs).squeeze(-1) - targets) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


for number in range(2):
    if args.loop == "loader":
        for batch in loader:
            loss = update(*batch)
    else:
        for index in range(args.batches):
            loss = update(x[32 * index : 32 * index + 32], y[32 * index : 32 * index + 32])
    print(f"epoch {number}: loss {loss:.4f}", flush=True)
