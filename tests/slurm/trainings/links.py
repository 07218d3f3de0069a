"""A training that saves when its time is nearly up, and that finishes in the link after LINKS - 1 that have saved."""

import os
import signal
import sys
import time
from typing import Any

import torch

told = []
signal.signal(int(os.environ["RUNG_SAVE_SIGNAL"]), lambda *_: told.append(True))
folder, resume = os.environ["RUNG_CHECKPOINT_DIR"], os.environ["RUNG_CHECKPOINT"]
state: dict[str, Any] = torch.load(resume, weights_only=True) if resume else {"step": 0, "link": 0}
# A link that saved nothing is none, so a slow machine has more attempts and the same links.
step, link = state["step"], state["link"] + 1
print(f"rung| resumed step={step} file={os.path.basename(resume) or 'none'}", flush=True)
last = step + 5 if link >= int(os.environ["LINKS"]) else sys.maxsize
while step < last:
    step += 1
    print(f"rung| step step={step} loss={1 / step}", flush=True)
    if told or step % 5 == 0:
        draft = os.path.join(folder, f"draft_{step}.pt")
        torch.save({"step": step, "link": link, "weights": torch.full((1000,), 1 / step)}, draft)
        os.rename(draft, os.path.join(folder, f"step_{step}.pt"))
    if told:
        sys.exit(85)
    time.sleep(0.2)
