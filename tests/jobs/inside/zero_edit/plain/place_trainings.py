"""Small trainings in FP16 that do not know Rung, for the knobs fp32_modules and constants; each returns what it saw."""

from __future__ import annotations

import torch
from small_training import batch, flat, network
from torch import nn
from torch.utils import checkpoint

SEEN: dict[str, list[str]] = {}


def see(name, tensor):
    """Record the dtype of a tensor, and that of a matrix product there: autocast decides it."""
    product = torch.ones(2, 2) @ torch.ones(2, 2)
    SEEN.setdefault(name, []).append(f"{tensor.dtype} {product.dtype}".replace("torch.", ""))


class Child(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        see("child", self.layer(x))
        return torch.tanh(self.layer(x))


class Block(nn.Module):
    """Hands its child a number and takes one back; `unit` makes its own numbers large, and hands them out so."""

    def __init__(self, unit=1.0, again=False):
        super().__init__()
        self.child, self.unit, self.again = Child(), unit, again
        self.scale = nn.Parameter(torch.ones(8))
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        see("own", x * self.scale)
        if self.training:
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        got = checkpoint.checkpoint(self.child, x, use_reentrant=False) if self.again else self.child(x)
        see("handed back", got)
        # The square is beyond FP16 where the unit is 300.
        wide = (got * self.unit + self.unit) ** 2
        return wide * self.scale


class Model(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.first, self.block, self.last = nn.Linear(8, 8), Block(**options), nn.Linear(8, 1)

    def forward(self, x):
        out = self.block(self.first(x))
        see("after", out)
        self.largest = float(out.detach().abs().max())
        return self.last(out / max(1.0, self.block.unit) ** 2)


def script(model, steps=4, loss_of=None, lr=1e-2):
    """Train as tutorials do, the loss under autocast."""
    SEEN.clear()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    losses = []
    for step in range(steps):
        inputs, targets = batch(step)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = (loss_of or plain_loss)(model, inputs, targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        see("after the step", inputs)
        losses.append(float(loss.detach()))
    return {
        "seen": {name: sorted(set(dtypes)) for name, dtypes in SEEN.items()},
        "losses": losses,
        "largest": getattr(model, "largest", None),
        "weights": flat(model).tolist(),
        "gradients": [float(each.grad.norm()) for each in model.parameters()],
        "keys": list(model.state_dict()),
    }


def plain_loss(model, inputs, targets):
    out = model(inputs)
    see("loss", out)
    return nn.functional.mse_loss(out.float(), targets)


def blocks(_folder):
    return script(Model())


def overflowing(_folder):
    return script(Model(unit=300.0))


def beyond(_folder):
    """Hand out numbers beyond FP16 from a block."""
    return script(Model(unit=1000.0))


def checkpointed(_folder):
    return script(Model(again=True))


def pickled(folder):
    model = Model()
    script(model)
    torch.save(model, folder / "model.pt")
    return {"rung": b"rung" in (folder / "model.pt").read_bytes(), "hooks": len(model.block._forward_hooks)}


def in_fp32(_folder):
    """Train in FP32, where nothing is to be done."""
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(4):
        inputs, targets = batch(step)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    return {"weights": flat(model).tolist()}


def two_calls(model, inputs, targets):
    """Call the model twice in one autocast, and enter another one between."""
    first = model(inputs)
    see("between", first)
    with torch.autocast("cpu", dtype=torch.float16):
        see("autocast of the loss", first)
    second = model(-inputs)
    return nn.functional.mse_loss((first - second).float(), targets)


def losses_of_two(_folder):
    return script(Model(), loss_of=two_calls)


class Entering(nn.Module):
    """Enters autocast in its own forward, as Accelerate does."""

    def __init__(self):
        super().__init__()
        self.child = Child()
        self.last = nn.Linear(8, 1)

    @torch.autocast("cpu", dtype=torch.float16)
    def forward(self, x):
        see("own", x)
        return self.last(self.child(x))


def entering(_folder):
    model = Entering()
    SEEN.clear()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(4):
        inputs, targets = batch(step)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs).float(), targets).backward()
        optimizer.step()
    return {"seen": {name: sorted(set(dtypes)) for name, dtypes in SEEN.items()}}


def half_model(_folder):
    """Train a model in FP16 without autocast or scaler."""
    model = Model(unit=300.0).half()
    SEEN.clear()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    losses = []
    for step in range(4):
        inputs, targets = batch(step)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs.half()).float(), targets)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return {
        "seen": {name: sorted({each.split()[0] for each in dtypes}) for name, dtypes in SEEN.items()},
        "losses": losses,
        "dtypes": sorted({str(each.dtype) for each in (*model.parameters(), *model.buffers())}),
        "mean": float(model.block.mean.abs().sum()),
        "gradients": [float(each.grad.float().norm()) for each in model.parameters()],
    }


def masked(_folder):
    """Mask scores with a number that FP16 cannot hold."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(4):
        inputs, targets = batch(step)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(inputs).masked_fill(targets > 0.9, -1e9)
        nn.functional.mse_loss(out.float().clamp(min=-2.0), targets).backward()
        optimizer.step()
    return {"lowest": float(out.detach().min())}
