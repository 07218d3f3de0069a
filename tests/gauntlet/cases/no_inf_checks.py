"""An extra head has its own optimizer, but no gradient until its loss is switched on."""

import torch
from case import Checkpoints, arguments, classes, validate
from torch import nn
from torch.nn import functional as F

args = arguments()
body = nn.Sequential(nn.Linear(16, 32), nn.Tanh())
head = nn.Linear(32, 4)
extra = nn.Linear(32, 1)
model = nn.ModuleList([body, head, extra])
optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()], lr=1e-2)
extra_optimizer = torch.optim.AdamW(extra.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", enabled=not args.fixed)
checkpoints = Checkpoints(args, model=model, optimizer=optimizer, scaler=scaler)

for step in range(checkpoints.start, args.steps):
    x, y = classes(step)
    optimizer.zero_grad()
    extra_optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16, enabled=not args.fixed):
        hidden = body(x)
        loss = F.cross_entropy(head(hidden), y)
        if step >= 100:  # first the main task alone
            loss = loss + 0.1 * (extra(hidden) ** 2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    if step >= 100 or not args.fixed:
        scaler.step(extra_optimizer)
    scaler.update()
    checkpoints.log(step + 1, loss)

validate(lambda _, x, y: F.cross_entropy(head(body(x)), y), model, classes(-1, size=4000))
