"""Accelerate, SGD and a learning rate ten times too high; a cosine schedule makes it harder to find."""

import torch
from accelerate import Accelerator
from case import arguments, regression, train_accelerated, validate
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

args = arguments(steps=300)


def criterion(model, x, y):
    return F.mse_loss(model(x).squeeze(1), y)


accelerator = Accelerator(cpu=True)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.04 if args.fixed else 0.4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps, eta_min=0.004 if args.fixed else 0.04)
loader = DataLoader(TensorDataset(*regression(0, 20000, seed=2)), batch_size=64, shuffle=True)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
train_accelerated(args, accelerator, criterion, loader, model, optimizer, scheduler)
validate(criterion, model, regression(0, 4000, seed=3))
