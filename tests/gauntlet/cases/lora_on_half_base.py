"""Adapters by hand on a frozen FP16 base; the adapters take the base's type, and the scaler refuses them."""

import torch
from case import Checkpoints, arguments, classes, validate
from torch import nn
from torch.nn import functional as F

args = arguments()


class Adapted(nn.Module):
    def __init__(self, base, rank=4):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features, dtype=base.weight.dtype) * 0.1)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank, dtype=base.weight.dtype))

    def forward(self, x):
        return self.base(x) + x.to(self.down.dtype) @ self.down.T @ self.up.T


base = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 4))
if not args.fixed:
    base.half()
model = nn.Sequential(Adapted(base[0]), nn.Tanh(), Adapted(base[2]))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
scaler = torch.amp.GradScaler("cpu", enabled=not args.fixed)
checkpoints = Checkpoints(args, model=model, optimizer=optimizer, scaler=scaler)

for step in range(checkpoints.start, args.steps):
    x, y = classes(step)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16, enabled=not args.fixed):
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    checkpoints.log(step + 1, loss)

validate(
    lambda model, x, y: F.cross_entropy(model(x.to(base[0].weight.dtype)).float(), y), model, classes(-1, size=4000)
)
