"""Trains with the guards that people write against NaN, and the messages they print: `python guards.py GUARD FAULT`."""

import math
import sys

import torch
from tiny import Net, batch, rate

guard, fault = sys.argv[1:3]
torch.autograd.set_detect_anomaly(guard == "anomaly")
net = Net(fault)
optimizer = torch.optim.SGD(net.parameters(), lr=rate(fault))
for step in range(40):
    x, y = batch()
    loss = torch.nn.functional.mse_loss(net(x), y)
    if guard == "raise" and not torch.isfinite(loss):
        raise ValueError(f"Training loss is {loss.item()} at step {step}")
    if guard == "assert":
        assert not torch.isnan(loss), "loss is nan"
    if guard == "exit" and not math.isfinite(loss.item()):
        print(f"Loss is {loss.item()}, stopping training", flush=True)
        sys.exit(1)
    if guard == "skip" and not math.isfinite(loss.item()):
        print(f"WARNING: NaN/Inf loss detected at step {step}, skipping batch", flush=True)
        continue
    optimizer.zero_grad()
    loss.backward() if guard != "anomaly" else (
        loss * torch.log(loss - loss)
    ).backward() if step == 20 else loss.backward()
    optimizer.step()
    print(f"step {step:4d} | loss {loss.item():.6f} | lr {optimizer.param_groups[0]['lr']:.2e}", flush=True)
