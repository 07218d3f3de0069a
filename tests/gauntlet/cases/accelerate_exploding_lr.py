"""Accelerate, SGD and a learning rate ten times too high; a cosine schedule makes it worse to find."""

import argparse

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--out", default="checkpoints")
parser.add_argument("--resume")
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()
torch.set_num_threads(1)
torch.manual_seed(0)
TEACHER = torch.randn(16, generator=torch.Generator().manual_seed(1))


def rows(size, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 16, generator=generator)
    return TensorDataset(x, x @ TEACHER + torch.randn(size, generator=generator))


accelerator = Accelerator(cpu=True)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.04 if args.fixed else 0.4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps, eta_min=0.004 if args.fixed else 0.04)
loader = DataLoader(rows(20000, 2), batch_size=64, shuffle=True)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
step = 0
if args.resume:
    accelerator.load_state(args.resume)
    step = int(args.resume.rpartition("_")[2])

while step < args.steps:
    for x, y in loader:
        loss = F.mse_loss(model(x).squeeze(1), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        step += 1
        if step % 50 == 0:
            accelerator.print(f"step: {step} train_loss: {loss.item():.4f}")
            accelerator.save_state(f"{args.out}/step_{step}")
        if step >= args.steps:
            break

with torch.no_grad():
    x, y = rows(4000, 3).tensors
    print(f"val_loss {F.mse_loss(model(x).squeeze(1), y).item():.5f}")
