"""Trains a multi-modal graph recommender: what will a user like, by what was taken before and how items look and read.

Each modality has a graph convolution of its own over users and items, and their results are added up with an embedding
of each. The loss is BPR: an item that a user took shall score higher than one drawn at random.

    python train.py [--config config.yaml] [--size cpu|gpu] [--seed N] [--fixed]

All settings are in the YAML file. --fixed trains with the loss and the embeddings corrected (see README.md). The
interactions are made up, from the seed; a part of each user's is held out, and the last line tells how well they are
ranked: val_auc, the share of items not taken that score below one that was.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from torch import nn


class Size(NamedTuple):
    users: int
    items: int
    batch: int
    steps: int


SIZES = {"cpu": Size(300, 200, 1024, 900), "gpu": Size(24_000, 16_000, 65_536, 2500)}
MODALITIES = {"visual": 24, "textual": 16}
TASTES = 4
TAKEN, HELD_OUT = 40, 10
LAYERS = 2
LOG_EVERY = 20

Graph = tuple[torch.Tensor, torch.Tensor]


class Interactions(NamedTuple):
    """Who took what: `train` and `held_out` list items by user, `features` describe the items in each modality."""

    train: torch.Tensor
    held_out: torch.Tensor
    features: list[torch.Tensor]

    @property
    def users(self) -> int:
        return self.train.shape[0]

    @property
    def items(self) -> int:
        return self.features[0].shape[0]


def make_interactions(size: Size, seed: int, device: torch.device) -> Interactions:
    """Draw users with tastes, items that suit them more or less, and what each user took."""
    random = torch.Generator(device).manual_seed(seed)
    tastes = torch.randn(size.users, TASTES, generator=random, device=device)
    nature = torch.randn(size.items, TASTES, generator=random, device=device)
    appeal = 1.5 * tastes @ nature.T
    # The largest of scores with Gumbel noise are draws without replacement, the likelier the higher the score.
    noise = -torch.log(-torch.log(torch.rand(appeal.shape, generator=random, device=device)))
    taken = (appeal + noise).topk(TAKEN + HELD_OUT, dim=1).indices
    taken = taken[:, torch.randperm(TAKEN + HELD_OUT, generator=random, device=device)]
    features = []
    for width in MODALITIES.values():
        shown = nature @ torch.randn(TASTES, width, generator=random, device=device)
        shown += torch.randn(shown.shape, generator=random, device=device)
        features.append(0.5 * shown / shown.std())
    return Interactions(taken[:, :TAKEN], taken[:, TAKEN:], features)


def make_graph(data: Interactions) -> Graph:
    """Return two matrices: the mean over the items of each user, and over the users of each item."""
    took = torch.zeros(data.users, data.items, device=data.train.device).scatter_(1, data.train, 1.0)
    to_users = took / took.sum(dim=1, keepdim=True)
    to_items = (took / took.sum(dim=0).clamp(min=1)).T.contiguous()
    return to_users, to_items


def new_table(rows: int, width: int, device: torch.device, fixed: bool) -> torch.Tensor:
    """Return a table of embeddings to be trained."""
    if fixed:
        return nn.Parameter(nn.init.xavier_normal_(torch.empty(rows, width, device=device)))
    return torch.rand((rows, width), device=device, requires_grad=True)


class ModalityGraph(nn.Module):
    """The graph convolution of one modality, for all users and items at once."""

    def __init__(self, features: torch.Tensor, users: int, width: int, fixed: bool) -> None:
        super().__init__()
        self.features = features
        self.preference = new_table(users, width, features.device, fixed)
        self.project = nn.Linear(features.shape[1], width)
        self.gather = nn.ModuleList(nn.Linear(width, width) for _ in range(LAYERS))
        self.keep = nn.ModuleList(nn.Linear(width, width) for _ in range(LAYERS))

    def forward(self, graph: Graph) -> torch.Tensor:
        to_users, to_items = graph
        users = self.preference.shape[0]
        found = x = torch.cat([self.preference, self.project(self.features)])
        for gather, keep in zip(self.gather, self.keep, strict=True):
            sent = gather(x)
            heard = torch.cat([to_users @ sent[users:], to_items @ sent[:users]])
            x = nn.functional.leaky_relu(heard + keep(x))
            found = found + x
        return found


class MMGCN(nn.Module):
    def __init__(self, data: Interactions, width: int, fixed: bool) -> None:
        super().__init__()
        device = data.train.device
        self.fixed = fixed
        self.graph = make_graph(data)
        self.id_embedding = new_table(data.users + data.items, width, device, fixed)
        branches = [ModalityGraph(features, data.users, width, fixed) for features in data.features]
        self.modalities = nn.ModuleList(branches)
        self.tables = [self.id_embedding, *(branch.preference for branch in branches)]
        # The score of the item taken less that of the item drawn.
        self.difference = torch.tensor([[1.0], [-1.0]], device=device)
        self.to(device)

    def forward(self) -> torch.Tensor:
        """Return the representations of all users, then of all items."""
        found = self.id_embedding
        for modality in self.modalities:
            found = found + modality(self.graph)
        return found

    def loss(self, batch: torch.Tensor, reg_weight: float) -> torch.Tensor:
        """Return the BPR loss of rows of user, item taken, item drawn."""
        found = self()
        scores = (found[batch[:, :1]] * found[batch[:, 1:]]).sum(dim=2)
        score = torch.matmul(scores, self.difference)
        loss = self._fixed_bpr(score) if self.fixed else self._bpr(score)
        for table in self.tables:
            loss = loss + reg_weight * (table**2).sum(dim=1).mean()
        return loss

    def _bpr(self, score: torch.Tensor) -> torch.Tensor:
        return -torch.mean(torch.log(torch.sigmoid(score)))

    def _fixed_bpr(self, score: torch.Tensor) -> torch.Tensor:
        # In FP32, and in one piece: it is never the log of a sigmoid that was rounded to 0.
        return -torch.mean(nn.functional.logsigmoid(score.float()))


class Trainer:
    def __init__(self, model: MMGCN, data: Interactions, size: Size, seed: int, config: dict[str, Any]) -> None:
        self.model, self.data, self.size, self.seed, self.config = model, data, size, seed, config
        self.device = data.train.device
        self.folder = Path(config["checkpoint_dir"])
        self.step = 0
        self.optimizer = torch.optim.Adam(model.parameters(), weight_decay=config["weight_decay"])
        self.optimizers = [self.optimizer]
        if not model.fixed:
            # The embeddings are plain tensors and so not among parameters(): they have an optimizer of their own.
            self.optimizers.append(torch.optim.Adam(model.tables))
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=config["use_amp"])
        self.scaler.set_growth_interval(config["growth_interval"])

    def fit(self) -> None:
        while self.step < self.size.steps:
            loss = self.train_step()
            self.step += 1
            if self.step % LOG_EVERY == 0:
                print(f"step {self.step}/{self.size.steps} loss {loss:.4f}", flush=True)
            if self.step % self.config["save_every"] == 0:
                self.save()

    def train_step(self) -> float:
        for optimizer in self.optimizers:
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = self.lr()
        with self.autocast():
            loss = self.model.loss(self.draw(), self.config["reg_weight"])
        self._check_nan(loss)
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), **self.config["clip_grad_norm"])
        self.scaler.step(self.optimizer)
        for optimizer in self.optimizers[1:]:
            # No scaler here: Adam does not mind if all gradients are a constant times too large.
            optimizer.step()
        self.scaler.update()
        return loss.item()

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.float16, enabled=self.config["use_amp"])

    def lr(self) -> float:
        """Return the learning rate of this step: half a cosine from all of it to nothing."""
        share = 0.5 * (1 + math.cos(math.pi * self.step / self.size.steps))
        return float(self.config["learning_rate"] * share)

    def draw(self) -> torch.Tensor:
        """Return the batch of this step: users, an item that each took, an item drawn from all."""
        random = torch.Generator(self.device).manual_seed(self.seed * 1_000_003 + self.step)

        def numbers(below: int) -> torch.Tensor:
            return torch.randint(below, (self.size.batch,), generator=random, device=self.device)

        users = numbers(self.data.users)
        taken = self.data.train[users, numbers(TAKEN)]
        drawn = numbers(self.data.items)
        return torch.stack([users, self.data.users + taken, self.data.users + drawn], dim=1)

    def _check_nan(self, loss: torch.Tensor) -> None:
        if torch.isnan(loss):
            print(f"step {self.step + 1}/{self.size.steps}: stopping", flush=True)
            raise ValueError("Training loss is nan")

    def held_out_auc(self) -> float:
        """Return how often an item that a user took, and was not trained on, scores higher than one not taken."""
        with torch.no_grad(), self.autocast():
            found = self.model().float()
        users, items = found[: self.data.users], found[self.data.users :]
        won, played = 0.0, 0.0
        for first in range(0, self.data.users, 256):
            rows = slice(first, first + 256)
            scores, wanted = users[rows] @ items.T, self.data.held_out[rows]
            rivals = torch.ones_like(scores, dtype=torch.bool)
            rivals.scatter_(1, self.data.train[rows], False).scatter_(1, wanted, False)
            higher = scores.gather(1, wanted)[:, :, None] > scores[:, None, :]
            won += (higher & rivals[:, None, :]).sum().item()
            played += rivals.sum().item() * HELD_OUT
        return won / played

    def save(self) -> None:
        """Write a checkpoint: whole under its name, or not at all."""
        state = {
            "step": self.step,
            "model": self.model.state_dict(),
            "tables": [table.detach() for table in self.model.tables],
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "scaler": self.scaler.state_dict(),
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"step_{self.step}.pt"
        draft = path.with_suffix(".writing")
        with draft.open("wb") as file:
            torch.save(state, file)
            os.fsync(file.fileno())
        draft.replace(path)

    def resume(self) -> None:
        """Go on from the checkpoint that the config names, or from the newest; the config's settings hold."""
        path = self.config["resume"] or max(self.folder.glob("step_*.pt"), key=step_of, default=None)
        if path is None:
            return
        state = torch.load(path, map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        with torch.no_grad():
            for table, saved in zip(self.model.tables, state["tables"], strict=True):
                table.copy_(saved)
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        if self.config["use_amp"] and state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
            self.scaler.set_growth_interval(self.config["growth_interval"])
        self.step = state["step"]
        print(f"resumed at step {self.step} from {path}", flush=True)


def step_of(path: Path) -> int:
    return int(path.stem.partition("_")[2])


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a multi-modal graph recommender.")
    parser.add_argument("--config", type=Path, default=Path("config.yaml"))
    parser.add_argument("--size", choices=SIZES, default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true", help="with the loss and the embeddings corrected")
    options = parser.parse_args()
    if options.size == "gpu" and not torch.cuda.is_available():
        print("train.py: --size gpu wants a CUDA GPU, and there is none; use --size cpu", file=sys.stderr)
        sys.exit(2)
    if platform.machine() == "aarch64":
        # torch gives FP16 products to oneDNN there, which has no fast code for them; its own is 20 times as fast.
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    device = torch.device("cuda" if options.size == "gpu" else "cpu")
    config = yaml.safe_load(options.config.read_text())
    torch.manual_seed(options.seed)
    size = SIZES[options.size]
    data = make_interactions(size, options.seed, device)
    model = MMGCN(data, config["embedding_size"], options.fixed)
    trainer = Trainer(model, data, size, options.seed, config)
    trainer.resume()
    trainer.fit()
    print(f"val_auc: {trainer.held_out_auc():.4f}", flush=True)


if __name__ == "__main__":
    main()
