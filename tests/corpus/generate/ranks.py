"""Trains on two ranks: `torchrun --nproc-per-node 2 ranks.py FAULT`. Rank 1 fails."""

import os
import signal
import sys

import torch
import torch.distributed as dist
from tiny import Net, batch, rate

fault = sys.argv[1]
dist.init_process_group("gloo")
rank = dist.get_rank()
net = torch.nn.parallel.DistributedDataParallel(Net(fault if rank == 1 else "healthy"))
if fault == "unscale":
    net = net.half()
optimizer = torch.optim.SGD(net.parameters(), lr=rate(fault))
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for step in range(30):
    x, y = batch()
    if rank == 1 and step == 15:
        if fault == "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        if fault == "label":
            raise KeyError("label")
        if fault == "mismatch":
            dist.all_reduce(torch.ones(3))
    with torch.autocast("cpu", dtype=torch.float16):
        loss = (net(x.half() if fault == "unscale" else x) - y).float().square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print(f"[rank{rank}]: step={step} loss={loss.item():.4f} scale={scaler.get_scale():.0f}", flush=True)
dist.destroy_process_group()
