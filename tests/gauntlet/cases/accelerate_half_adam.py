"""Accelerate with a model in FP16 and Adam's usual eps: NaN after the first step."""

import torch
from accelerate import Accelerator
from case import arguments, cast_cross_entropy, classes, train_accelerated, validate
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

args = arguments(steps=300)
accelerator = Accelerator(cpu=True)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
if not args.fixed:
    model.half()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = DataLoader(TensorDataset(*classes(0, 20000, seed=2)), batch_size=64, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
train_accelerated(args, accelerator, cast_cross_entropy, loader, model, optimizer)
validate(cast_cross_entropy, model, classes(0, 4000, seed=3))
