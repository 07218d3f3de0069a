"""Small trainings that do not know Rung, for the knobs precision and params; each returns what its test checks."""

from __future__ import annotations

import dataclasses

import torch
from small_training import batch, by_closure, loss_of, moves, network
from torch import nn


def adam_closure(_folder):
    model = network()
    return by_closure(torch.optim.Adam(model.parameters(), lr=0.01), model)


class Looking(nn.Module):
    """Records the dtype that its first layer computes in."""

    def __init__(self):
        super().__init__()
        self.inner, self.norm, self.outer = nn.Linear(8, 32), nn.LayerNorm(32), nn.Linear(32, 1)
        self.seen = set()

    def forward(self, inputs):
        hidden = self.inner(inputs)
        self.seen.add(str(hidden.dtype))
        return self.outer(self.norm(torch.tanh(hidden)))


def first_skipped(_folder):
    """Train with a scaler that skips the first two updates, because their gradients are infinite."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    for step in range(6):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, step) * (float("inf") if step < 2 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()


def amp(model, steps=6, half_inputs=False, context=None, lr=1e-2):
    """Train as tutorials do; return the dtypes, the losses and the state of the scaler."""
    optimizer = torch.optim.AdamW((each for each in model.parameters() if each.requires_grad), lr=lr)
    scaler = torch.amp.GradScaler("cpu")
    losses, same = [], []
    for step in range(steps):
        inputs, targets = batch(step)
        with context or torch.autocast("cpu", dtype=torch.float16):
            output = model(inputs.half() if half_inputs else inputs)
        loss = nn.functional.mse_loss(output.float(), targets)
        optimizer.zero_grad()
        scaled = scaler.scale(loss)
        same.append(scaled is loss)
        scaled.backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(float(loss.detach()))
    state = scaler.state_dict()
    torch.amp.GradScaler("cpu").load_state_dict(state)
    return {
        "seen": sorted(getattr(model, "seen", ())),
        "dtypes": sorted({str(each.dtype) for each in model.parameters()}),
        "trained": sorted({str(each.dtype) for each in model.parameters() if each.requires_grad}),
        "enabled": scaler.is_enabled(),
        "scale": scaler.get_scale(),
        "unchanged": all(same),
        "losses": losses,
        "state": {str(v.dtype) for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v)}.__repr__(),
    }


def amp_script(_folder):
    return amp(Looking())


def half_script(_folder):
    """Train an FP16 model with a scaler, which raises the unscale error."""
    return amp(Looking().half())


def pure_half_script(_folder):
    """Train an FP16 model on FP16 inputs without autocast."""
    return amp(Looking().half(), half_inputs=True, context=torch.autocast("cpu", enabled=False))


def decorated(_folder):
    class Decorated(Looking):
        @torch.autocast("cpu", dtype=torch.float16)
        def forward(self, inputs):
            return super().forward(inputs)

    return amp(Decorated(), context=torch.autocast("cpu", enabled=False))


def no_autocast(_folder):
    model = Looking()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(2):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
    return {"seen": sorted(model.seen)}


def adapter_on_half_base(_folder):
    """Train a half-precision adapter on a frozen half-precision base."""
    model = Looking().half()
    for each in model.inner.parameters():
        each.requires_grad_(False)
    return amp(model)


def many_dtypes(_folder):
    """Train with mixed dtypes: an FP32 table in the forward, keyword arguments, a dataclass of results, batch norm."""

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.last = nn.Linear(8, 32), nn.BatchNorm1d(32), nn.Linear(32, 1)

        def forward(self, *, inputs, shift=None):
            hidden = self.norm(self.first(inputs + torch.linspace(0, 1, 8)))
            return {"out": self.last(torch.relu(hidden) + shift), "hidden": (hidden,)}

    @dataclasses.dataclass(frozen=True)
    class Found:
        out: torch.Tensor
        hidden: tuple

    class Packed(Mixed):
        def forward(self, **batch):
            return Found(**super().forward(**batch))

    model = Packed()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(4):
        inputs, targets = batch(step)
        found = model(inputs=inputs, shift=torch.ones(32))
        loss = nn.functional.mse_loss(found.out, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {
        "out": [str(found.out.dtype), str(found.hidden[0].dtype)],
        "linear": str(model.first.weight.dtype),
        "norm": [str(model.norm.weight.dtype), str(model.norm.running_var.dtype)],
        "loss": float(loss.detach()),
    }


def half_targets(_folder):
    """Train with FP16 model, inputs and targets on each loss that takes a target; average the weights."""
    model = network().half()
    average = torch.optim.swa_utils.AveragedModel(
        network(), multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    from torch.nn.functional import binary_cross_entropy_with_logits, huber_loss, l1_loss, mse_loss, smooth_l1_loss

    for loss_by in (mse_loss, l1_loss, smooth_l1_loss, huber_loss, binary_cross_entropy_with_logits):
        inputs, targets = batch(0)
        loss = loss_by(input=model(inputs.half()), target=targets.half())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if model[0].weight.dtype == torch.float16:
            average.update_parameters(model)
    return {"dtype": str(model[0].weight.dtype), "average": str(average.module[0].weight.dtype)}


def not_finite_once(_folder):
    """Train with one batch whose gradients are not finite."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step_once(step):
        optimizer.zero_grad()
        (loss_of(model, step) * (float("inf") if step == 1 else 1.0)).backward()
        optimizer.step()

    return {"moved": moves(step_once, model)}


def half_by_hand(_folder):
    """Cast to FP16 in the forward pass, where a mask overflows; training fails before the first update."""

    class Casting(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = nn.Linear(8, 8), nn.Linear(8, 1)

        def forward(self, inputs):
            scores = self.inner(inputs).half().masked_fill(inputs > 2, -1e9)
            return self.outer(torch.softmax(scores.to(torch.float16), 1).to(dtype=self.outer.weight.dtype))

    model = Casting()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
