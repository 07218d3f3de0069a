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


class HandsInfinity(nn.Module):
    """Hands -inf to a layer, as a mask may: the layer returns the first NaN, and it is not the layer's doing."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return self.layer(x - (x * 0.0 + 20000.0).sum(1, keepdim=True) / 8 + 20000.0)


class Keeping(nn.Module):
    """Keeps a penalty for the loss, which is beyond FP16."""

    def forward(self, x):
        x = x * 1000.0
        self.penalty = (x * x).mean() * 1e-9
        return x / 1000.0


class Scaled(nn.Module):
    """A detour through numbers beyond FP16; in BF16 it only rounds."""

    def forward(self, x):
        return x * 1e6 / 1e6


class Rounded(nn.Module):
    """A sigmoid so near to 1 that only FP32 can tell it from 1."""

    def forward(self, x):
        return x - 1e-3 * torch.log(1.0 - torch.sigmoid(x * 0.0 + 9.0))


class Divided(nn.Module):
    def forward(self, x):
        return x * 1e-4


class Steep(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, x):
        return x.clone()

    @staticmethod
    def backward(_ctx, gradient):
        return gradient * 1e9


class Gradient(nn.Module):
    """Numbers that fit FP16, and gradients that do not."""

    def forward(self, x):
        return Steep.apply(x)


class Broken(nn.Module):
    def forward(self, x):
        return torch.log(x - x)


def times(factor):
    """Return a layer that computes in FP16 whatever it is given."""
    layer = nn.Linear(8, 8)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(8) * factor)
        layer.bias.zero_()
    return layer


def costs(extra):
    """Let a forward pass take one second, and each place as much more: how fast this machine is must not matter."""
    from rung_inside.places import fp32_calls
    from rung_inside.zero_edit.replay import cure

    cure._seconds = lambda _call, **_how: 1.0 + extra * len(fp32_calls._places)


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
    shares = {name: fields.get(name) for name in ("cost", "whole")}
    return {"cure": fields.get("cure"), **shares, "unchanged": same, "after": after}


def norm_by_hand(_folder):
    return found(ByHand())


def without_bf16(_folder):
    """As on a GPU before sm_80."""
    from rung_inside.zero_edit.replay import cure

    cure._has_bf16 = lambda _device: False
    return found(ByHand())


def prices_without_bf16(_folder):
    from rung_inside.places import fp32_calls
    from rung_inside.zero_edit.replay import cure

    cure._has_bf16 = lambda _device: False
    cure._seconds = lambda _call, wide=False, cast=None: 1.3 if wide else 1.0 + 0.25 * len(fp32_calls._places)
    return found(ByHand())


def two_of_them(_folder):
    return found(nn.Sequential(nn.Linear(8, 8), ByHand()), nn.Dropout(0.1), nn.Linear(8, 8), Softmax())


def masks(_folder):
    return found(Masked())


def large_layer(_folder):
    return found(Large())


def after_the_model(_folder):
    return found(nn.Tanh())


def handed_infinity(_folder):
    return found(nn.Sequential(HandsInfinity()))


def penalty(_folder):
    return found(Keeping())


def broken(_folder):
    return found(Broken())


# A norm over 8 features is at least 1 and at most 2.7 somewhere: times 10,000 that is within a factor of 8 of 65504.


def near_the_limit(_folder):
    costs(0.14)
    return found(ByHand(), times(10000.0), Divided())


def near_but_dear(_folder):
    costs(0.16)
    return found(ByHand(), times(10000.0), Divided())


def near_in_part(_folder):
    costs(0.0)
    return found(ByHand(), nn.Sequential(times(10000.0)), Divided())


def far_from_the_limit(_folder):
    costs(0.0)
    return found(ByHand(), times(3000.0), Divided())


def too_many(_folder):
    return found(*(nn.Sequential(times(1.0), Scaled()) for _ in range(17)))


def too_many_for_bf16(_folder):
    return found(*(nn.Sequential(times(1.0), Rounded()) for _ in range(17)))


def gradient(_folder):
    return found(Gradient())
