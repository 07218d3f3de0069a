"""Fit a noisy function of ten inputs with a small MLP; the learning rate was taken from somebody's blog post."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
weights = torch.randn(10)


def data(count, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 10, generator=generator)
    y = 3 * torch.sin(x @ weights / 3) + 0.05 * torch.randn(count, generator=generator)
    return x, y


train_x, train_y = data(4096, 1)
test_x, test_y = data(1024, 2)
model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
scaler = torch.amp.GradScaler("cpu")
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(train_x, train_y),
    batch_size=64,
    shuffle=True,
    generator=torch.Generator().manual_seed(3),
)

for epoch in range(8):
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            prediction = model(x).squeeze(-1)
            loss = nn.functional.mse_loss(prediction.float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        total += loss.item()
    print(f"epoch {epoch + 1}: train loss {total / len(loader):.4f}", flush=True)

with torch.no_grad():
    print(f"held-out loss {nn.functional.mse_loss(model(test_x).squeeze(-1), test_y).item():.5f}")
