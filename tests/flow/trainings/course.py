"""A small regression that diverges slowly or has spikes. It does not know Rung.

`--course drift`: the schedule raises the learning rate step by step until it is too high: for a long time there is no
error and no NaN, only a rising loss. `--course spiky`: now and then a batch is far too large, and the run recovers by
itself each time. All numbers are those of a real training.
"""

import argparse
import os
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--course", required=True)
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--steps", type=int, default=700)
parser.add_argument("--pace", type=float, default=0.25)
parser.add_argument("--dir", required=True)
parser.add_argument("--resume", default=None)
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(1)
teacher = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
first = 0
if args.resume:
    state = torch.load(args.resume, weights_only=True)
    model.load_state_dict(state["model"])
    first = state["step"]
    print(f"resumed at step {first}", flush=True)


def batch(step):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(32, 8, generator=generator)
    with torch.no_grad():
        y = teacher(x) * 5 + 0.3 * torch.randn(32, 1, generator=generator)
    if args.course == "spiky" and step % 90 == 89:
        x, y = x * 4, y * 4
    return x, y


def lr_at(step):
    # The rate rises twentyfold within 200 steps, then stays.
    return args.lr * (1 + 19 * min(max(step - 250, 0) / 200, 1)) if args.course == "drift" else args.lr


for step in range(first, args.steps):
    x, y = batch(step)
    optimizer.param_groups[0]["lr"] = lr_at(step)
    loss = (model(x) - y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.get_total_norm([each.grad for each in model.parameters()])
    optimizer.step()
    print(f"step {step + 1} loss {loss.item():.6f} grad_norm {norm.item():.4f} lr {lr_at(step):g}", flush=True)
    if (step + 1) % 25 == 0:
        path = os.path.join(args.dir, f"step_{step + 1}.pt")
        torch.save({"step": step + 1, "model": model.state_dict()}, path)
    if args.course == "drift" and loss.item() > 0.6 and step > 250:
        # As slow as the steps of a real model, so that the controller can react; the healthy part is quick.
        time.sleep(args.pace)
with torch.no_grad():
    x, y = batch(10_000)
    print(f"val_loss: {(model(x) - y).pow(2).mean().item():.6f}", flush=True)
