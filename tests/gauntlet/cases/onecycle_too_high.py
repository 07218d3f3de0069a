"""OneCycleLR with a peak from somebody else's task, in mixed precision."""

import torch
from case import Checkpoints, amp_step, arguments, regression, validate
from torch import nn
from torch.nn import functional as F

args = arguments(steps=500)


def criterion(model, x, y):
    return F.mse_loss(model(x).squeeze(1).float(), y)


model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
peak = 0.05 if args.fixed else 0.5
optimizer = torch.optim.SGD(model.parameters(), lr=peak)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=peak, total_steps=args.steps + 1)
scaler = torch.amp.GradScaler("cpu", enabled=not args.fixed)
checkpoints = Checkpoints(args, model=model, optimizer=optimizer, scaler=scaler, scheduler=scheduler)

for step in range(checkpoints.start, args.steps):
    loss = amp_step(args, criterion, regression(step), model, optimizer, scaler)
    scheduler.step()
    checkpoints.log(step + 1, loss)

validate(criterion, model, regression(-1, size=4000))
