"""A short training that prints what a container on this machine has: which GPU, which torch, and AMP.

It runs in the container and does not import Rung.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import time

import torch

STEPS = 60


def print_libraries() -> None:
    for name in ("numpy", "yaml", "transformers", "accelerate", "peft", "lightning", "safetensors"):
        began = time.monotonic()
        try:
            version = getattr(importlib.import_module(name), "__version__", "?")
        except ImportError as error:
            version = f"not there ({error})"
        print(f"library {name} {version} in {time.monotonic() - began:.1f} s", flush=True)


def driver() -> str:
    """Return whether the driver's library is in the container."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return str(error)
    return "libcuda.so.1 is there"


def train(device: str) -> float:
    """Train a little net in mixed precision with a scaler, and return its last loss."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(1152, 1))
    net.to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(device, init_scale=1024.0)
    inputs = torch.randn(256, 3, 8, 8, device=device)
    targets = inputs.mean(dim=(1, 2, 3)).unsqueeze(1)
    loss = torch.zeros(())
    for step in range(STEPS):
        with torch.autocast(device, dtype=torch.float16):
            loss = (net(inputs).float() - targets).pow(2).mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(f"step {step + 1} loss {loss.item():.5f} scale {scaler.get_scale():g}", flush=True)
        # Slow, so that nvidia-smi can show the process while it runs.
        time.sleep(0.1)
    return loss.item()


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "no GPU"
    print(f"torch {torch.__version__} on {name} as user {os.getuid()}, CUDA {torch.version.cuda}", flush=True)
    print(f"devices {sorted(entry for entry in os.listdir('/dev') if 'nvidia' in entry)}", flush=True)
    print(f"driver: {driver()}", flush=True)
    last = train(device)
    print_libraries()
    print(f"val_loss: {last:.6f}", flush=True)


if __name__ == "__main__":
    main()
