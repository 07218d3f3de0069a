"""A training by several ranks (gloo) that saves, resumes, and goes on until the file `finish` exists."""

import os
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
folder, resume = os.environ["RUNG_CHECKPOINT_DIR"], os.environ["RUNG_CHECKPOINT"]
step = torch.load(resume, weights_only=True)["step"] if resume else 0
if resume:
    print(f"resumed at step {step}", flush=True)
while True:
    # All ranks end after the same step.
    ends = torch.tensor(float(os.path.exists("/rung/job/finish")))
    dist.all_reduce(ends, op=dist.ReduceOp.MAX)
    if ends.item():
        break
    step += 1
    print(f"step={step} loss={1 / step:.6f}", flush=True)
    if step % 5 == 0 and dist.get_rank() == 0:
        draft = os.path.join(folder, f"draft_{step}.pt")
        torch.save({"step": step, "weights": torch.full((1000,), 1 / step)}, draft)
        os.rename(draft, os.path.join(folder, f"step_{step}.pt"))
    time.sleep(0.2)
dist.destroy_process_group()
