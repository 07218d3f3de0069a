"""Reconstruct points on a sphere through a narrow middle: Accelerate, accumulation, cosine; lr found by guessing."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn

torch.set_num_threads(1)
STEPS = 500


def points(count, seed):
    x = torch.randn(count, 3, generator=torch.Generator().manual_seed(seed))
    mix = torch.randn(3, 20, generator=torch.Generator().manual_seed(9))
    return 2 * torch.tanh(x / x.norm(dim=1, keepdim=True) @ mix)


def main():
    set_seed(0)
    accelerator = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=2, cpu=True)
    accelerator.scaler = torch.amp.GradScaler("cpu")
    accelerator.native_amp = True
    model = nn.Sequential(
        nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 4), nn.Linear(4, 64), nn.GELU(), nn.Linear(64, 20)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    loader = torch.utils.data.DataLoader(points(2048, 1), batch_size=32, shuffle=True)
    model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, loader)

    micro = 0
    while micro < 2 * STEPS:
        for batch in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(batch), batch)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            micro += 1
            if micro % 100 == 0:
                accelerator.print({"step": micro // 2, "loss": round(loss.item(), 5)}, flush=True)

    test = points(512, 2)
    with torch.no_grad():
        accelerator.print(f"held-out loss {nn.functional.mse_loss(model(test).float(), test).item():.5f}")


if __name__ == "__main__":
    main()
