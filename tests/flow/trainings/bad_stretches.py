"""A small regression that imports rung_inside, with batches now and then that FP16 cannot hold.

Steps 30 to 79 are bad, and in an attempt that resumes from a late checkpoint all steps from its 40th on. FP32 can
hold all of them.
"""

import time

import rung_inside
import torch

LATE = 400

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
run = rung_inside.attach(model, torch.optim.AdamW(model.parameters(), lr=0.01))
teacher = torch.randn(8, 1)
start = run.resume()
# A cured run goes on until it is stopped; the bound ends it if Rung does not.
last = start + 200 if start > LATE else 10_000

for step in range(start, last):
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(step))
    y = (x @ teacher).tanh()
    with run.autocast():
        out = model(x)
        if 30 <= step < 80 or (start > LATE and step >= start + 40):
            out = (out * 1e6) / 1e6
    run.step(((out.float() - y) ** 2).mean(), step)
    if run.due(step + 1) and (step < LATE + 60 or start > LATE):
        run.save(step + 1)
    if step > LATE + 100:
        time.sleep(0.004)
