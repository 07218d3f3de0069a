"""Predict the next reading of a sensor by attention, with Lightning in FP16. The data is in raw units."""

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins import MixedPrecision
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


class Sensor(L.LightningModule):
    def __init__(self, width=16):
        super().__init__()
        self.query, self.key = nn.Linear(1, width), nn.Linear(1, width)
        self.head = nn.Linear(8, 1)

    def forward(self, readings):
        x = readings.unsqueeze(-1)
        weights = torch.softmax(self.query(x) @ self.key(x).transpose(1, 2), dim=-1)
        return self.head((weights @ (x / x.abs().mean(dim=1, keepdim=True))).squeeze(-1)).squeeze(-1)

    def training_step(self, batch, _):
        readings, target = batch
        loss = nn.functional.smooth_l1_loss(self(readings).float(), target / readings.abs().mean(dim=1))
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


def recordings(count):
    """Return readings of a wave, the quiet ones first."""
    generator = torch.Generator().manual_seed(1)
    phase = torch.rand(count, 1, generator=generator) * 6.28
    wave = torch.sin(phase + torch.arange(9) * 0.4)
    loudness = torch.linspace(0, 3.2, count).unsqueeze(1)
    return TensorDataset(wave[:, :8] * 10**loudness, wave[:, 8] * 10 ** loudness.squeeze(1))


if __name__ == "__main__":
    L.seed_everything(0)
    trainer = L.Trainer(
        max_epochs=1,
        accelerator="cpu",
        plugins=[MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu"))],
        callbacks=[ModelCheckpoint(dirpath="checkpoints", every_n_train_steps=20, save_top_k=-1)],
        logger=False,
        enable_model_summary=False,
    )
    trainer.fit(Sensor(), DataLoader(recordings(6400), batch_size=32))
