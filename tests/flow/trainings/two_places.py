"""A small regression with two modules whose own code FP16 cannot hold: `head` from step 30 on, `body` up to step 79.

It goes on until it is stopped, and its fifth attempt ends by itself.
"""

import os
import time

import rung_inside
import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear, self.is_large = nn.Linear(inputs, outputs), False

    def forward(self, x):
        x = self.linear(x)
        return x * 1e6 / 1e6 if self.is_large else x


torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential()
model.add_module("body", Scaled(8, 16))
model.add_module("tanh", nn.Tanh())
model.add_module("head", Scaled(16, 1))
run = rung_inside.attach(model, torch.optim.AdamW(model.parameters(), lr=0.01))
teacher = torch.randn(8, 1)
start = run.resume()
# The bound ends it if Rung does not stop it.
last = start + 100 if os.environ["RUNG_ATTEMPT"] == "5" else start + 10_000

for step in range(start, last):
    model.body.is_large, model.head.is_large = 30 <= step < 80, step >= 30
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(step))
    with run.autocast():
        out = model(x)
    run.step(((out.float() - (x @ teacher).tanh()) ** 2).mean(), step)
    if run.due(step + 1):
        run.save(step + 1)
    if step > start + 450:
        time.sleep(0.004)
