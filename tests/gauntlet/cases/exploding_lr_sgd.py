"""SGD with momentum and a learning rate ten times too high, in mixed precision."""

import torch
from case import arguments, regression, train_amp
from torch import nn
from torch.nn import functional as F

args = arguments()


def criterion(model, x, y):
    return F.mse_loss(model(x).squeeze(1).float(), y)


model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 if args.fixed else 0.1, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", enabled=not args.fixed)
train_amp(args, regression, criterion, model, optimizer, scaler)
