"""A small regression that loads the newest snapshot of its folder by itself, as many do. It does not know Rung.

Without `--precision fp32` one sample far out of range makes its weights NaN at step 30, which the log shows at step 60.
"""

import argparse
import glob
import os

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--dir", required=True)
parser.add_argument("--precision", default="amp_fp16")
parser.add_argument("--first-save", type=int, default=10)
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
teacher = torch.randn(8, 1)
half = args.precision == "amp_fp16"
step = 0
found = glob.glob(os.path.join(args.dir, "**", "step_*.pt"), recursive=True)
snapshots = sorted(found, key=lambda path: int(os.path.basename(path)[5:-3]))
if snapshots:
    state = torch.load(snapshots[-1], weights_only=True)
    model.load_state_dict(state["model"])
    step = state["step"]
    print(f"resumed at step {step} from {os.path.basename(snapshots[-1])}", flush=True)

while step < 90:
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(step))
    out = model(x)
    if half and step == 30:
        out = out * (x[0, 0] * 1e9).half()
    loss = ((out - x @ teacher) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step % 30 == 0:
        print(f"step {step} loss {loss.item():.6f}", flush=True)
    if step % 10 == 0 and step >= args.first_save:
        torch.save({"step": step, "model": model.state_dict()}, os.path.join(args.dir, f"step_{step}.pt"))
