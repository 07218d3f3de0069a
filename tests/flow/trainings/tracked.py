"""A small regression that writes its loss to trackers, and loads its newest snapshot itself. It does not know Rung.

With `--kill` it is killed at step 17 of its first start. One record of step 35 is far out of range, so without clipping
the weights are ruined by it: the loss of step 36 is NaN, which ends it.
"""

import argparse
import glob
import math
import os
import signal

import torch
from torch.utils.tensorboard import SummaryWriter

parser = argparse.ArgumentParser()
parser.add_argument("--dir", required=True)
parser.add_argument("--kill", action="store_true")
parser.add_argument("--trackers", default="tensorboard")
args = parser.parse_args()

board = SummaryWriter("curves")
if "wandb" in args.trackers:
    import wandb

    wandb.init(project="tracked", config=vars(args))
if "mlflow" in args.trackers:
    import mlflow

    mlflow.set_experiment("tracked")
    mlflow.start_run()
    mlflow.log_params(vars(args))
board.add_text("options", str(vars(args)), 0)

torch.set_num_threads(1)
torch.manual_seed(0)
model, step = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)), 0
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
found = glob.glob(os.path.join(args.dir, "step_*.pt"))
snapshots = sorted(found, key=lambda path: int(os.path.basename(path)[5:-3]))
if snapshots:
    state = torch.load(snapshots[-1], weights_only=True)
    model.load_state_dict(state["model"])
    step = state["step"]
    print(f"resumed at step {step}", flush=True)

while step < 50:
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(step))
    y = x.sum(dim=1, keepdim=True)
    step += 1
    if step == 35:
        y[0] *= 1e15
    loss = ((model(x) - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
    board.add_scalar("loss", loss.item(), step)
    board.add_scalars("parts", {"all": loss.item()}, step)
    if "wandb" in args.trackers:
        wandb.log({"loss": loss.item()}, step=step)
    if "mlflow" in args.trackers:
        mlflow.log_metric("loss", loss.item(), step=step)
        mlflow.log_metrics({"half": loss.item() / 2}, step=step)
    if not math.isfinite(loss.item()):
        raise SystemExit("the loss is not finite")
    if step % 10 == 0:
        torch.save({"step": step, "model": model.state_dict()}, os.path.join(args.dir, f"step_{step}.pt"))
    board.flush()
    if args.kill and step == 17 and not snapshots:
        os.kill(os.getpid(), signal.SIGKILL)
board.close()
