"""A penalty on the cubed activations overflows FP16 on every batch: the loss scale halves down to zero."""

import torch
from case import Checkpoints, amp_step, arguments, classes, cross_entropy, validate
from torch import nn

args = arguments()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x):
        raw = self.first(x * 1500.0)
        self.penalty = (raw * raw * raw.abs()).mean() * 1e-12
        return self.head(torch.tanh(raw / 1500.0))


def criterion(model, x, y):
    return cross_entropy(model, x, y) + model.penalty


model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", enabled=not args.fixed)
checkpoints = Checkpoints(args, model=model, optimizer=optimizer, scaler=scaler)

for step in range(checkpoints.start, args.steps):
    amp_step(args, criterion, classes(step), model, optimizer, scaler)
    if (step + 1) % 50 == 0:
        print(f"iter {step + 1}: scale {scaler.get_scale():g}")
        checkpoints.save(step + 1)

validate(cross_entropy, model, classes(-1, size=4000))
