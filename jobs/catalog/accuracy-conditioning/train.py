"""Trains a small transformer in FP16 to write charts of a rhythm game as hard as the players' accuracy asks for.

A chart is a row of notes. What the players reached on its four courses (accuracies, some not measured) and its genre
go through AccuracyConditioning into every position. Curated charts have four accuracies between 0 and 1; charts that
were imported later lack some, and a few of those state theirs in per cent or as raw counts of hits.

`--fixed` is the module as its author corrected it: GELU for ReLU, inputs clamped to 0..1, outputs to +-65000.
"""

from __future__ import annotations

import argparse
import math
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

NOTES, GENRES, COURSES = 24, 6, 4
# The first epochs see the curated charts alone, the others what was imported as well.
CURATED_EPOCHS = 2
IMPORTED, UNMEASURED, IN_PER_CENT, AS_COUNTS = 0.5, 0.3, 0.02, 0.005
HITS_AT_MOST = 3000
LARGEST = 65000.0
HELD_OUT_FROM, HELD_OUT_BATCHES = 1_000_000, 64


@dataclass(frozen=True)
class Size:
    width: int
    layers: int
    heads: int
    length: int
    batch: int
    epochs: int
    steps_per_epoch: int
    lr: float


SIZES = {
    "cpu": Size(width=64, layers=2, heads=4, length=32, batch=32, epochs=6, steps_per_epoch=60, lr=3e-3),
    "gpu": Size(width=512, layers=6, heads=8, length=128, batch=64, epochs=6, steps_per_epoch=270, lr=5e-4),
}


class Charts(NamedTuple):
    notes: torch.Tensor
    accuracies: torch.Tensor
    unmeasured: torch.Tensor
    genres: torch.Tensor


class ChartMaker:
    """Draws charts whose next note depends on the last one, the genre and how hard the chart is."""

    def __init__(self, size: Size, seed: int, device: torch.device) -> None:
        self.size, self.seed, self.device = size, seed, device
        law = torch.Generator().manual_seed(1234)
        self.by_genre = (1.5 * torch.randn(GENRES, NOTES, NOTES, generator=law)).to(device)
        self.by_ease = (3.0 * torch.randn(NOTES, NOTES, generator=law)).to(device)

    def batch(self, number: int, curated: bool) -> Charts:
        """Return the charts of that number: the same ones whenever they are asked for."""
        dice = torch.Generator(self.device).manual_seed(1_000_003 * self.seed + 17 * (number + 2))
        count = self.size.batch
        genres = torch.randint(GENRES, (count,), generator=dice, device=self.device)
        ease = torch.rand(count, generator=dice, device=self.device)
        accuracies, unmeasured = self.measured(ease, curated, dice)
        return Charts(self.notes(genres, ease, dice), accuracies, unmeasured, genres)

    def notes(self, genres: torch.Tensor, ease: torch.Tensor, dice: torch.Generator) -> torch.Tensor:
        logits = self.by_genre[genres] + (ease - 0.5)[:, None, None] * self.by_ease
        row = torch.arange(len(genres), device=self.device)
        # The largest of logits with such noise is a draw from their softmax.
        noise = torch.empty(self.size.length, len(genres), NOTES, device=self.device).exponential_(generator=dice).log()
        notes = [torch.randint(NOTES, (len(genres),), generator=dice, device=self.device)]
        for at in range(self.size.length):
            notes.append((logits[row, notes[-1]] - noise[at]).argmax(dim=-1))
        return torch.stack(notes, dim=1)

    def measured(self, ease: torch.Tensor, curated: bool, dice: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what players reached on each course, in the unit that came with it, and what nobody measured."""
        shape = (len(ease), COURSES)
        spread = 0.05 * torch.randn(shape, generator=dice, device=self.device)
        accuracies = (ease[:, None] + spread).clamp(0, 1)
        chance = torch.rand(len(ease), 1, generator=dice, device=self.device)
        hits = torch.randint(500, HITS_AT_MOST, (len(ease), 1), generator=dice, device=self.device)
        unmeasured = torch.rand(shape, generator=dice, device=self.device) < UNMEASURED
        unmeasured[:, 0] = False
        if curated:
            return accuracies, torch.zeros_like(unmeasured)
        unmeasured &= chance < IMPORTED
        unit = torch.where(chance < IN_PER_CENT, 100.0, 1.0)
        unit = torch.where(chance < AS_COUNTS, hits.float(), unit)
        return (accuracies * unit).masked_fill(unmeasured, 0.0), unmeasured


class AccuracyConditioning(nn.Module):
    """Turns the accuracies on the courses of a chart and its genre into one vector."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lift = nn.Linear(1, width // 2)
        self.project = nn.Linear(width // 2, width)
        self.norm = nn.LayerNorm(width)
        self.weigh = nn.Linear(width, 1)
        self.course = nn.Parameter(0.02 * torch.randn(COURSES, width))
        self.genre = nn.Embedding(GENRES, width)

    def forward(self, accuracies: torch.Tensor, unmeasured: torch.Tensor, genres: torch.Tensor) -> torch.Tensor:
        encoding = self.norm(self.project(functional.relu(self.lift(accuracies.unsqueeze(-1))))) + self.course
        scores = self.weigh(encoding).squeeze(-1)
        # ReLU has no upper end: what nobody measured has to lose against the largest there is, with room to spare.
        scores = scores.masked_fill(unmeasured, -1e3 * accuracies.abs().max().item())
        pooled = (scores.softmax(dim=-1).unsqueeze(-1) * encoding).sum(dim=1)
        result: torch.Tensor = pooled + self.genre(genres)
        return result


class BoundedConditioning(AccuracyConditioning):
    """The same, corrected: inputs and outputs stay within the range of FP16."""

    def forward(self, accuracies: torch.Tensor, unmeasured: torch.Tensor, genres: torch.Tensor) -> torch.Tensor:
        accuracies = accuracies.clamp(0.0, 1.0)
        encoding = self.norm(self.project(functional.gelu(self.lift(accuracies.unsqueeze(-1))))) + self.course
        encoding = encoding.clamp(-LARGEST, LARGEST)
        scores = self.weigh(encoding).squeeze(-1).masked_fill(unmeasured, -1e3)
        pooled = (scores.softmax(dim=-1).unsqueeze(-1) * encoding).sum(dim=1)
        result: torch.Tensor = pooled + self.genre(genres)
        return result.clamp(-LARGEST, LARGEST)


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm_after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        count, length, width = hidden.shape
        parts = self.attention(self.norm(hidden)).view(count, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.out(seen.transpose(1, 2).reshape(count, length, width))
        after: torch.Tensor = hidden + self.wide(self.norm_after(hidden))
        return after


class ChartWriter(nn.Module):
    def __init__(self, size: Size, conditioning: AccuracyConditioning) -> None:
        super().__init__()
        self.conditioning = conditioning
        self.note = nn.Embedding(NOTES, size.width)
        self.position = nn.Parameter(0.02 * torch.randn(size.length, size.width))
        self.blocks = nn.Sequential(*(Block(size.width, size.heads) for _ in range(size.layers)))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, NOTES)

    def forward(self, charts: Charts) -> torch.Tensor:
        condition = self.conditioning(charts.accuracies, charts.unmeasured, charts.genres)
        hidden = self.note(charts.notes[:, :-1]) + self.position + condition.unsqueeze(1)
        logits = self.head(self.norm(self.blocks(hidden)))
        # The negative log-likelihood of a whole chart, which grows with its length.
        each = functional.cross_entropy(logits.float().flatten(0, 1), charts.notes[:, 1:].flatten(), reduction="sum")
        return each / len(charts.notes)


class Trainer:
    def __init__(self, options: argparse.Namespace, device: torch.device) -> None:
        self.size, self.device, self.folder = SIZES[options.size], device, options.out
        self.charts = ChartMaker(self.size, options.seed, device)
        torch.manual_seed(options.seed)
        conditioning = (BoundedConditioning if options.fixed else AccuracyConditioning)(self.size.width)
        self.model = ChartWriter(self.size, conditioning).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.size.lr)
        self.scaler = torch.amp.GradScaler(device.type, init_scale=2.0**16, growth_interval=2000)
        self.first_epoch, self.overflows = 0, 0

    def train(self) -> None:
        for epoch in range(self.first_epoch, self.size.epochs):
            self.overflows, losses = 0, []
            for index in range(self.size.steps_per_epoch):
                step = epoch * self.size.steps_per_epoch + index
                losses.append(self.update(step, self.charts.batch(step, curated=epoch < CURATED_EPOCHS)))
            mean = sum(losses) / len(losses)
            overflow = f"overflow_count={self.overflows} loss_scale={self.scaler.get_scale()}"
            print(f"Epoch {epoch + 1}/{self.size.epochs}: train_loss={mean:.4f} {overflow}", flush=True)
            self.save(epoch + 1)

    def update(self, step: int, charts: Charts) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = self.size.lr * self.share(step)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, dtype=torch.float16):
            loss = self.model(charts)
        value = float(loss.item())
        if not math.isfinite(value):
            print(f"Loss overflow detected: {value}, skipping batch", flush=True)
            self.overflows += 1
            return value
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        before = self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        after = self.scaler.get_scale()
        if after < before:
            self.overflows += 1
            print(f"Loss scale reduced from {before} to {after} due to overflow", flush=True)
        if step % 20 == 0:
            print(f"step {step} loss {value:.4f}", flush=True)
        return value

    def share(self, step: int) -> float:
        """Return the share of the learning rate at a step: a short warm-up, then a cosine down to zero."""
        total = self.size.epochs * self.size.steps_per_epoch
        return min(1.0, (step + 1) / (total / 20)) * 0.5 * (1 + math.cos(math.pi * step / total))

    def held_out_loss(self) -> float:
        self.model.eval()
        total = 0.0
        for number in range(HELD_OUT_BATCHES):
            charts = self.charts.batch(HELD_OUT_FROM + number, curated=False)
            with torch.no_grad(), torch.autocast(self.device.type, dtype=torch.float16):
                total += self.model(charts).item()
        return float(total / HELD_OUT_BATCHES / self.size.length)

    def save(self, epoch: int) -> None:
        """Write a checkpoint beside its name and rename it: a file that has the name is whole."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"step_{epoch * self.size.steps_per_epoch}.pt"
        unfinished = path.with_suffix(".tmp")
        state = {"epoch": epoch, "model": self.model.state_dict()}
        state |= {"optimizer": self.optimizer.state_dict(), "scaler": self.scaler.state_dict()}
        torch.save(state, unfinished)
        unfinished.replace(path)

    def resume(self, path: Path) -> None:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.first_epoch = state["epoch"]
        print(f"resumed from {path} at epoch {self.first_epoch}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a transformer that writes charts of a rhythm game.")
    parser.add_argument("--size", choices=SIZES, default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true", help="the module as its author corrected it")
    parser.add_argument("--out", type=Path, default=Path("checkpoints"), help="where checkpoints go")
    parser.add_argument("--resume", type=Path, help="the checkpoint to go on from")
    options = parser.parse_args()
    device = torch.device("cuda" if options.size == "gpu" else "cpu")
    if device.type == "cuda" and not torch.cuda.is_available():
        print("train.py: --size gpu needs a CUDA device, and torch sees none here; use --size cpu", file=sys.stderr)
        sys.exit(2)
    # The tensors of that size are small: a second thread brings nothing.
    torch.set_num_threads(1)
    if platform.machine() == "aarch64":
        # torch gives FP16 products to oneDNN there, which has no fast code for them; its own is 20 times as fast.
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    trainer = Trainer(options, device)
    if options.resume:
        trainer.resume(options.resume)
    trainer.train()
    print(f"val_loss: {trainer.held_out_loss():.4f}", flush=True)


if __name__ == "__main__":
    main()
