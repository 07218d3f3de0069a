"""One batch in fifty carries labels in the wrong unit; the spike is small enough to pass the scaler."""

import torch
from case import arguments, regression, train_amp
from torch import nn
from torch.nn import functional as F

args = arguments()


def batch(number, size=64):
    x, y = regression(number, size)
    wrong = number % 50 == 33 and not args.fixed
    return x, y * 3000.0 if wrong else y  # grams among kilograms


def criterion(model, x, y):
    return F.mse_loss(model(x).squeeze(1).float(), y)


model = nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
scaler = torch.amp.GradScaler("cpu", init_scale=1.0, enabled=not args.fixed)
train_amp(args, batch, criterion, model, optimizer, scaler)
