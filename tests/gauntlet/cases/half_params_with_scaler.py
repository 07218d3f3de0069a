"""model.half() and a GradScaler: the scaler refuses FP16 gradients."""

import torch
from case import Checkpoints, arguments, cast_cross_entropy, classes, validate
from torch import nn
from torch.nn import functional as F

args = arguments()
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
if not args.fixed:
    model.half()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
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

validate(cast_cross_entropy, model, classes(-1, size=4000))
