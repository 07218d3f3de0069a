"""Trains a small GPT in FP16, letter by letter, on a story that it makes up itself.

    python train.py [--size cpu|gpu] [--lr LR] [--seed N] [--out FOLDER] [--resume FILE] [--fixed]

It is an ordinary script: AdamW and a cosine, autocast and a loss scaler. One thing is wrong with it: its learning rate
is a hundred times too high. --fixed trains with the right one. The last lines are a passage that the model writes, and
val_loss, the loss on a story that it has not read.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

WHO = {
    "fox": ("hunts", "runs", "hides", "waits"),
    "owl": ("hoots", "glides", "sleeps", "waits"),
    "miller": ("sings", "walks", "works", "sleeps"),
    "child": ("plays", "runs", "hides", "sings"),
    "horse": ("grazes", "trots", "sleeps", "runs"),
    "sailor": ("sings", "rows", "waits", "walks"),
}
HOW = ("old", "grey", "quiet", "small", "hungry", "happy")
WHERE = {
    "river": ("by", "across", "along"),
    "forest": ("in", "through", "behind"),
    "mill": ("in", "behind", "near"),
    "harbour": ("by", "near", "along"),
    "bridge": ("on", "under", "across"),
}
WHEN = ("at night", "at noon", "in spring", "in the rain", "all day")
LETTERS = "\n .,abcdefghijklmnopqrstuvwxyz"

BETAS, WEIGHT_DECAY = (0.9, 0.95), 0.1
LOG_EVERY = 10
# The lr in SIZES is this many times too high; --fixed divides by it.
TOO_HIGH = 100
HELD_OUT_SEED = 1_000_000
PASSAGE = 120


@dataclass(frozen=True)
class Size:
    width: int
    layers: int
    heads: int
    length: int
    batch: int
    steps: int
    lr: float
    save_every: int
    story: int


SIZES = {
    "cpu": Size(width=32, layers=1, heads=2, length=16, batch=8, steps=1000, lr=1.0, save_every=25, story=100_000),
    "gpu": Size(width=256, layers=2, heads=4, length=128, batch=64, steps=2000, lr=0.3, save_every=50, story=1_000_000),
}


def write_story(length: int, seed: int) -> torch.Tensor:
    """Return a story as numbers of its letters: the same one for the same seed."""
    dice = random.Random(seed)
    written: list[str] = []
    letters = 0
    while letters < length:
        who, where = dice.choice(list(WHO)), dice.choice(list(WHERE))
        does, at = dice.choice(WHO[who]), dice.choice(WHERE[where])
        sentence = f"the {dice.choice(HOW)} {who} {does} {at} the {where}"
        if dice.random() < 0.4:
            sentence += f" {dice.choice(WHEN)}"
        sentence += dice.choice((".\n", ", and "))
        written.append(sentence)
        letters += len(sentence)
    return torch.tensor([LETTERS.index(letter) for letter in "".join(written)[:length]])


class Block(nn.Module):
    """Causal attention and a feed-forward net, each behind a norm and beside a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_feed = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.attended = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        parts = self.query_key_value(self.before_attention(hidden)).unflatten(-1, (3, self.heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.attended(seen.transpose(1, 2).flatten(2))
        after: torch.Tensor = hidden + self.feed(self.before_feed(hidden))
        return after


class SmallGpt(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.letter, self.place = nn.Embedding(len(LETTERS), size.width), nn.Embedding(size.length, size.width)
        self.blocks = nn.Sequential(*(Block(size.width, size.heads) for _ in range(size.layers)))
        self.norm, self.head = nn.LayerNorm(size.width), nn.Linear(size.width, len(LETTERS))
        self.apply(small_weights)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        hidden = self.letter(text) + self.place.weight[: text.shape[1]]
        logits: torch.Tensor = self.head(self.norm(self.blocks(hidden)))
        return logits


def small_weights(module: nn.Module) -> None:
    """Start as GPT-2 does: small normal weights, so that the first guess is nearly even."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


class Training:
    def __init__(self, options: argparse.Namespace, device: torch.device) -> None:
        self.size, self.seed, self.out, self.device = SIZES[options.size], options.seed, options.out, device
        torch.manual_seed(self.seed)
        self.story = write_story(self.size.story, self.seed).to(device)
        self.unread = write_story(self.size.story // 10, HELD_OUT_SEED + self.seed).to(device)
        self.model = SmallGpt(self.size).to(device)
        lr = options.lr if options.lr is not None else self.size.lr / (TOO_HIGH if options.fixed else 1)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr, betas=BETAS, weight_decay=WEIGHT_DECAY)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.share_of_lr)
        self.scaler = torch.amp.GradScaler(device.type)
        self.step = 0

    def share_of_lr(self, step: int) -> float:
        """Return the share of the learning rate at a step: a cosine down to a tenth."""
        along = min(1.0, step / self.size.steps)
        return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * along))

    def batch(self, story: torch.Tensor, number: int) -> torch.Tensor:
        """Return the batch of that number: the same one whenever it is asked for."""
        dice = torch.Generator().manual_seed(1_000_003 * self.seed + number)
        starts = torch.randint(len(story) - self.size.length, (self.size.batch, 1), generator=dice)
        return story[(starts + torch.arange(self.size.length + 1)).to(self.device)]

    def loss(self, rows: torch.Tensor) -> torch.Tensor:
        with torch.autocast(self.device.type, dtype=torch.float16):
            logits = self.model(rows[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())

    def train(self) -> None:
        while self.step < self.size.steps:
            loss = self.update()
            self.step += 1
            if self.step % LOG_EVERY == 0:
                print(f"step {self.step}/{self.size.steps} loss {loss.item():.4f}", flush=True)
            if self.step % self.size.save_every == 0:
                self.save()

    def update(self) -> torch.Tensor:
        loss = self.loss(self.batch(self.story, self.step))
        self.optimizer.zero_grad()
        scaled: Any = self.scaler.scale(loss)
        scaled.backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()
        return loss.detach()

    @torch.no_grad()
    def held_out_loss(self, batches: int = 64) -> float:
        return sum(self.loss(self.batch(self.unread, number)).item() for number in range(batches)) / batches

    @torch.no_grad()
    def passage(self) -> str:
        """Return what the model writes, letter by letter, after `the`."""
        dice = torch.Generator().manual_seed(self.seed)
        text = [LETTERS.index(letter) for letter in "the "]
        for _ in range(PASSAGE):
            last = torch.tensor([text[-self.size.length :]], device=self.device)
            chances = self.model(last)[0, -1].float().softmax(dim=-1).nan_to_num().cpu() + 1e-9
            text.append(int(torch.multinomial(chances, 1, generator=dice)))
        return "".join(LETTERS[number] for number in text)

    def save(self) -> None:
        """Write a checkpoint: whole under its name, or not at all."""
        state = {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "scaler": self.scaler.state_dict(),
        }
        self.out.mkdir(parents=True, exist_ok=True)
        path = self.out / f"step_{self.step}.pt"
        draft = path.with_suffix(".writing")
        with draft.open("wb") as file:
            torch.save(state, file)
            os.fsync(file.fileno())
        draft.replace(path)

    def resume(self, path: Path) -> None:
        state = torch.load(path, map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.scaler.load_state_dict(state["scaler"])
        self.step = state["step"]
        print(f"resumed at step {self.step} from {path}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small GPT on a story, letter by letter.")
    parser.add_argument("--size", choices=SIZES, default="cpu")
    parser.add_argument("--lr", type=float, help="the learning rate; that of the size by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("checkpoints"))
    parser.add_argument("--resume", type=Path, help="the checkpoint to go on from")
    parser.add_argument("--fixed", action="store_true", help="with the right learning rate")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    device = torch.device("cuda" if options.size == "gpu" else "cpu")
    if device.type == "cuda" and not torch.cuda.is_available():
        print("train.py: --size gpu needs a CUDA device, and torch sees none here; use --size cpu", file=sys.stderr)
        sys.exit(2)
    # The tensors of the small size are small: a second thread brings nothing.
    torch.set_num_threads(1)
    if platform.machine() == "aarch64":
        # torch gives FP16 products to oneDNN there, which has no fast code for them; its own is 20 times as fast.
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    run = Training(options, device)
    if options.resume:
        run.resume(options.resume)
    run.train()
    print(run.passage(), flush=True)
    print(f"val_loss: {run.held_out_loss():.4f}", flush=True)


if __name__ == "__main__":
    main()
