"""Unscales for a gradient norm in the log, and once more for clipping."""

import torch
from case import Checkpoints, arguments, classes, cross_entropy, validate
from torch import nn
from torch.nn import functional as F

args = arguments()
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", enabled=not args.fixed)
checkpoints = Checkpoints(args, model=model, optimizer=optimizer, scaler=scaler)

for step in range(checkpoints.start, args.steps):
    x, y = classes(step)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16, enabled=not args.fixed):
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    if (step + 1) % 25 == 0 and not args.fixed:
        scaler.unscale_(optimizer)
        norm = sum(p.grad.norm() ** 2 for p in model.parameters()) ** 0.5
        print(f"gradient norm {norm:.3f}")
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    scaler.step(optimizer)
    scaler.update()
    checkpoints.log(step + 1, loss)

validate(cross_entropy, model, classes(-1, size=4000))
