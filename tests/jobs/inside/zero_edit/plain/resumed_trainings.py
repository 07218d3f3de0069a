"""Trainings that stop and resume, trainings to compare bit for bit, and longer ones to compare by loss."""

from __future__ import annotations

import hashlib
import os

import torch
from small_training import batch
from torch import nn


class Watched(torch.optim.AdamW):
    """Records the lr that each step uses."""

    used = ()

    def step(self, closure=None):
        self.used = [*self.used, [float(group["lr"]) for group in self.param_groups]]
        return super().step(closure)


class Script:
    """A training that does not know Rung: AMP, a schedule, clipping, and a checkpoint of everything."""

    def __init__(self, half=False, amp=True):
        self.model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
        if half:
            self.model.half()
        self.amp = amp
        self.optimizer = Watched(self.model.parameters(), lr=0.05, betas=(0.8, 0.9), eps=1e-8)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1.0, (step + 1) / 8))
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=amp)

    def train(self, first, last):
        for step in range(first, last):
            inputs, targets = batch(step)
            with torch.autocast("cpu", dtype=torch.float16, enabled=self.amp):
                output = self.model(inputs)
            loss = nn.functional.mse_loss(output.float(), targets)
            self.optimizer.zero_grad()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.schedule.step()

    def parts(self):
        return {"model": self.model, "optimizer": self.optimizer, "schedule": self.schedule, "scaler": self.scaler}

    def save(self, path):
        torch.save({"step": 4, **{name: part.state_dict() for name, part in self.parts().items()}}, path)

    def load(self, path):
        state = torch.load(path)
        for name, part in self.parts().items():
            part.load_state_dict(state[name])


def path():
    return os.environ["CHECKPOINTS"] + "/step_4.pt"


def begin(_folder):
    script = Script()
    script.train(0, 4)
    script.save(path())
    state = script.optimizer.state_dict()["state"][0]
    return {"second": state["exp_avg_sq"].abs().sum().item(), "smallest": float(state["exp_avg_sq"].min())}


def go_on(_folder, half=False):
    script = Script(half)
    script.load(path())
    loaded = script.optimizer.state[script.model[0].weight]["exp_avg_sq"]
    seen = {
        "scale": script.scaler.get_scale(),
        "state": str(loaded.dtype),
        "second": loaded.abs().sum().item(),
        "smallest": float(loaded.min()),
    }
    script.train(4, 12)
    group = script.optimizer.param_groups[0]
    return {
        **seen,
        "used": [lrs[0] for lrs in script.optimizer.used],
        "interval": script.scaler.get_growth_interval(),
        "own": [group["lr"], group["initial_lr"], group["eps"], *group["betas"]],
        "base": script.schedule.base_lrs,
        "saved": script.optimizer.state_dict()["param_groups"][0]["lr"],
        "dtype": str(script.model[0].weight.dtype),
        "finite": all(bool(torch.isfinite(each).all()) for each in script.model.parameters()),
    }


def go_on_half(folder):
    return go_on(folder, half=True)


def spoil_scale(_folder):
    """Load the state of a collapsed scaler, and that of a run without a scaler."""
    good = torch.amp.GradScaler("cpu", init_scale=512.0).state_dict()
    scales = []
    for state in ({**good, "scale": 2.0**-40}, {**good, "scale": float("inf")}, {}, good):
        scaler = torch.amp.GradScaler("cpu")
        scaler.load_state_dict(state)
        scales.append(scaler.get_scale())
    return scales


# Bit for bit


def weights(model):
    digest = hashlib.sha256()
    for each in model.parameters():
        digest.update(bytes(each.detach().contiguous().view(torch.uint8).flatten().tolist()))
    return digest.hexdigest()


def convolutions():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(8 * 36, 4)
    )


def all_kinds(_folder):
    """Train in five ways, and return the exact weights of each."""
    done = {}
    for name, make in (
        ("sgd", lambda each: torch.optim.SGD(each, lr=0.05, momentum=0.9, nesterov=True)),
        ("adamw", lambda each: torch.optim.AdamW(each, lr=1e-2)),
        ("foreach", lambda each: torch.optim.Adam(each, lr=1e-2, foreach=True, amsgrad=True)),
    ):
        model = convolutions()
        optimizer = make(model.parameters())
        for step in range(6):
            inputs = torch.randn(8, 1, 8, 8)
            loss = nn.functional.cross_entropy(model(inputs), torch.arange(8) % 4) / 2
            loss.backward()
            if step % 2:
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
        done[name] = weights(model)
    amp = Script()
    amp.train(0, 12)
    done["amp"] = weights(amp.model)
    half = nn.Linear(8, 1).half()
    optimizer = torch.optim.SGD(half.parameters(), lr=0.1)
    for step in range(4):
        half(batch(step)[0].half()).float().pow(2).mean().backward()
        nn.utils.clip_grad_norm_(half.parameters(), 0.1)
        optimizer.step()
    done["half"] = weights(half)
    done["random"] = torch.rand(1).item()
    return done


# Loss after training


def learn(model, draw, loss_of, steps, lr):
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(steps):
        inputs, targets = draw(step + 1, 64)
        with torch.autocast("cpu", dtype=torch.float16):
            output = model(inputs)
        loss = loss_of(output.float(), targets)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
    model.eval()
    inputs, targets = draw(0, 2000)
    with torch.no_grad():
        return float(loss_of(model(inputs).float(), targets))


def regression(_folder):
    model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    return learn(model, batch, nn.functional.mse_loss, 400, 3e-3)


def pictures(_folder):
    def draw(seed, count):
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(0, 4, (count,), generator=generator)
        images = torch.randn(count, 1, 8, 8, generator=generator) * 0.7
        for index, label in enumerate(labels.tolist()):
            images[index, 0, (label // 2) * 4 : (label // 2) * 4 + 4, (label % 2) * 4 : (label % 2) * 4 + 4] += 0.4
        return images, labels

    return learn(convolutions(), draw, nn.functional.cross_entropy, 500, 2e-3)


def letters(_folder):
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.place = nn.Embedding(16, 32), nn.Parameter(torch.zeros(12, 32))
            self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
            self.out = nn.Linear(32, 16)

        def forward(self, tokens):
            mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
            return self.out(self.layer(self.embed(tokens) + self.place, src_mask=mask))

    def draw(seed, count):
        generator = torch.Generator().manual_seed(seed)
        start = torch.randint(0, 16, (count, 1), generator=generator)
        pace = torch.randint(1, 4, (count, 1), generator=generator)
        text = (start + pace * torch.arange(13)) % 16
        noise = torch.rand(text.shape, generator=generator) < 0.1
        text = torch.where(noise, torch.randint(0, 16, text.shape, generator=generator), text)
        return text[:, :-1], text[:, 1:]

    def loss_of(output, targets):
        return nn.functional.cross_entropy(output.flatten(0, 1), targets.flatten())

    return learn(Reader(), draw, loss_of, 600, 2e-3)
