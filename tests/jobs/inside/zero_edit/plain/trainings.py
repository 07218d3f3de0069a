"""Small trainings that do not know Rung; each returns what its test checks."""

from __future__ import annotations

import copy
import dataclasses
import pickle

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


class Sign(torch.optim.Optimizer):
    """An optimizer from somewhere: its step is its own, and calls nobody's."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    def step(self):
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is not None:
                    each.data.add_(each.grad.sign(), alpha=-group["lr"])


class Cover(torch.optim.Optimizer):
    """A wrapper such as frameworks have: it shares the groups of the optimizer inside, which does the work."""

    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.param_groups, self.defaults, self.state = optimizer.param_groups, optimizer.defaults, optimizer.state

    def step(self, closure=None):
        return self.optimizer.step(closure)

    def zero_grad(self):
        self.optimizer.zero_grad()

    def state_dict(self):
        return self.optimizer.state_dict()


MAKERS = {
    "sgd": lambda groups, lr: torch.optim.SGD(groups, lr=lr, momentum=0.9),
    "adamw": lambda groups, lr: torch.optim.AdamW(groups, lr=lr),
    "sign": Sign,
    "covered": lambda groups, lr: Cover(torch.optim.SGD(groups, lr=lr)),
    "tensor": lambda groups, lr: torch.optim.Adam(groups, lr=torch.tensor(lr)),
}


def optimized(kind, lr):
    """Train with a schedule and a second group at twice the lr; see the lrs that the script sees."""
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


def by_closure(optimizer, model, steps=4):
    for step in range(steps):

        def closure(step=step):
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward()
            return loss

        optimizer.step(closure)
    return {"weights": values(model), "dtype": str(model[0].weight.dtype)}


def lbfgs(_folder):
    model = network()
    return by_closure(torch.optim.LBFGS(model.parameters(), lr=0.5), model)


def lbfgs_by_hand(_folder):
    model = network()
    return by_closure(torch.optim.LBFGS(model.parameters(), lr=0.05), model)


def adam_closure(_folder):
    model = network()
    return by_closure(torch.optim.Adam(model.parameters(), lr=0.01), model)


def two_optimizers(_folder):
    """Train two models in turns; the second optimizer has an lr of its own, and no clipping."""
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


def moves(step_once, model, count=4):
    """Return how far each update moved the weights."""
    lengths = []
    for step in range(count):
        before = flat(model)
        step_once(step)
        lengths.append(float((flat(model) - before).norm()))
    return lengths


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
    """Leave the unscaling to the optimizer's own kernel."""
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


# Updates left out


def counted(_folder):
    """Train with a scaler, and see which updates moved the weights and what became of the scale."""
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
    """Go on from a checkpoint."""
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


# Precision


class Looking(nn.Module):
    """Notes the dtype that its products really have."""

    def __init__(self):
        super().__init__()
        self.inner, self.norm, self.outer = nn.Linear(8, 32), nn.LayerNorm(32), nn.Linear(32, 1)
        self.seen = set()

    def forward(self, inputs):
        hidden = self.inner(inputs)
        self.seen.add(str(hidden.dtype))
        return self.outer(self.norm(torch.tanh(hidden)))


def amp(model, steps=6, half_inputs=False, context=None, lr=1e-2):
    """Train as tutorials have it, and say what the objects were."""
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
    """Make the model FP16 and scale all the same: the unscale error."""
    return amp(Looking().half())


def pure_half_script(_folder):
    """Make all FP16 and use no autocast."""
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
    """Mix what people mix: an FP32 table in the forward, keyword arguments, a dataclass of results, batch norm."""

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
    """Make model, inputs and targets half, and use every loss of two sides; average the weights on the way."""
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
    """Meet one batch whose gradients are not finite."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step_once(step):
        optimizer.zero_grad()
        (loss_of(model, step) * (float("inf") if step == 1 else 1.0)).backward()
        optimizer.step()

    return {"moved": moves(step_once, model)}


def half_by_hand(_folder):
    """Cast to FP16 within the forward, where a mask then overflows: before the first update there is a failure."""

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


def in_pieces(_folder):
    """Use what others build around a model: compiling, recomputing in the backward pass, a cover under a scaler."""
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
    """Train although setting the lr on an optimizer always fails."""
    from rung_inside.zero_edit.knobs import lr_factor

    lr_factor.LrFactor.enter = lambda _: 1 / 0
    return optimized("sgd", 0.05)


def left_alone(folder):
    """Pickle and copy what was trained: nothing of Rung's may be in it."""
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
