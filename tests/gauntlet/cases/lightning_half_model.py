"""Lightning in 16-mixed with a model that was loaded in FP16: the scaler refuses its gradients."""

import lightning
import torch
from case import arguments, cast_cross_entropy, classes, lightning_settings, validate
from lightning.pytorch.plugins import MixedPrecision
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

args = arguments(steps=300)
lightning.seed_everything(0)
rows = TensorDataset(*classes(0, 20000, seed=2))


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
trainer = lightning.Trainer(**lightning_settings(args), plugins=plugins)
trainer.fit(model, DataLoader(rows, batch_size=64, shuffle=True), ckpt_path=args.resume)
validate(cast_cross_entropy, model.body, classes(0, 4000, seed=3))
