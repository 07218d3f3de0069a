"""A training that does not know Rung and never saves: AMP, dropout, batch norm, two schedules, shuffled batches.

Prints a digest of everything that the next update would depend on.
"""

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--loop", choices=("loader", "range"), default="loader")
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--width", type=int, default=32)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--fresh", action="store_true", help="make the loader anew for every pass")
parser.add_argument("--passes", type=int, default=4)
# The numbers that a run draws must come from the checkpoint, and not from the same seed.
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--kill-after", type=int, default=0)
parser.add_argument("--kill-in-sync", type=int, default=0)
parser.add_argument("--tell-after", type=int, default=0, help="let another process say that the time is nearly up")
args = parser.parse_args()

syncs = [0]
sync = os.fsync


def killed_in_sync(descriptor):
    syncs[0] += 1
    if syncs[0] == args.kill_in_sync:
        os.kill(os.getpid(), signal.SIGKILL)
    sync(descriptor)


os.fsync = killed_in_sync
torch.set_num_threads(1)
torch.manual_seed(args.seed)
random.seed(args.seed)
inputs = torch.randn(100, 8, generator=torch.Generator().manual_seed(1))
samples = TensorDataset(inputs, torch.sin(inputs.sum(1, keepdim=True)))
own = torch.Generator().manual_seed(args.seed)
train = DataLoader(samples, batch_size=args.batch, shuffle=True, num_workers=args.workers, generator=own)
held_out = DataLoader(samples, batch_size=50)
model = nn.Sequential(
    nn.Linear(8, args.width), nn.BatchNorm1d(args.width), nn.ReLU(), nn.Dropout(0.3), nn.Linear(args.width, 1)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [20, 40])
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=7)
updates = 0


def update(inputs, targets, steps=True):
    global updates
    noisy = inputs + 0.01 * torch.randn_like(inputs) + 0.01 * random.random()
    with torch.autocast("cpu", dtype=torch.float16):
        output = model(noisy)
    loss = nn.functional.mse_loss(output.float(), targets)
    scaler.scale(loss).backward()
    if not steps:
        return loss.item()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    schedule.step()
    updates += 1
    if updates == args.kill_after:
        os.kill(os.getpid(), signal.SIGKILL)
    if updates == args.tell_after:
        subprocess.run(["kill", f"-{os.environ['RUNG_SAVE_SIGNAL']}", str(os.getpid())], check=True)
    return loss.item()


def validate():
    model.eval()
    with torch.no_grad():
        total = sum(nn.functional.mse_loss(model(x), y).item() for x, y in held_out)
    model.train()
    return total


if args.loop == "range":
    for step in range(12):
        update(*samples[step * 8 : step * 8 + 8])
else:
    for number in range(args.passes):
        # Nobody but the loop holds a loader that is made for it.
        for index, batch in enumerate(DataLoader(samples, args.batch, shuffle=True) if args.fresh else train):
            last = update(*batch, steps=(index + 1) % args.accumulate == 0)
        plateau.step(validate())
        sys.stdout.write(f"pass {number}: last loss {last:.4f}\n")

digest = hashlib.sha256()
for each in (*model.state_dict().values(), *(value for of in optimizer.state.values() for value in of.values())):
    digest.update(bytes(each.contiguous().reshape(-1).view(torch.uint8).tolist()))
rest = (schedule.last_epoch, plateau.best, optimizer.param_groups[0]["lr"], scaler.state_dict())
digest.update(repr((rest, torch.rand(1).item(), random.random())).encode())
sys.stdout.write(f"digest {digest.hexdigest()} updates {updates}\n")
