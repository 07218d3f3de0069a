"""Trains with data workers that fail: `python loaders.py killed|raises|memory|healthy`."""

import os
import resource
import signal
import sys

import torch
from tiny import Data, Net, rate

fault = sys.argv[1]


class Source(Data):
    def __getitem__(self, index):
        if index == 96:
            if fault == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if fault == "raises":
                raise ValueError("a picture that cannot be read: 96.png")
            if fault == "memory":
                bytearray(1 << 40)
        return super().__getitem__(index)


if fault == "limit":
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
net = Net("oom" if fault == "limit" else fault)
optimizer = torch.optim.SGD(net.parameters(), lr=rate(fault, 0.02))
step = 0
for epoch in range(3):
    for x, y in torch.utils.data.DataLoader(Source(), batch_size=16, num_workers=2):
        loss = torch.nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} batch {step % 16}/16 step {step} loss {loss.item():.5f}", flush=True)
        step += 1
