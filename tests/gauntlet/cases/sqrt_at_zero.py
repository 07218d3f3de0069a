"""A distance as sqrt of a sum of squares: two equal rows make its gradient NaN in every precision."""

import torch
from case import arguments, classes, cross_entropy, train
from torch import nn

args = arguments()


def batch(number, size=64):
    x, y = classes(number, size)
    if number >= 60:
        x[1] = x[0]  # from here on samples come twice
    return x, y


def criterion(model, x, y):
    loss = cross_entropy(model, x, y)
    z = model(x)
    squares = ((z[0::2] - z[1::2]) ** 2).sum(1)
    return loss + 0.01 * torch.sqrt(squares + 1e-6 if args.fixed else squares).mean()


model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
train(args, batch, criterion, model, optimizer, held_out=cross_entropy)
