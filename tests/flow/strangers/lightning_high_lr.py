"""Fit a surface with Lightning: 16-mixed, accumulation, a learning rate that worked with another batch size."""

import lightning.pytorch as pl
import torch
from lightning.pytorch.plugins import MixedPrecision
from torch import nn

torch.set_num_threads(1)


class Surface(pl.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(nn.Linear(4, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))

    def step(self, batch):
        x, y = batch
        return nn.functional.mse_loss(self.net(x).squeeze(-1).float(), y)

    def training_step(self, batch, _):
        loss = self.step(batch)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.step(batch))

    def on_train_epoch_end(self):
        print(f"Epoch {self.current_epoch}: loss={self.trainer.callback_metrics['loss'].item():.4f}", flush=True)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9, nesterov=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=320)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def points(count, seed):
    x = 2 * torch.rand(count, 4, generator=torch.Generator().manual_seed(seed)) - 1
    return torch.utils.data.TensorDataset(x, 5 * torch.sin(2 * x[:, 0]) * x[:, 1] + 4 * x[:, 2] ** 2 - x[:, 3])


if __name__ == "__main__":
    pl.seed_everything(0)
    trainer = pl.Trainer(
        max_epochs=10,
        accelerator="cpu",
        plugins=[MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu"))],
        accumulate_grad_batches=2,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        num_sanity_val_steps=0,
    )
    model = Surface(lr=0.5)
    trainer.fit(model, torch.utils.data.DataLoader(points(2048, 1), batch_size=32, shuffle=True))
    result = trainer.validate(model, torch.utils.data.DataLoader(points(512, 2), batch_size=256), verbose=False)
    print(f"held-out loss {result[0]['val_loss']:.5f}")
