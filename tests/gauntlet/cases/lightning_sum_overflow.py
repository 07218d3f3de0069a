"""Lightning in 16-mixed with a norm by hand whose sums leave FP16's range."""

import argparse

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins import MixedPrecision
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
TEACHER = torch.randn(16, 4, generator=torch.Generator().manual_seed(1))


def rows(size, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 16, generator=generator)
    chances = torch.softmax(x @ TEACHER * 0.7, 1)
    return TensorDataset(x, torch.multinomial(chances, 1, generator=generator).squeeze(1))


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(16, 4096), nn.Linear(4096, 4)

    def forward(self, x):
        hidden = F.relu(self.first(x)) + 20.0
        hidden = hidden - hidden.sum(1, keepdim=True) / 4096
        return self.head(hidden)

    def training_step(self, batch, index):
        loss = F.cross_entropy(self(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


model = Classifier()
plugins = []
if not args.fixed:
    # On a GPU: Trainer(precision="16-mixed").
    plugins = [MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu"))]
trainer = lightning.Trainer(
    max_steps=args.steps,
    accelerator="cpu",
    plugins=plugins,
    devices=1,
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[ModelCheckpoint(dirpath=args.out, filename="{step}", every_n_train_steps=50, save_top_k=-1)],
)
trainer.fit(model, DataLoader(rows(20000, 2), batch_size=64, shuffle=True), ckpt_path=args.resume)
with torch.no_grad():
    x, y = rows(4000, 3).tensors
    print(f"val_loss {F.cross_entropy(model(x), y).item():.5f}")
