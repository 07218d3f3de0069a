"""Small trainings that do not know Rung, for the knobs lr, clip and skip; each returns what its test checks."""

from __future__ import annotations

import copy
import pickle

import torch
from small_training import Cover, by_closure, flat, loss_of, moves, network, values
from torch import nn


class Sign(torch.optim.Optimizer):
    """An optimizer with its own step, which calls no other optimizer."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    def step(self):
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is not None:
                    each.data.add_(each.grad.sign(), alpha=-group["lr"])


MAKERS = {
    "sgd": lambda groups, lr: torch.optim.SGD(groups, lr=lr, momentum=0.9),
    "adamw": lambda groups, lr: torch.optim.AdamW(groups, lr=lr),
    "sign": Sign,
    "covered": lambda groups, lr: Cover(torch.optim.SGD(groups, lr=lr)),
    "tensor": lambda groups, lr: torch.optim.Adam(groups, lr=torch.tensor(lr)),
}


def optimized(kind, lr):
    """Train with a schedule and a second group at twice the lr; return the weights and the lrs that the script sees."""
    model = network()
    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": lr * 2}]
    optimizer = MAKERS[kind](groups, lr)
    inner = getattr(optimizer, "optimizer", optimizer)
    schedule = torch.optim.lr_scheduler.LambdaLR(inner, lambda step: min(1.0, (step + 1) / 4))
    for step in range(8):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
        schedule.step()
    seen = float(optimizer.state_dict()["param_groups"][0]["lr"])
    return {"weights": values(model), "lr": seen, "last": float(schedule.get_last_lr()[1])}


def sgd(_folder):
    return optimized("sgd", 0.05)


def sgd_by_hand(_folder):
    return optimized("sgd", 0.005)


def adamw(_folder):
    return optimized("adamw", 0.05)


def adamw_by_hand(_folder):
    return optimized("adamw", 0.005)


def sign(_folder):
    return optimized("sign", 0.05)


def sign_by_hand(_folder):
    return optimized("sign", 0.005)


def covered(_folder):
    return optimized("covered", 0.05)


def covered_by_hand(_folder):
    return optimized("covered", 0.005)


def tensor(_folder):
    return optimized("tensor", 0.05)


def tensor_by_hand(_folder):
    return optimized("tensor", 0.005)


def lbfgs(_folder):
    model = network()
    return by_closure(torch.optim.LBFGS(model.parameters(), lr=0.5), model)


def lbfgs_by_hand(_folder):
    model = network()
    return by_closure(torch.optim.LBFGS(model.parameters(), lr=0.05), model)


def two_optimizers(_folder):
    """Train two models in turns; the second optimizer has another lr and no clipping."""
    first, second = network(), network(16)
    one = torch.optim.SGD(first.parameters(), lr=0.1)
    two = torch.optim.SGD(second.parameters(), lr=0.01)
    for step in range(3):
        for model, optimizer in ((first, one), (second, two)):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            if model is first:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            before = flat(model)
            optimizer.step()
            moved = float(
                (flat(model) - before).norm() / torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
            )
    return {"rate": moved}


# Clipping


def clipping(own=None, amp=False, how="norm", fused=False, frozen=0):
    from torch.nn.utils import clip_grad_norm_, clip_grad_value_

    model = network()
    for parameter in list(model.parameters())[:frozen]:
        parameter.requires_grad_(False)
    optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=1.0, fused=fused)
    scaler = torch.amp.GradScaler("cpu", enabled=amp, init_scale=16.0)

    def step_once(step):
        with torch.autocast("cpu", dtype=torch.float16, enabled=amp):
            loss = loss_of(model, step) * 100
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if own is not None:
            scaler.unscale_(optimizer)
            (clip_grad_norm_ if how == "norm" else clip_grad_value_)(model.parameters(), own)
        scaler.step(optimizer)
        scaler.update()

    return moves(step_once, model)


def unclipped(_folder):
    return clipping()


def unclipped_amp(_folder):
    return clipping(amp=True)


def unclipped_fused(_folder):
    """Train with a fused optimizer, which unscales the gradients itself."""
    return clipping(amp=True, fused=True)


def clipped_to_one(_folder):
    return clipping(own=1.0, amp=True)


def clipped_on_a_frozen_base(_folder):
    return clipping(own=1.0, frozen=2)


def clipped_to_little(_folder):
    return clipping(own=0.01)


def clipped_by_value(_folder):
    return clipping(own=1.0, how="value")


def huge_half_gradients(_folder):
    """Clip FP16 gradients whose norm FP16 cannot hold."""
    weight = nn.Parameter(torch.zeros(1000, dtype=torch.float16))
    weight.grad = torch.full_like(weight, 30000.0)
    norm = nn.utils.clip_grad_norm_([weight], 1.0, norm_type=2)
    return {"norm": float(norm), "clipped": float(weight.grad.float().norm())}


# Skipped updates


def counted(_folder):
    """Train with a scaler; return how far each update moved the weights, and the last scale."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

    def step_once(step):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, step)).backward()
        scaler.step(optimizer)
        scaler.update()

    return {"moved": moves(step_once, model, 8), "scale": scaler.get_scale()}


def counted_on(folder):
    """Resume from a checkpoint, then train as `counted` does."""
    torch.save({"step": 100}, folder / "step_100.pt")
    torch.load(folder / "step_100.pt")
    return counted(folder)


def counted_plain(_folder):
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step_once(step):
        def closure():
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward()
            return loss

        assert optimizer.step(closure) is not None

    return {"moved": moves(step_once, model, 8)}


# Around a training


def in_pieces(_folder):
    """Train a compiled, a scripted and a recomputing model, with a wrapped optimizer under a scaler."""
    compiled = torch.compile(network(), backend="eager", fullgraph=True)
    scripted = torch.jit.script(network())
    inner = nn.Sequential(network(), nn.Linear(1, 1))

    class Recomputing(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner
            self.unused = nn.Linear(1, 1)

        def forward(self, inputs):
            return torch.utils.checkpoint.checkpoint(self.inner, inputs.requires_grad_(), use_reentrant=True)

    losses = []
    for model in (compiled, scripted, Recomputing()):
        extra = nn.Parameter(torch.zeros(1))
        optimizer = Cover(torch.optim.SGD([*model.parameters(), extra], lr=0.1))
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        for step in range(3):
            loss = loss_of(model, step) + extra.sum() * 0
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        losses.append(float(loss.detach()))
    return losses


def with_a_broken_part(folder):
    """Train while Rung's hook for the lr fails. No script makes it fail, so the test breaks it here."""
    from rung_inside.zero_edit.knobs import lr_factor

    lr_factor.LrFactor.enter = lambda _: 1 / 0
    return optimized("sgd", 0.05)


def left_alone(folder):
    """Pickle and copy what was trained; return whether Rung left anything in it."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(2):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
    torch.save(model, folder / "model.pt")
    copied = copy.deepcopy(model)
    loss_of(copied, 0)
    pickled = pickle.dumps([model, optimizer, torch.amp.GradScaler("cpu")]) + (folder / "model.pt").read_bytes()
    return {"ours": b"rung" in pickled, "call": nn.Module.__call__.__name__, "layer": nn.Linear.__call__.__name__}
