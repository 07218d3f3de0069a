"""A small regression that imports rung_inside: all knobs reach it, and it reports every step.

`--flaw` chooses what is wrong with it; every failure is torch's own.
"""

import argparse

import rung_inside
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--flaw", required=True)
parser.add_argument("--steps", type=int, default=260)
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
run = rung_inside.attach(model, optimizer)
teacher = torch.randn(8, 1)
batch = rung_inside.knobs().get("batch") or 32

for step in range(run.resume(), args.steps):
    x = torch.randn(batch, 8, generator=torch.Generator().manual_seed(step))
    y = (x @ teacher).tanh()
    with run.autocast():
        out = model(x)
        if args.flaw == "beyond_fp16":
            # Every batch passes through values that FP16 cannot hold.
            out = (out * 1e6) / 1e6
        if args.flaw == "too_large_a_batch":
            # The limit counts what is asked for; writing to all of it would only take time.
            torch.empty(batch, 1 << 20, 4)[0].fill_(1.0)
    run.step(((out.float() - y) ** 2).mean(), step)
    if run.due(step + 1):
        run.save(step + 1)
run.metric(args.steps, val_loss=((model(x) - y) ** 2).mean().item())
