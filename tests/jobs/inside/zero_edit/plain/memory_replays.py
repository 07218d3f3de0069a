"""Trainings in FP16 that overflow, on a GPU that is pretended and whose memory may be too small for FP32."""

from __future__ import annotations

import torch
from small_training import batch, values
from torch import nn

GIB = 2**30


class Heavy(nn.Module):
    """Overflows in FP16 with large inputs, and may run out of memory in FP32."""

    def __init__(self, fails):
        super().__init__()
        self.layer, self.last = nn.Linear(8, 8), nn.Linear(8, 1)
        self.fails = fails

    def forward(self, x):
        hidden = self.layer(x)
        if self.fails == "in FP32" and hidden.dtype == torch.float32:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return self.last(hidden * 300.0 * 300.0 / 90000.0)


def trained(fails="", **gpu):
    """Train four steps, the third with inputs that are beyond FP16; `gpu` is its memory in GiB, if there is one."""
    if gpu:
        from rung_inside.zero_edit.replay import memory

        really_kept = memory.kept

        def kept(call, *, wide):
            assert really_kept(call, wide=wide) > 0
            return (20 if wide else 10) * GIB

        memory.kept = kept
        memory.read = lambda _: memory.Memory(**{name: size * GIB for name, size in gpu.items()})
    model = Heavy(fails)
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
    return trained("in FP32")


def fits(_folder):
    return trained(peak=20, used=4, limit=24)


def too_large(_folder):
    return trained(peak=20, used=4, limit=23)


def too_large_by_its_peak(_folder):
    return trained(peak=13, used=12, limit=22)
