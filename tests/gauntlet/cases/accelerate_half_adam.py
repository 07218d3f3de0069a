"""Accelerate with a model in FP16 and Adam's usual eps: NaN after the first step."""

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
TEACHER = torch.randn(16, 4, generator=torch.Generator().manual_seed(1))


def rows(size, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 16, generator=generator)
    return TensorDataset(x, torch.multinomial(torch.softmax(x @ TEACHER * 0.7, 1), 1, generator=generator).squeeze(1))


accelerator = Accelerator(cpu=True)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
if not args.fixed:
    model.half()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = DataLoader(rows(20000, 2), batch_size=64, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
step = 0
if args.resume:
    accelerator.load_state(args.resume)
    step = int(args.resume.rpartition("_")[2])

while step < args.steps:
    for x, y in loader:
        logits = model(x.to(model[0].weight.dtype))
        loss = F.cross_entropy(logits.float(), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        step += 1
        if step % 50 == 0:
            accelerator.print(f"step: {step} train_loss: {loss.item():.4f}")
            accelerator.save_state(f"{args.out}/step_{step}")
        if step >= args.steps:
            break

with torch.no_grad():
    x, y = rows(4000, 3).tensors
    print(f"val_loss {F.cross_entropy(model(x.to(model[0].weight.dtype)).float(), y).item():.5f}")
