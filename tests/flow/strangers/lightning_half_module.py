"""Tell spirals apart with a module that was put into half precision "to save memory", under 16-mixed."""

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins import MixedPrecision
from torch import nn

torch.set_num_threads(1)


class Spirals(pl.LightningModule):
    def __init__(self, width=64):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2)
        )

    def forward(self, points):
        return self.net(points)

    def training_step(self, batch, batch_index):
        points, label = batch
        loss = nn.functional.cross_entropy(self(points).float(), label)
        if batch_index % 25 == 0:
            self.print(f"epoch {self.current_epoch} batch {batch_index} loss {loss.item():.4f}", flush=True)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=5e-3)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)}


def spirals(count, seed):
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(0, 2, (count,), generator=generator)
    turn = 4 * torch.rand(count, generator=generator) + 0.5
    angle = turn + 3.14159 * label
    points = torch.stack([turn * angle.cos(), turn * angle.sin()], dim=1) / 3
    return torch.utils.data.TensorDataset(points, label)


def main():
    pl.seed_everything(1)
    model = Spirals().half()
    trainer = pl.Trainer(
        max_epochs=4,
        accelerator="cpu",
        # "16-mixed" alone is turned into bf16 on a CPU
        plugins=[MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))],
        enable_checkpointing=False,
        enable_progress_bar=False,
        logger=False,
    )
    trainer.fit(model, torch.utils.data.DataLoader(spirals(2048, 1), batch_size=32, shuffle=True))
    points, label = spirals(512, 2).tensors
    model.eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(points).float(), label)
    print(f"held-out loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
