"""Trains with MosaicML's Composer: `python composer_.py FAULT`."""

import sys

import torch
from composer import Trainer
from composer.models import ComposerModel
from tiny import Data, Net, rate


class Model(ComposerModel):
    def __init__(self):
        super().__init__()
        self.net = Net(sys.argv[1])

    def forward(self, batch):
        return self.net(batch[0])

    def loss(self, outputs, batch):
        return torch.nn.functional.mse_loss(outputs, batch[1])


model = Model()
Trainer(
    model=model,
    train_dataloader=torch.utils.data.DataLoader(Data(), batch_size=32),
    max_duration="3ep",
    device="cpu",
    optimizers=torch.optim.SGD(model.parameters(), lr=rate(sys.argv[1], 0.02)),
    progress_bar=False,
    log_to_console=True,
    console_log_interval="2ba",
).fit()
