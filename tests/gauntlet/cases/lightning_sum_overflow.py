"""Lightning in 16-mixed with a norm by hand whose sums leave FP16's range."""

import lightning
import torch
from case import arguments, classes, cross_entropy, lightning_settings, validate
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
trainer = lightning.Trainer(**lightning_settings(args), plugins=plugins)
trainer.fit(model, DataLoader(rows, batch_size=64, shuffle=True), ckpt_path=args.resume)
validate(cross_entropy, model, classes(0, 4000, seed=3))
