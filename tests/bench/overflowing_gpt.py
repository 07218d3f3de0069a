"""Trains a GPT in FP16 with AMP in which one thing leaves FP16's range. It knows nothing of Rung.

    python overflowing_gpt.py mask|softmax|output|loss [--size cpu|gpu] [--fixed] [--out FOLDER]

The mask of the attention holds -1e9; the softmax is written by hand, without taking off the largest score; the output
layer's own values are too large; or a term of the loss is. --fixed does it the way a careful person would in FP16.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

FAULTS = ("mask", "softmax", "output", "loss")


@dataclass(frozen=True)
class Size:
    width: int
    layers: int
    heads: int
    length: int
    batch: int
    words: int
    steps: int
    # Multiplies the scores of the softmax by hand, so that they pass 11 from the first step on, and never 88.
    sharp: float


SIZES = {
    "cpu": Size(width=64, layers=2, heads=2, length=32, batch=4, words=64, steps=30, sharp=4.0),
    "gpu": Size(width=1024, layers=12, heads=16, length=512, batch=16, words=8192, steps=200, sharp=1.0),
}
# So large that the largest of the output layer's values passes 65504; the loss divides by it again.
LOUD = 600.0 * 32


class Attention(nn.Module):
    def __init__(self, size: Size, fault: str) -> None:
        super().__init__()
        self.heads, self.sharp, self.fault = size.heads, size.sharp, fault
        self.query_key_value, self.out = nn.Linear(size.width, 3 * size.width), nn.Linear(size.width, size.width)
        later = torch.ones(size.length, size.length).triu(1).bool()
        self.later: Tensor
        self.register_buffer("later", later, persistent=False)

    def forward(self, hidden: Tensor) -> Tensor:
        parts = self.query_key_value(hidden).unflatten(-1, (3, self.heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = query @ key.transpose(-1, -2)
        shares = self.by_hand(scores) if self.fault.startswith("softmax") else self.masked(scores).softmax(-1)
        seen = shares.to(value.dtype) @ value
        out: Tensor = self.out(seen.transpose(1, 2).flatten(2))
        return out

    def masked(self, scores: Tensor) -> Tensor:
        lowest = -1e9 if self.fault == "mask" else torch.finfo(scores.dtype).min
        masked: Tensor = (scores * self.heads**-0.5).masked_fill(self.later, lowest)
        return masked

    def by_hand(self, scores: Tensor) -> Tensor:
        """Divide the exponentials by their sum. FP16 holds them up to a score of 11."""
        scores = scores * self.sharp
        if self.fault == "softmax-fixed":
            scores = scores - scores.masked_fill(self.later, torch.finfo(scores.dtype).min).amax(-1, keepdim=True)
            scores = scores.clamp(max=0)
        powers = scores.exp_().masked_fill(self.later, 0.0)
        shares: Tensor = powers / powers.sum(-1, keepdim=True)
        return shares


class Block(nn.Module):
    def __init__(self, size: Size, fault: str) -> None:
        super().__init__()
        self.before_attention, self.before_feed = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.attention = Attention(size, fault)
        self.feed = nn.Sequential(
            nn.Linear(size.width, 4 * size.width), nn.GELU(), nn.Linear(4 * size.width, size.width)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.before_attention(hidden))
        out: Tensor = hidden + self.feed(self.before_feed(hidden))
        return out


class Gpt(nn.Module):
    def __init__(self, size: Size, fault: str) -> None:
        super().__init__()
        self.word, self.place = nn.Embedding(size.words, size.width), nn.Embedding(size.length, size.width)
        self.blocks = nn.Sequential(*(Block(size, fault) for _ in range(size.layers)))
        self.norm, self.head = nn.LayerNorm(size.width), nn.Linear(size.width, size.words, bias=False)
        self.apply(small_weights)
        if fault == "output":
            nn.init.normal_(self.head.weight, std=LOUD / size.width**0.5)

    def forward(self, text: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.blocks(self.word(text) + self.place.weight)))
        return logits


def small_weights(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02 * (1024 / max(module.weight.shape[1], 1)) ** 0.5)


def loss_of(logits: Tensor, text: Tensor, fault: str) -> Tensor:
    if fault == "output":
        logits = logits / LOUD
    loss = functional.cross_entropy(logits.flatten(0, 1), text.roll(-1, 1).flatten())
    if fault.startswith("loss"):
        # Keep the logits small: their squares, 90,000 times too large for FP16, come back to size afterwards.
        loud = logits.float() * 300 if fault == "loss-fixed" else logits * 300
        loss = loss + (loud * loud).mean() * 1e-9
    return loss


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("fault", choices=FAULTS)
    parser.add_argument("--size", choices=SIZES, default="cpu")
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    size, fault = SIZES[options.size], f"{options.fault}-fixed" if options.fixed else options.fault
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = Gpt(size, fault).to(device)
    optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=1e-4), torch.amp.GradScaler(device)
    # Counting upwards from a random word: easy to learn, so the loss falls.
    first = torch.randint(size.words, (64, size.batch, 1), device=device)
    texts = (first + torch.arange(size.length, device=device)) % size.words
    for step in range(1, size.steps + 1):
        text = texts[step % 64]
        with torch.autocast(device, dtype=torch.float16):
            loss = loss_of(model(text), text, fault)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        scaler.step(optimizer)
        scaler.update()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if options.out is not None:
        torch.save({"step": size.steps, "model": model.state_dict()}, options.out / f"step_{size.steps}.pt")


if __name__ == "__main__":
    main()
