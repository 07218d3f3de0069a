"""Averages over the rare class; a batch without any of it divides zero by zero."""

import torch
from case import arguments, classes, cross_entropy, train
from torch import nn
from torch.nn import functional as F

args = arguments()


def batch(number, size=64):
    x, y = classes(number, size)
    if number >= 120:
        y[y == 3] = 0  # the rest of the data has none of the rare class
    return x, y


def criterion(model, x, y):
    each, rare = F.cross_entropy(model(x), y, reduction="none"), y == 3
    count = rare.sum().clamp(min=1 if args.fixed else 0)
    return each.mean() + 0.1 * (each * rare).sum() / count


model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
train(args, batch, criterion, model, optimizer, held_out=cross_entropy)
