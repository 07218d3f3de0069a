"""Sum up the numbers before a stop sign: one attention layer, FP16 mixed precision."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
LENGTH, WIDTH, STEPS = 12, 32, 200


class Summer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(1, WIDTH)
        self.position = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.1)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))

    def forward(self, numbers, mask):
        x = self.embed(numbers.unsqueeze(-1)) + self.position
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(-2, -1) / WIDTH**0.5
        scores = scores.masked_fill(~mask.unsqueeze(1), -1e9)
        attended = scores.softmax(dim=-1) @ v
        return self.head(attended.mean(dim=1)).squeeze(-1)


def batch(generator, size=64):
    numbers = torch.rand(size, LENGTH, generator=generator)
    lengths = torch.randint(2, LENGTH + 1, (size, 1), generator=generator)
    mask = torch.arange(LENGTH) < lengths
    return numbers, mask, (numbers * mask).sum(dim=1) / lengths.squeeze(1)


model = Summer()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
scaler = torch.amp.GradScaler("cpu")
generator = torch.Generator().manual_seed(1)

for step in range(STEPS):
    numbers, mask, target = batch(generator)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(model(numbers, mask).float(), target)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)

model.eval()
with torch.no_grad():
    numbers, mask, target = batch(torch.Generator().manual_seed(2), 512)
    loss = nn.functional.mse_loss(model(numbers, mask), target)
print(f"held-out loss {loss.item():.5f}")
