"""Trainings in FP16 that overflow, on a GPU that is pretended and whose memory may be too small for FP32."""

from __future__ import annotations

import torch
from small_training import batch, values
from torch import nn

GIB = 2**30
# What forward passes have allocated so far.
_allocated = [0]


class Heavy(nn.Module):
    """Keeps 10 GiB in FP16 and 20 in FP32, and may run out of memory in FP32: always, or only with its graph."""

    def __init__(self, runs_out):
        super().__init__()
        self.layer, self.last = nn.Linear(8, 8), nn.Linear(8, 1)
        self.runs_out = runs_out

    def forward(self, x):
        hidden = self.layer(x)
        is_wide, keeps = hidden.dtype == torch.float32, torch.is_grad_enabled()
        if is_wide and (self.runs_out == "always" or (keeps and self.runs_out == "with its graph")):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        _allocated[0] += (20 if is_wide else 10) * GIB if keeps else 0
        return self.last(hidden * 300.0 * 300.0 / 90000.0)


def trained(runs_out="", **gpu):
    """Train four steps, the third with inputs that are beyond FP16; `gpu` is its memory, None: there is no GPU."""
    if gpu:
        from rung_inside.zero_edit.replay import memory

        memory.read = lambda _: memory.Memory(**{name: size * GIB for name, size in gpu.items()})
        torch.cuda.memory_allocated = lambda _: _allocated[0]
    model = Heavy(runs_out)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu")
    for step in range(4):
        inputs, targets = batch(step)
        with torch.autocast("cpu", dtype=torch.float16):
            output = model(inputs * (3000.0 if step == 2 else 1.0))
        loss = nn.functional.mse_loss(output.float(), targets)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return {"weights": values(model), "random": torch.rand(4).tolist()}


def without_a_gpu(_folder):
    return trained()


def runs_out(_folder):
    return trained("always")


def fits(_folder):
    return trained(peak=20, used=4, limit=40)


def too_large(_folder):
    return trained(peak=20, used=4, limit=24)


def graph_too_large(_folder):
    return trained("with its graph", peak=20, used=4, limit=24)


def graph_beside_gradients(_folder):
    return trained("with its graph", peak=20, used=14, limit=24)
