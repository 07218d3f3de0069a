"""A batch that does not fit into the memory the job may have; smaller ones can be added up."""

import torch
from case import Checkpoints, arguments, classes, cross_entropy, validate
from torch import nn
from torch.nn import functional as F

args = arguments(steps=8, batch=24576, accumulate=1)
if args.fixed:
    args.batch, args.accumulate = args.batch // 4, args.accumulate * 4
model = nn.Sequential(nn.Linear(16, 4096), nn.Tanh(), nn.Linear(4096, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
checkpoints = Checkpoints(args, model=model, optimizer=optimizer)

for step in range(checkpoints.start, args.steps):
    optimizer.zero_grad()
    x, y = classes(step, args.batch * args.accumulate)
    for part_x, part_y in zip(x.split(args.batch), y.split(args.batch)):
        loss = F.cross_entropy(model(part_x), part_y) / args.accumulate
        loss.backward()
    optimizer.step()
    if (step + 1) % 2 == 0:
        print(f"step {step + 1} loss {loss.item() * args.accumulate:.4f}")
        checkpoints.save(step + 1)

validate(cross_entropy, model, classes(-1, size=2000))
