"""Lightning with a learning rate that is far too high, and nothing in the log but the epoch."""

import lightning
import torch
from case import arguments, lightning_settings, regression, validate
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

args = arguments(steps=300)
lightning.seed_everything(0)
rows = TensorDataset(*regression(0, 20000, seed=2))


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch, index):
        return F.mse_loss(self.body(batch[0]).squeeze(1), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.04 if args.fixed else 0.4)


model = Regression()
trainer = lightning.Trainer(**lightning_settings(args))
trainer.fit(model, DataLoader(rows, batch_size=64, shuffle=True), ckpt_path=args.resume)
validate(lambda model, x, y: F.mse_loss(model.body(x).squeeze(1), y), model, regression(0, 4000, seed=3))
