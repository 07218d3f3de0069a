"""Distils a teacher's language into a small student with routed heads, in FP16.

The student is a transformer with four heads; for every token a router weighs them. It learns from the text (CE) and
from the teacher's softened distribution (KD). Batches whose loss is no number are left out, and after ten of them in a
row the script gives up, as its author wrote it.

`--fixed` is what the author came to in the end: logits clamped, a lower temperature, lower learning rates, bounded
losses, and updates with unsteady gradients left out.
"""

from __future__ import annotations

import argparse
import math
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

WORDS, EXPERTS = 32, 4
TOO_MANY_BAD_BATCHES = 10
HELD_OUT_FROM, HELD_OUT_BATCHES, A_FEW_BATCHES = 1_000_000, 64, 8
LOGIT_LIMIT, LOSS_LIMIT = 5.0, 6.0


@dataclass(frozen=True)
class Size:
    width: int
    layers: int
    attention_heads: int
    length: int
    batch: int
    steps: int
    # A wider student wants smaller steps than the flags say, which are for the small one.
    lr_share: float
    # And its router far smaller ones: what it says of a word is a sum over the width, and exp of it must stay finite.
    router_share: float
    # The router is to have an opinion from the start: how far apart its logits lie for the heads of one word. They grow
    # with training, in a wider student faster.
    opinion: float
    # With `--fixed`, the norm of gradients above which an update is left out: there are more of them in a wider one.
    unsteady: float


SIZES = {
    "cpu": Size(
        width=64,
        layers=1,
        attention_heads=4,
        length=24,
        batch=48,
        steps=300,
        lr_share=1.0,
        router_share=1.0,
        opinion=8.0,
        unsteady=2.0,
    ),
    "gpu": Size(
        width=512,
        layers=6,
        attention_heads=8,
        length=128,
        batch=64,
        steps=600,
        lr_share=0.1,
        router_share=0.005,
        opinion=4.0,
        unsteady=20.0,
    ),
}


class Teacher(nn.Module):
    """The large model, here a law of its own: the next word depends on the last one, and a little on the one before."""

    def __init__(self) -> None:
        super().__init__()
        law = torch.Generator().manual_seed(4321)
        width = 32
        self.last = nn.Parameter(torch.randn(WORDS, width, generator=law), requires_grad=False)
        self.before = nn.Parameter(0.3 * torch.randn(WORDS, width, generator=law), requires_grad=False)
        self.out = nn.Parameter(0.3 * torch.randn(width, WORDS, generator=law), requires_grad=False)

    def forward(self, last: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.last[last] + self.before[before]) @ self.out

    def write(self, rows: int, length: int, dice: torch.Generator) -> torch.Tensor:
        """Return text of the teacher's own: `length` words and one more."""
        device = self.out.device
        text = list(torch.randint(WORDS, (2, rows), generator=dice, device=device).unbind(0))
        # The largest of logits with such noise is a draw from their softmax.
        noise = torch.empty(length, rows, WORDS, device=device).exponential_(generator=dice).log()
        for at in range(length):
            text.append((self(text[-1], text[-2]) - noise[at]).argmax(dim=-1))
        return torch.stack(text[1:], dim=1)


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm_after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        rows, length, width = hidden.shape
        parts = self.attention(self.norm(hidden)).view(rows, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.out(seen.transpose(1, 2).reshape(rows, length, width))
        after: torch.Tensor = hidden + self.wide(self.norm_after(hidden))
        return after


class Student(nn.Module):
    def __init__(self, size: Size, limit: float | None) -> None:
        super().__init__()
        self.limit = limit
        self.word = nn.Embedding(WORDS, size.width)
        self.position = nn.Parameter(0.02 * torch.randn(size.length, size.width))
        self.blocks = nn.Sequential(*(Block(size.width, size.attention_heads) for _ in range(size.layers)))
        self.norm = nn.LayerNorm(size.width)
        self.heads = nn.Linear(size.width, EXPERTS * WORDS)
        self.router = nn.Parameter(size.opinion * torch.randn(size.width, EXPERTS) / math.sqrt(size.width))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.blocks(self.word(text) + self.position))
        each = self.heads(hidden).unflatten(-1, (EXPERTS, WORDS))
        # How much a head has to say; what they say together is their weighted mean.
        say = torch.exp(self.bounded(hidden @ self.router)).unsqueeze(-2)
        logits = (say @ each).squeeze(-2) / say.sum(dim=-1)
        return self.bounded(logits)

    def bounded(self, logits: torch.Tensor) -> torch.Tensor:
        return logits if self.limit is None else logits.clamp(-self.limit, self.limit)


class Distillation:
    def __init__(self, options: argparse.Namespace, device: torch.device) -> None:
        self.options, self.device, self.size = options, device, SIZES[options.size]
        self.half = options.model_dtype == "float16"
        torch.manual_seed(options.seed)
        self.teacher = Teacher().to(device)
        self.student = Student(self.size, LOGIT_LIMIT if options.fixed else None).to(device)
        self.optimizer = torch.optim.AdamW(self.groups())
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.half)
        self.first, self.bad_in_a_row, self.good = 0, 0, 0

    def groups(self) -> list[dict[str, Any]]:
        router = [self.student.router]
        others = [weight for weight in self.student.parameters() if weight is not self.student.router]
        return [{"params": others, "role": "student"}, {"params": router, "role": "router"}]

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.float16, enabled=self.half)

    def text(self, number: int) -> torch.Tensor:
        """Return the batch of that number: the same one whenever it is asked for."""
        dice = torch.Generator(self.device).manual_seed(1_000_003 * self.options.seed + 17 * (number + 2))
        return self.teacher.write(self.size.batch, self.size.length + 1, dice)

    def train(self) -> bool:
        """Train to the last step; return False when too many batches in a row were bad."""
        seen, recent = 0, [0.0, 0.0, 0.0]
        for step in range(self.first + 1, self.size.steps + 1):
            losses = self.update(step)
            seen += 1
            if losses is None:
                self.bad_in_a_row += 1
                if self.bad_in_a_row >= TOO_MANY_BAD_BATCHES:
                    rate = f"success_rate={100 * self.good / seen:.0f}%"
                    print(f"Too many NaN batches, stopping training ({rate})", flush=True)
                    return False
                continue
            self.bad_in_a_row, self.good = 0, self.good + 1
            recent = (
                [0.9 * old + 0.1 * new for old, new in zip(recent, losses, strict=True)] if self.good > 1 else losses
            )
            if step % 25 == 0:
                total, kd, ce = recent
                rate = f"success_rate={100 * self.good / seen:.0f}%"
                print(f"Step {step}: avg_loss={total:.4f} (kd={kd:.4f}, ce={ce:.4f}) {rate}", flush=True)
            if step % 100 == 0:
                print(f"Step {step}: Validation PPL = {self.perplexity(A_FEW_BATCHES):.4f}", flush=True)
                self.save(step)
        return True

    def update(self, step: int) -> list[float] | None:
        """Take one step; return the losses, or None when there is nothing to learn from the batch."""
        text = self.text(step)
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr_of(group["role"]) * self.share(step)
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast():
            total, kd, ce = self.losses(text)
        if not torch.isfinite(total):
            print(f"Step {step}: Numerical issue: total_loss={total:.4f}, kd={kd:.4f}, ce={ce:.4f}", flush=True)
            return None
        scaled: Any = self.scaler.scale(total)
        scaled.backward()
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.student.parameters(), self.options.clip or math.inf)
        if self.options.fixed and norm > self.size.unsteady:
            print(f"Step {step}: grad norm {norm:.2f}, skipping unstable gradient step", flush=True)
        else:
            self.scaler.step(self.optimizer)
        self.scaler.update()
        return [total.item(), kd.item(), ce.item()]

    def losses(self, text: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the loss and its two parts: the teacher's softened word on every word, and the text itself."""
        degrees = self.options.temperature
        logits = self.student(text[:, 1:-1]).flatten(0, 1).float()
        with torch.no_grad():
            wanted = self.teacher(text[:, 1:-1], text[:, :-2]).flatten(0, 1).float()
        ce = functional.cross_entropy(logits, text[:, 2:].flatten())
        soft = functional.log_softmax(logits / degrees, dim=-1)
        kd = functional.kl_div(soft, functional.softmax(wanted / degrees, dim=-1), reduction="batchmean") * degrees**2
        # Where the teacher is of no use, the text alone must do.
        kd = torch.where(torch.isfinite(kd), kd, torch.zeros_like(kd))
        if self.options.fixed:
            ce, kd = ce.clamp(0, LOSS_LIMIT), kd.clamp(0, LOSS_LIMIT)
        return self.options.alpha_kd * kd + self.options.alpha_ce * ce, kd, ce

    def lr_of(self, role: str) -> float:
        if role == "router":
            return float(self.options.router_lr * self.size.router_share)
        return float(self.options.student_lr * self.size.lr_share)

    def share(self, step: int) -> float:
        """Return the share of the learning rates at a step: a short warm-up, then a cosine down to zero."""
        return min(1.0, step / (self.size.steps / 20)) * 0.5 * (1 + math.cos(math.pi * step / (self.size.steps + 1)))

    def perplexity(self, batches: int) -> float:
        total = 0.0
        for number in range(batches):
            text = self.text(HELD_OUT_FROM + number)
            with torch.no_grad(), self.autocast():
                logits = self.student(text[:, 1:-1]).flatten(0, 1).float()
            total += functional.cross_entropy(logits, text[:, 2:].flatten()).item()
        return math.exp(total / batches)

    def save(self, step: int) -> None:
        """Write a checkpoint beside its name and rename it: a file that has the name is whole."""
        folder: Path = self.options.output_dir
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / "unfinished"
        state = {"step": step, "student": self.student.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save({**state, "scaler": self.scaler.state_dict()}, unfinished)
        unfinished.replace(folder / f"step_{step}.pt")

    def resume(self, path: Path) -> None:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        self.student.load_state_dict(state["student"])
        self.optimizer.load_state_dict(state["optimizer"])
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        self.first = state["step"]
        print(f"resumed from {path} at step {self.first}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Distil a teacher into a student with routed heads.")
    parser.add_argument("--size", choices=SIZES, default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model_dtype", choices=("float16", "float32"), default="float16")
    parser.add_argument("--student_lr", type=float, default=5e-3)
    parser.add_argument("--router_lr", type=float, default=1e-2)
    parser.add_argument("--temperature", type=float, default=4.0)
    parser.add_argument("--alpha_kd", type=float, default=0.5)
    parser.add_argument("--alpha_ce", type=float, default=0.5)
    parser.add_argument("--clip", type=float, help="max_norm of the gradients; none by default")
    parser.add_argument("--output_dir", type=Path, default=Path("checkpoints"))
    parser.add_argument("--resume", type=Path, help="the checkpoint to go on from")
    parser.add_argument("--fixed", action="store_true", help="the settings and bounds its author came to in the end")
    options = parser.parse_args()
    if options.fixed:
        options.temperature, options.clip = 1.5, 0.5
        options.student_lr, options.router_lr = 0.5 * options.student_lr, 0.5 * options.router_lr
    return options


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
    run = Distillation(options, device)
    if options.resume:
        run.resume(options.resume)
    print("Starting training...", flush=True)
    finished = run.train()
    print(f"Final validation perplexity: {run.perplexity(HELD_OUT_BATCHES):.4f}", flush=True)
    sys.exit(0 if finished else 1)


if __name__ == "__main__":
    main()
