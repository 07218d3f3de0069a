"""The model, the data and the ways to fail that all generators share. Run them with one thread: `OMP_NUM_THREADS=1`."""

import os
import signal

import torch

torch.set_num_threads(1)
torch.manual_seed(0)

LEARNING_RATES = {"nan": 3e4, "drift": 2.2, "soar": 1e12}
WIDTH = 16


class Net(torch.nn.Module):
    """A small regressor that fails in the forward pass if a fault is given."""

    def __init__(self, fault="healthy"):
        super().__init__()
        self.fault = fault
        self.seen = 0
        self.first = torch.nn.Linear(WIDTH, 32)
        self.last = torch.nn.Linear(32, 1)

    def forward(self, x):
        self.seen += 1
        hidden = torch.relu(self.first(x))
        if self.fault == "overflow" and self.seen > 12:
            # The mask of many attention layers: valid in FP32, out of range in FP16.
            hidden = hidden.masked_fill(hidden == 0, -1e9)
        if self.fault == "collapse":
            hidden = hidden * 1e6
        if self.fault == "poison" and self.seen == 25:
            hidden = hidden * float("nan")
        if self.fault == "killed" and self.seen == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "oom" and self.seen == 15:
            hidden = hidden + torch.zeros(1 << 45)[: hidden.shape[1]]
        return self.last(hidden)


def rate(fault, healthy=0.05):
    """Return the learning rate that leads to a fault, or a healthy one."""
    return LEARNING_RATES.get(fault, healthy)


def batch(size=32):
    x = torch.randn(size, WIDTH)
    return x, x[:, :1] * 2 + 0.1 * torch.randn(size, 1)


class Data(torch.utils.data.Dataset):
    def __init__(self, length=256):
        self.x, self.y = batch(length)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]
