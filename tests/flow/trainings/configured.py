"""A small regression that reads all its settings from config.yaml beside it, as many do. It does not know Rung."""

import os
from pathlib import Path

import torch
import yaml

config = yaml.safe_load((Path(__file__).resolve().parent / "config.yaml").read_text())
train = config["train"]
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=config["optimizer"]["lr"])
scaler = torch.amp.GradScaler("cpu", enabled=train["use_amp"])
teacher = torch.randn(8, 1)
first = 0
if train["resume"]:
    state = torch.load(train["resume"], weights_only=True)
    model.load_state_dict(state["model"])
    first = state["step"]
    print(f"resumed at step {first}", flush=True)

for step in range(first, 100):
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(step))
    with torch.autocast("cpu", dtype=torch.float16, enabled=train["use_amp"]):
        out = model(x)
        if step >= 45:
            # Padding from here on, masked with a constant that FP16 cannot hold.
            out = out.masked_fill(x[:, :1] > 9, -1e9)
    loss = ((out.float() - x @ teacher) ** 2).mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print(f"step {step + 1} loss {loss.item():.6f} lr {optimizer.param_groups[0]['lr']:g}", flush=True)
    if (step + 1) % 10 == 0:
        path = os.path.join(train["dir"], f"step_{step + 1}.pt")
        torch.save({"step": step + 1, "model": model.state_dict()}, path)
Path("notes.txt").write_text("written beside the script")
print(f"val_loss: {loss.item():.6f}", flush=True)
