"""Models that overflow in FP16, and the cure that a replay of one step finds for each."""

from __future__ import annotations

import torch
from small_training import batch, flat
from torch import nn


class ByHand(nn.Module):
    """A norm by hand, whose squares are beyond FP16."""

    def forward(self, x):
        x = x * 300.0 + 300.0
        mean = x.mean(1, keepdim=True)
        variance = (x * x).mean(1, keepdim=True) - mean * mean
        return (x - mean) / torch.sqrt(variance + 1e-5)


class Softmax(nn.Module):
    def forward(self, x):
        powers = torch.exp(x * 0.01 + 12.0)
        return powers / powers.sum(1, keepdim=True)


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return torch.softmax(self.layer(x).masked_fill(x > 1.0, -1e9), 1)


class Large(nn.Module):
    """A layer whose outputs are beyond FP16, in a module that makes them small again."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return self.layer(x * 60000.0) / 60000.0


class Keeping(nn.Module):
    """Keeps a penalty for the loss, which is beyond FP16."""

    def forward(self, x):
        x = x * 1000.0
        self.penalty = (x * x).mean() * 1e-9
        return x / 1000.0


class Broken(nn.Module):
    def forward(self, x):
        return torch.log(x - x)


def found(*parts):
    from rung_inside.zero_edit import run_state
    from rung_inside.zero_edit.replay import cure, replay

    model = nn.Sequential(nn.Linear(8, 8), *parts, nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    inputs, targets = batch(0)
    try:
        with torch.autocast("cpu", dtype=torch.float16):
            nn.functional.mse_loss(model(inputs).float(), targets)
    except RuntimeError:
        pass
    assert len(run_state.models) == 1 and optimizer is not None
    before = flat(model)
    got = cure.find_cure(replay.Call(model))
    fields = got.fields() if got is not None else {}
    with torch.autocast("cpu", dtype=torch.float16):
        after = [str(part(inputs).dtype) for part in model[:1]]
    same = bool((flat(model) == before).all()) and all(each.grad is None for each in model.parameters())
    return {"cure": fields.get("cure"), "cost": fields.get("cost"), "unchanged": same, "after": after}


def norm_by_hand(_folder):
    return found(ByHand())


def two_of_them(_folder):
    return found(nn.Sequential(nn.Linear(8, 8), ByHand()), nn.Dropout(0.1), nn.Linear(8, 8), Softmax())


def masks(_folder):
    return found(Masked())


def large_layer(_folder):
    return found(Large())


def after_the_model(_folder):
    return found(nn.Tanh())


def penalty(_folder):
    return found(Keeping())


def broken(_folder):
    return found(Broken())
