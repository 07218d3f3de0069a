"""A small regression that waits for a lock for ever after 30 steps, in its first attempt. It does not know Rung."""

import os
import threading

import torch


def next_batch(step):
    if step == 30 and os.environ["RUNG_ATTEMPT"] == "1":
        wait_for_ever()
    return torch.randn(32, 8, generator=torch.Generator().manual_seed(step))


def wait_for_ever():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
folder, resumed, first = os.environ["RUNG_CHECKPOINT_DIR"], os.environ["RUNG_CHECKPOINT"], 0
if resumed:
    state = torch.load(resumed, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["step"]
    print(f"resumed at step {first}", flush=True)
for step in range(first, 60):
    x = next_batch(step)
    loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step + 1} loss {loss.item():.4f}", flush=True)
    if (step + 1) % 10 == 0:
        saved = {"step": step + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(saved, f"{folder}/step_{step + 1}.pt")
