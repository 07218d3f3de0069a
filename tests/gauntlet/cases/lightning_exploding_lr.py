"""Lightning with a learning rate that is far too high, and nothing in the log but the epoch."""

import argparse

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--out", default="checkpoints")
parser.add_argument("--resume")
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()
torch.set_num_threads(1)
lightning.seed_everything(0)
TEACHER = torch.randn(16, generator=torch.Generator().manual_seed(1))


def rows(size, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 16, generator=generator)
    return TensorDataset(x, x @ TEACHER + torch.randn(size, generator=generator))


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch, index):
        return F.mse_loss(self.body(batch[0]).squeeze(1), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.04 if args.fixed else 0.4)


model = Regression()
trainer = lightning.Trainer(
    max_steps=args.steps,
    accelerator="cpu",
    devices=1,
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[ModelCheckpoint(dirpath=args.out, filename="{step}", every_n_train_steps=50, save_top_k=-1)],
)
trainer.fit(model, DataLoader(rows(20000, 2), batch_size=64, shuffle=True), ckpt_path=args.resume)
with torch.no_grad():
    x, y = rows(4000, 3).tensors
    print(f"val_loss {F.mse_loss(model.body(x).squeeze(1), y).item():.5f}")
