"""Logits in raw counts: multiplied by a thousand they leave FP16's range as the model gets surer."""

import torch
from case import arguments, classes, train_amp
from torch import nn
from torch.nn import functional as F

args = arguments()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))

    def forward(self, x):
        return self.body(x) * 60000.0


def criterion(model, x, y):
    return F.cross_entropy(model(x) / 60000.0, y)


model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", enabled=not args.fixed)
train_amp(args, classes, criterion, model, optimizer, scaler)
