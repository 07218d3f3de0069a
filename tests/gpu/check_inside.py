"""Checks on a real GPU what the code inside a job promises: python -m tests.gpu.check_inside, with only torch.

Watching changes no bit of the weights, updates that share a copy from the GPU are reported with their own numbers, a
run that Rung saved goes on with the same random numbers of the GPU, and the watch for numbers near FP16's limit names
the module that returns them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

INSIDE = Path(__file__).parents[2] / "jobs" / "inside"
# `cpu` as an argument tries the checks themselves, where there is no GPU.
DEVICE = ["cuda"]
# Trains with dropout on the GPU, prints every loss and the weights, and cannot save or resume by itself.
SCRIPT = """
import os, sys, torch
device = os.environ["DEVICE"]
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Dropout(0.5), torch.nn.Linear(32, 1)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler(device, init_scale=8.0)
rows = torch.utils.data.TensorDataset(torch.randn(40, 8))
loader = torch.utils.data.DataLoader(rows, batch_size=2, shuffle=True)
step = 0
for (x,) in loader:
    if step == int(sys.argv[1]):
        sys.exit(3)
    x = x.to(device)
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.float16):
        loss = (model(x) - x.sum(1, keepdim=True)).float().square().mean()
    if step in map(int, os.environ.get("SKIPPED", "").split()):
        loss = loss * 1e30
    print("scale", scaler.get_scale())
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    step += 1
    print("loss", loss.item().hex(), flush=True)
print("weights", [value.hex() for each in model.parameters() for value in each.flatten().tolist()])
"""
LARGE = """
import os, torch
device = os.environ["DEVICE"]
class Wide(torch.nn.Module):
    def forward(self, x):
        return x * 0 + 30000.0
model = torch.nn.Sequential(torch.nn.Linear(4, 4), Wide()).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(4):
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.float16):
        out = model(torch.randn(2, 4, device=device))
    (out.float() / 30000.0).mean().backward()
    optimizer.step()
"""


def run(script: str, *arguments: str, **variables: str) -> list[str]:
    """Run a script as Rung starts it, and return its lines."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RUNG_")}
    env = {**kept, "PYTHONPATH": str(INSIDE), "RUNG_KNOBS": "{}", "DEVICE": DEVICE[0], **variables}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], env=env, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 3):
        sys.exit(f"rung: the training failed: {done.stderr[-2000:]}")
    return done.stdout.splitlines()


def check_same_bits() -> None:
    own, watched = ([line for line in run(SCRIPT, "-1", RUNG_MODE=mode) if told(line)] for mode in ("", "zero-edit"))
    report("watching changes no bit of losses and weights", len(own) == 21 and own == watched)


def told(line: str) -> bool:
    return line.startswith(("loss", "weights"))


def check_records() -> None:
    """Check the numbers of each update, of which the scaler skips two that share a copy with others."""
    lines = run(SCRIPT, "-1", RUNG_MODE="zero-edit", SKIPPED="10 17")
    losses, scales = ([line.split()[1] for line in lines if line.startswith(word)] for word in ("loss", "scale"))
    wanted = [
        {"loss": f"{float.fromhex(loss):.6g}", "scale": str(float(scale)), "skipped": str(int(step in (10, 17)))}
        for step, (loss, scale) in enumerate(zip(losses, scales, strict=True))
    ]
    records = [dict(word.split("=", 1) for word in line.split()[2:]) for line in lines if line.startswith("rung| step")]
    seen = [{**each, "loss": f"{float(each['loss']):.6g}"} for each in records]
    is_so = [{name: each.get(name) for name in wanted[0]} for each in seen] == wanted and len(set(scales)) == 3
    has_note = any(line.startswith("rung| note") for line in lines)
    report("each update is reported with its own loss, scale and skip", is_so and not has_note)


def check_random_state() -> None:
    with tempfile.TemporaryDirectory() as folder:
        rungs: Mapping[str, str] = {
            "RUNG_MODE": "zero-edit",
            "RUNG_CHECKPOINT_DIR": folder,
            "RUNG_CHECKPOINT_BY": "rung",
            "RUNG_CHECKPOINT_EVERY": "8",
            "RUNG_CHECKPOINT_PATTERN": "step_*.pt",
        }
        whole = [line for line in run(SCRIPT, "-1", **rungs) if told(line)]
        for each in Path(folder).iterdir():
            each.unlink()
        run(SCRIPT, "11", **rungs)
        saved = sorted(Path(folder).iterdir())
        if not saved:
            sys.exit("rung: no checkpoint was saved")
        again = run(SCRIPT, "-1", **rungs, RUNG_CHECKPOINT=str(saved[-1]), RUNG_CHECKPOINT_STEP="8")
    same = [line for line in again if told(line)] == whole[8:]
    is_whole = not any(line.startswith("rung| not_whole") for line in again)
    report("a run that Rung saved goes on with the same dropout, bit for bit", same and is_whole)


def check_near_limit() -> None:
    near = [line for line in run(LARGE, RUNG_MODE="zero-edit", RUNG_NEAR_LIMIT="1") if line.startswith("rung| near ")]
    report("numbers near FP16's limit are seen", bool(near) and "activations=1:30000" in near[-1])


def report(what: str, is_so: bool) -> None:
    sys.stdout.write(f"{'passed' if is_so else 'FAILED'}: {what}\n")
    if not is_so:
        sys.exit(1)


def main(arguments: list[str]) -> None:
    import torch

    if arguments == ["cpu"]:
        DEVICE[0] = "cpu"
    elif not torch.cuda.is_available():
        sys.stdout.write("there is no GPU here: nothing was checked\n")
        return
    check_same_bits()
    check_records()
    check_random_state()
    check_near_limit()


if __name__ == "__main__":
    main(sys.argv[1:])
