"""A training in FP16 that overflows on every batch, and whose FP32 does not fit the memory of a pretended GPU."""

from __future__ import annotations

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 32), nn.Linear(32, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.first(inputs)
        if hidden.dtype == torch.float32:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return self.last(hidden * 60000.0) / 60000.0


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(60):
    inputs = torch.randn(32, 8)
    with torch.autocast("cpu", dtype=torch.float16):
        output = model(inputs)
    loss = nn.functional.mse_loss(output.float(), inputs.sum(1, keepdim=True))
    print(f"step {step + 1} loss {loss.item():.4f}", flush=True)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
