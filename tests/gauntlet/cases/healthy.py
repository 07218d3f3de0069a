"""Trainings that are healthy and look as if they were not; nothing may change them.

A training has one stage or more of equal length. A kind begins a stage: it returns its model and the loss of a step.
"""

import argparse
import copy
import os

import torch
from options import SAVE, Log
from tasks import Clicks, Gpt, Images, Recommender, Recurrent, Sums, Text, cnn
from torch import nn
from torch.nn import functional as F

SEEN, ACTIONS = 4, 4


def plain(data, model):
    return model, lambda step: data.loss(model(data.batch(step)[0]), data.batch(step)[1])


def kfold(number, before):
    """Begin a fold with a new model: its first loss is that of an untrained one."""
    return plain(Images(), cnn())


def finetune(number, before):
    """Begin another language with the model of the first one, a new head and a new optimizer."""
    if number == 0:
        return plain(Text(), Gpt())
    model = copy.deepcopy(before)
    model.head = nn.Linear(model.head.in_features, model.head.out_features)
    return plain(Text(seed=7), model)


def reinforce(number, before):
    """Learn by policy gradient without a baseline: the loss has no level of its own."""
    model = nn.Sequential(nn.Linear(SEEN, 32), nn.Tanh(), nn.Linear(32, ACTIONS))
    worth = torch.randn(SEEN, ACTIONS, generator=torch.Generator().manual_seed(1))

    def loss(step):
        generator = torch.Generator().manual_seed(1000 + step)
        seen = torch.randn(2000 if step < 0 else 32, SEEN, generator=generator)
        chances = F.log_softmax(model(seen), 1)
        action = torch.multinomial(chances.exp(), 1, generator=generator)
        reward = (seen @ worth).gather(1, action)
        # A loss that is at least zero, so that the held-out one can be compared by shares.
        regret = (seen @ worth).max(1).values.mean() - reward.mean()
        return regret if step < 0 else -(chances.gather(1, action) * reward).mean()

    return model, loss


def curriculum(number, before):
    """Go on with the same model and sums five times as large: the loss jumps, and falls again."""
    data, model, times = Sums(), before or Recurrent(), 5.0 if number else 1.0

    def loss(step):
        x, y = data.batch(step)
        return data.loss(model(x * torch.tensor([times, 1.0])), y * times)

    return model, loss


def clicks(number, before):
    return plain(Clicks(), Recommender())


# `backoff`: in FP16 and clipped; its scaler grows until it must back off.
# `words`: the log tells of a NaN that never was.
KINDS = {"kfold": kfold, "finetune": finetune, "reinforce": reinforce, "curriculum": curriculum}
KINDS |= {"backoff": clicks, "words": clicks}
STAGES = {"kfold": 5, "finetune": 2, "curriculum": 2}


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--lr", type=float, default=0.005)
    parser.add_argument("--clip", type=float)
    parser.add_argument("--log", choices=("every1", "every10", "epoch", "silent"), default="every10")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--out", default="checkpoints")
    parser.add_argument("--resume")
    args = parser.parse_args()
    args.clip = args.clip or (1.0 if args.kind == "backoff" else None)
    torch.set_num_threads(1)
    os.makedirs(args.out, exist_ok=True)
    return args


class Training:
    """The model, the loss and the optimizer of the present stage, and a scaler for all."""

    def __init__(self, args):
        self.args, self.model, self.half = args, None, args.kind == "backoff"
        self.length = args.steps // STAGES.get(args.kind, 1)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**22, growth_interval=60, enabled=self.half)
        self.begin(0)

    def begin(self, number):
        torch.manual_seed(number)
        self.model, self.loss = KINDS[self.args.kind](number, self.model)
        if number == 0 or self.args.kind != "curriculum":
            self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.args.lr)

    def parts(self):
        return {"model": self.model, "optimizer": self.optimizer, "scaler": self.scaler}

    def save(self, step):
        state = {name: part.state_dict() for name, part in self.parts().items()}
        torch.save({**state, "step": step}, f"{self.args.out}/step_{step}.pt")

    def resume(self):
        state = torch.load(self.args.resume)
        for number in range(1, (state["step"] - 1) // self.length + 1):
            self.begin(number)
        for name, part in self.parts().items():
            part.load_state_dict(state[name])
        for group in self.optimizer.param_groups:
            group["lr"] = self.args.lr
        return state["step"]

    def step(self, step):
        self.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=self.half):
            loss = self.loss(step)
        self.scaler.scale(loss).backward()
        if self.args.clip:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.args.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss


class Words(Log):
    def __call__(self, step, loss, lr):
        if step % {"every1": 1, "every10": 10}.get(self.style, 100) == 0:
            print(f"step {step} loss {loss.item():.4f} nan loss skipped=0 inf grad skipped=0", flush=True)


args = arguments()
training = Training(args)
log = Words(args) if args.kind == "words" else Log(args)
for step in range(training.resume() if args.resume else 0, args.steps):
    if step and step % training.length == 0:
        training.begin(step // training.length)
    loss = training.step(step)
    log(step + 1, loss, args.lr)
    if (step + 1) % SAVE == 0:
        training.save(step + 1)
with torch.no_grad():
    held_out = sum(training.loss(-1 - number).item() for number in range(50)) / 50
print(f"val_loss {held_out:.5f}")
