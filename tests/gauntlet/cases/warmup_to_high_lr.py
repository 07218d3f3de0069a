"""A linear warm-up to a learning rate that is too high for the model; the scheduler's state is saved and loaded."""

import torch
from case import Checkpoints, arguments, regression, validate
from torch import nn
from torch.nn import functional as F

args = arguments()


def criterion(model, x, y):
    return F.mse_loss(model(x).squeeze(1), y)


model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.04 if args.fixed else 0.4)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 200))
checkpoints = Checkpoints(args, model=model, optimizer=optimizer, scheduler=scheduler)

for step in range(checkpoints.start, args.steps):
    x, y = regression(step)
    optimizer.zero_grad()
    loss = criterion(model, x, y)
    loss.backward()
    optimizer.step()
    scheduler.step()
    if (step + 1) % 50 == 0:
        print(f"epoch {step // 100} iter {step + 1} loss={loss.item():.4f} lr={scheduler.get_last_lr()[0]:.3g}")
        checkpoints.save(step + 1)

validate(criterion, model, regression(-1, size=4000))
