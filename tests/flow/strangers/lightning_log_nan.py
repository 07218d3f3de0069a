"""Learn the distribution of a die that remembers, with Lightning in 16-mixed; the KL divergence is written by hand."""

import os

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins import MixedPrecision
from torch import nn

torch.set_num_threads(1)


class Die(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 6))

    def divergence(self, batch):
        history, target = batch
        predicted = torch.softmax(self.net(history), dim=-1)
        return (target * torch.log((target + 1e-8) / (predicted + 1e-8))).sum(dim=-1).mean()

    def training_step(self, batch, _):
        loss = self.divergence(batch)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def test_step(self, batch, _):
        self.log("held_out", self.divergence(batch))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def throws(count, seed):
    last = torch.randint(0, 6, (count, 2), generator=torch.Generator().manual_seed(seed))
    history = nn.functional.one_hot(last, 6).flatten(1).float()
    surest = nn.functional.one_hot(last.sum(dim=1) % 6, 6).float()
    return torch.utils.data.TensorDataset(history, surest)


if __name__ == "__main__":
    lightning.seed_everything(0)
    trainer = lightning.Trainer(
        max_steps=300,
        accelerator="cpu",
        # precision="16-mixed", which becomes bf16 where there is no GPU
        plugins=[MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu"))],
        callbacks=[ModelCheckpoint(os.environ.get("OUTPUT_DIR", "checkpoints"), every_n_train_steps=25, save_top_k=-1)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=1.0,
    )
    model = Die()
    trainer.fit(model, torch.utils.data.DataLoader(throws(2048, 1), batch_size=32, shuffle=True))
    result = trainer.test(model, torch.utils.data.DataLoader(throws(512, 2), batch_size=256), verbose=False)
    print(f"held-out loss {result[0]['held_out']:.5f}")
