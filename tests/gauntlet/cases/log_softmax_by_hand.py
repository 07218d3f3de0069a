"""A cosine classifier with log(softmax(...)): FP16 rounds small probabilities to zero."""

import torch
from case import arguments, classes, train_amp
from torch import nn
from torch.nn import functional as F

args = arguments()


class Cosine(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 8))
        self.classes = nn.Parameter(torch.randn(4, 8))

    def forward(self, x):
        return 14.0 * F.normalize(self.body(x), dim=1) @ F.normalize(self.classes, dim=1).T


def criterion(model, x, y):
    return F.nll_loss(torch.log(torch.softmax(model(x), 1)), y)


model = Cosine()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", enabled=not args.fixed)
train_amp(args, classes, criterion, model, optimizer, scaler)
