"""Everything in FP16 and Adam with its usual eps, which FP16 rounds to zero."""

import torch
from case import Checkpoints, arguments, cast_cross_entropy, classes, validate
from torch import nn
from torch.nn import functional as F

args = arguments()
dtype = torch.float32 if args.fixed else torch.float16
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).to(dtype)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
checkpoints = Checkpoints(args, model=model, optimizer=optimizer)

for step in range(checkpoints.start, args.steps):
    x, y = classes(step)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x.to(dtype)).float(), y)
    loss.backward()
    optimizer.step()
    checkpoints.log(step + 1, loss)

validate(cast_cross_entropy, model, classes(-1, size=4000))
