"""One batch in fifty has a sample weight in the wrong unit, a million times too large. Plain FP32."""

import torch
from case import arguments, regression, train
from torch import nn
from torch.nn import functional as F

args = arguments()


def batch(number, size=64):
    weight = 1e6 if number % 50 == 33 and not args.fixed else 1.0
    return *regression(number, size), weight


def criterion(model, x, y, weight):
    return weight * F.mse_loss(model(x).squeeze(1), y)


model = nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
train(args, batch, criterion, model, optimizer)
