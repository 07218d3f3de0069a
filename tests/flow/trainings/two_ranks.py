"""A small classification by several ranks (DDP or by hand, gloo). It does not know Rung; torchrun starts it.

`--flaw` chooses what is wrong in one of the ranks from step 12 on, and `--bad-rank` in which one.
  mask   a constant beyond FP16's range, for which torch raises an error
  range  one sample whose square FP16 cannot hold, so that the loss of that rank is NaN, and then all weights are
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--flaw", choices=("mask", "range"), required=True)
parser.add_argument("--bad-rank", type=int, required=True)
parser.add_argument("--by-hand", action="store_true")  # DDP loads torch's compiler, which takes as long as torch
parser.add_argument("--precision", default="amp_fp16")
parser.add_argument("--dir", default=None)
parser.add_argument("--resume", default=None)
args = parser.parse_args()
BATCH, STEPS, BAD_STEP = 8, 24, 12


class Head(nn.Module):
    """Turns numbers into shares: x² / (1 + x²), which is NaN in FP16 for large ones."""

    def forward(self, hidden):
        squares = (hidden * 100) * (hidden * 100)
        return squares / (1 + squares)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 4), Head()

    def forward(self, inputs):
        return self.head(self.body(inputs))


torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
plain = Model()
model = plain if args.by_hand else DistributedDataParallel(plain)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x = torch.randn(BATCH * ranks * STEPS, 8) * 0.1
if args.flaw == "range":
    # Rank r gets the samples r, r + ranks, and so on.
    x[BATCH * ranks * BAD_STEP + args.bad_rank] = 20.0
data = TensorDataset(x, torch.full((len(x), 4), 0.5))
loader = DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data, shuffle=False))
first = 0
if args.resume:
    state = torch.load(args.resume, weights_only=True)
    plain.load_state_dict(state["model"])
    first = state["step"]
    if rank == 0:
        print(f"resumed at step {first}", flush=True)

for step, (inputs, targets) in enumerate(loader):
    if step < first:
        continue
    with torch.autocast("cpu", dtype=torch.float16, enabled=args.precision == "amp_fp16"):
        shares = model(inputs)
    if args.flaw == "mask" and rank == args.bad_rank and step == BAD_STEP:
        shares = shares.masked_fill(shares > 2, -1e9)
    loss = ((shares.float() - targets) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in plain.parameters() if args.by_hand else ():
        dist.all_reduce(parameter.grad)
        parameter.grad /= ranks
    optimizer.step()
    print(f"step={step + 1} loss={loss.item():.6f}", flush=True)
    if args.dir and rank == 0 and (step + 1) % 5 == 0:
        path = os.path.join(args.dir, f"step_{step + 1}.pt")
        torch.save({"step": step + 1, "model": plain.state_dict()}, path)
dist.barrier()
dist.destroy_process_group()
