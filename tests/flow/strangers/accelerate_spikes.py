"""Forecast a series with a GRU; a few readings of the sensor are glitches. Saves its state and can go on from it."""

import os

import torch
from accelerate import Accelerator
from torch import nn

torch.set_num_threads(1)
FOLDER = os.environ.get("OUTPUT_DIR", "states")
STEPS = 300


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(1, 24, batch_first=True)
        self.out = nn.Linear(24, 1)

    def forward(self, series):
        return self.out(self.rnn(series.unsqueeze(-1))[0][:, -1]).squeeze(-1)


def series(step, size=32):
    generator = torch.Generator().manual_seed(step)
    phase = 6.3 * torch.rand(size, 1, generator=generator)
    speed = 0.2 + 0.4 * torch.rand(size, 1, generator=generator)
    values = torch.sin(phase + speed * torch.arange(17))
    if step % 90 == 70:
        values[3, 16] = 3e7
    return values[:, :16], values[:, 16]


torch.manual_seed(0)
accelerator = Accelerator(cpu=True)
model = Forecaster()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: 1 / (1 + done / 200))
model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)

start = 0
os.makedirs(FOLDER, exist_ok=True)
saved = [int(name.split("_")[1]) for name in os.listdir(FOLDER) if name.startswith("state_")]
if saved:
    start = max(saved)
    accelerator.load_state(os.path.join(FOLDER, f"state_{start}"))
    accelerator.print(f"Resuming from step {start}", flush=True)

for step in range(start, STEPS):
    past, future = series(step)
    loss = nn.functional.mse_loss(model(past), future)
    accelerator.backward(loss)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    if (step + 1) % 30 == 0:
        accelerator.print(f"[{step + 1}/{STEPS}] loss: {loss.item():.5f}", flush=True)
        accelerator.save_state(os.path.join(FOLDER, f"state_{step + 1}"))

with torch.no_grad():
    past, future = series(100_000, 512)
    accelerator.print(f"held-out loss {nn.functional.mse_loss(model(past), future).item():.5f}")
