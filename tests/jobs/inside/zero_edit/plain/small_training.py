"""The parts that small trainings share: a model, its data, a wrapper optimizer, and loops."""

from __future__ import annotations

import torch
from torch import nn


def network(width=32):
    return nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, 1))


def batch(step, count=32):
    generator = torch.Generator().manual_seed(100 + step)
    inputs = torch.randn(count, 8, generator=generator)
    return inputs, torch.sin(inputs.sum(dim=1, keepdim=True) / 2)


def loss_of(model, step):
    inputs, targets = batch(step)
    return nn.functional.mse_loss(model(inputs), targets)


def flat(model):
    return torch.cat([each.detach().float().flatten() for each in model.parameters()])


def values(model):
    return flat(model).tolist()


class Cover(torch.optim.Optimizer):
    """A wrapper as frameworks have it: it shares the groups of the optimizer inside, which does the work."""

    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.param_groups, self.defaults, self.state = optimizer.param_groups, optimizer.defaults, optimizer.state

    def step(self, closure=None):
        return self.optimizer.step(closure)

    def zero_grad(self):
        self.optimizer.zero_grad()

    def state_dict(self):
        return self.optimizer.state_dict()


def by_closure(optimizer, model, steps=4):
    for step in range(steps):

        def closure(step=step):
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward()
            return loss

        optimizer.step(closure)
    return {"weights": values(model), "dtype": str(model[0].weight.dtype)}


def moves(step_once, model, count=4):
    """Return how far each update moved the weights."""
    lengths = []
    for step in range(count):
        before = flat(model)
        step_once(step)
        lengths.append(float((flat(model) - before).norm()))
    return lengths
