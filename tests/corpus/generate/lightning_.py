"""Trains with Lightning: `python lightning_.py FAULT [rich|quiet]`."""

import sys
import tempfile

import lightning
import torch
from lightning.pytorch.callbacks import RichProgressBar, TQDMProgressBar
from lightning.pytorch.plugins import MixedPrecision
from tiny import Data, Net, rate

fault, options = sys.argv[1], sys.argv[2:]


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net(fault)

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.net(x).float(), y)
        self.log_dict({"train_loss": loss, "kd": 0.1 * loss}, prog_bar=True, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        self.log("val_loss", torch.nn.functional.mse_loss(self.net(x).float(), y), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=rate(fault, 0.02))


lightning.seed_everything(0)
model = Module().half() if fault == "unscale" else Module()
half = fault in ("unscale", "overflow")
trainer = lightning.Trainer(
    accelerator="cpu",
    max_epochs=3,
    default_root_dir=tempfile.mkdtemp(),
    logger=False,
    enable_checkpointing=False,
    callbacks=[RichProgressBar() if "rich" in options else TQDMProgressBar(refresh_rate=1)],
    plugins=[MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu"))] if half else [],
)
loader = torch.utils.data.DataLoader(Data(), batch_size=32)
trainer.fit(model, loader, torch.utils.data.DataLoader(Data(64), batch_size=32))
