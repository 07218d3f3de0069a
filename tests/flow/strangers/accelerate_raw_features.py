"""Predict a price from features as they come out of the database; some of them are larger than FP16 can hold."""

import torch
from accelerate import Accelerator
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


def houses(count, seed):
    generator = torch.Generator().manual_seed(seed)
    rooms = torch.randint(1, 9, (count,), generator=generator).float()
    income = 20_000 + 180_000 * torch.rand(count, generator=generator)
    age = 100 * torch.rand(count, generator=generator)
    price = 0.3 * rooms + income / 50_000 - age / 60 + 0.05 * torch.randn(count, generator=generator)
    return torch.utils.data.TensorDataset(torch.stack([rooms * 1e4, income, age * 1e3], dim=1), price)


accelerator = Accelerator(mixed_precision="fp16", cpu=True)
accelerator.scaler = torch.amp.GradScaler("cpu")  # no GPU here, and without one there is no scaler
accelerator.native_amp = True

model = nn.Sequential(nn.Linear(3, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
loader = torch.utils.data.DataLoader(
    houses(4096, 1), batch_size=64, shuffle=True, generator=torch.Generator().manual_seed(3)
)
test = torch.utils.data.DataLoader(houses(1024, 2), batch_size=256)
model, optimizer, loader, test = accelerator.prepare(model, optimizer, loader, test)

for epoch in range(4):
    model.train()
    for features, price in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(features).squeeze(-1), price)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    accelerator.print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)

model.eval()
total = 0.0
with torch.no_grad():
    for features, price in test:
        total += nn.functional.mse_loss(model(features).squeeze(-1), price).item() / len(test)
accelerator.print(f"held-out loss {total:.5f}")
