"""A training that runs until the file `finish` exists, and writes a checkpoint every few steps."""

import os
import time

import torch

folder, resume = os.environ["RUNG_CHECKPOINT_DIR"], os.environ["RUNG_CHECKPOINT"]
step = torch.load(resume, weights_only=True)["step"] if resume else 0
print(f"rung| resumed step={step} file={os.path.basename(resume) or 'none'}")
while not os.path.exists("/rung/job/finish"):
    step += 1
    print(f"rung| step step={step} loss={1 / step}")
    if step % 5 == 0:
        draft = os.path.join(folder, f"draft_{step}.pt")
        torch.save({"step": step, "weights": torch.full((1000,), 1 / step)}, draft)
        os.rename(draft, os.path.join(folder, f"step_{step}.pt"))
    time.sleep(0.2)
