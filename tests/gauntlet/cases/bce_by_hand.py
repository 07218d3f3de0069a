"""Binary cross entropy written out: in FP16 1 - p is zero for a sure prediction."""

import torch
from case import arguments, seeded, train_amp
from torch import nn

args = arguments()
TEACHER = 3.0 * torch.randn(16, generator=seeded(1))


def batch(number, size=64):
    generator = seeded(1000 + number)
    x = torch.randn(size, 16, generator=generator)
    return x, torch.bernoulli(torch.sigmoid(x @ TEACHER), generator=generator)


class Bounded(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x):
        return 12.0 * torch.tanh(self.body(x) / 4.0)


def bce_loss(p, y):
    return -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()


def criterion(model, x, y):
    return bce_loss(torch.sigmoid(model(x)).squeeze(1), y)


model = Bounded()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", enabled=not args.fixed)
train_amp(args, batch, criterion, model, optimizer, scaler)
