"""A training by several ranks (gloo) that goes on until somebody ends it. It does not know Rung; torchrun starts it."""

import itertools
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
for step in itertools.count(1):
    loss = torch.tensor(1.0 / step)
    dist.all_reduce(loss)
    print(f"step={step} loss={loss.item():.6f}", flush=True)
    time.sleep(0.2)
