"""Trains in FP16 and calls its layers one by one; from step 21 on, a detour between two of them leaves FP16's range."""

import torch
from torch import nn

torch.manual_seed(0)
first, last = nn.Linear(8, 16), nn.Linear(16, 1)
optimizer = torch.optim.SGD([*first.parameters(), *last.parameters()], lr=0.01)
for step in range(1, 41):
    x = torch.randn(32, 8)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        hidden = first(x)
        if step > 20:
            hidden = hidden * 1e5 - hidden * 99999.0
        loss = nn.functional.mse_loss(last(hidden).float(), x.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.5f}", flush=True)
