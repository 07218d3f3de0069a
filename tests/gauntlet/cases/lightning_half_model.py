"""Lightning in 16-mixed with a model that was loaded in FP16: the scaler refuses its gradients."""

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
        self.body = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))

    def training_step(self, batch, index):
        return F.cross_entropy(self.body(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


model = Classifier()
plugins = []
if not args.fixed:
    model.body.half()
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
    print(f"val_loss {F.cross_entropy(model.body(x.to(model.body[0].weight.dtype)).float(), y).item():.5f}")
