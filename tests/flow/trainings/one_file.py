"""A small regression with one checkpoint file, overwritten in place, and resumed only with --init_from=resume.

One record of batch 44 is far out of range, so without clipping the weights are NaN from step 46 on. The log shows it at
step 60, and the saves of step 50 and 60 hold NaN. It does not know Rung.
"""

import argparse
import os
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--out_dir", required=True)
parser.add_argument("--init_from", default="scratch")
parser.add_argument("--grad_clip", type=float, default=0.0)
parser.add_argument("--pause", type=float, default=0.0)
parser.add_argument("--bad_batch", type=int, default=44)
parser.add_argument("--max_iters", type=int, default=120)
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
teacher = torch.linspace(-1, 1, 8)
ckpt_path = os.path.join(args.out_dir, "ckpt.pt")
iter_num = 0

if args.init_from == "resume":
    checkpoint = torch.load(ckpt_path, weights_only=True)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    iter_num = checkpoint["iter_num"]

while iter_num < args.max_iters:
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(iter_num))
    y = x @ teacher
    if iter_num == args.bad_batch:
        y[0] *= 1e15
    loss = ((model(x).squeeze(-1) - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    if args.grad_clip:
        nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
    optimizer.step()
    iter_num += 1
    if iter_num % 20 == 0:
        print(f"iter {iter_num}: loss {loss.item():.4f}", flush=True)
    if iter_num % 10 == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": iter_num}
        torch.save(state, ckpt_path)
        time.sleep(args.pause)
