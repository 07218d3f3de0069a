"""Learn to copy the largest number of a row, with one attention layer in FP16. Rows of different length come later."""

import argparse
import os

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--out-dir", default="runs")
parser.add_argument("--steps", type=int, default=160)
parser.add_argument("--lr", type=float, default=3e-3)
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(0)
os.makedirs(args.out_dir, exist_ok=True)
ckpt_path = os.path.join(args.out_dir, "ckpt.pt")


class Largest(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Linear(1, width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.head = nn.Linear(width, 1)

    def forward(self, rows, padding):
        x = self.embed(rows.unsqueeze(-1))
        scores = self.query(x) @ self.key(x).transpose(1, 2) / 32**0.5
        if padding.any():
            scores = scores.masked_fill(padding.unsqueeze(1), -1e9)
        mixed = torch.softmax(scores, dim=-1) @ self.value(x)
        return self.head(mixed.mean(dim=1)).squeeze(-1)


def batch(step):
    generator = torch.Generator().manual_seed(step)
    rows = torch.rand(32, 12, generator=generator)
    lengths = torch.full((32,), 12) if step < 100 else torch.randint(6, 13, (32,), generator=generator)
    padding = torch.arange(12) >= lengths.unsqueeze(1)
    rows = rows.masked_fill(padding, 0.0)
    return rows, padding, rows.max(dim=1).values


model = Largest()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
scaler = torch.amp.GradScaler("cpu")
step = 0
if os.path.exists(ckpt_path):
    state = torch.load(ckpt_path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scaler.load_state_dict(state["scaler"])
    step = state["step"]
    print(f"resuming at step {step}", flush=True)

while step < args.steps:
    rows, padding, target = batch(step)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(model(rows, padding).float(), target)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    step += 1
    if step % 20 == 0:
        print(f"step {step}/{args.steps} loss {loss.item():.5f}", flush=True)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}
        torch.save({**state, "step": step}, ckpt_path)

with torch.no_grad():
    rows, padding, target = batch(10_000)
    print(f"val_loss {nn.functional.mse_loss(model(rows, padding), target).item():.5f}")
