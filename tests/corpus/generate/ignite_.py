"""Trains with pytorch-ignite's engine, bar and logger: `python ignite_.py FAULT`."""

import sys

import torch
from ignite.contrib.handlers import ProgressBar
from ignite.engine import Events, create_supervised_trainer
from ignite.handlers import TerminateOnNan
from ignite.metrics import RunningAverage
from ignite.utils import setup_logger
from tiny import Data, Net, rate

fault, options = sys.argv[1], sys.argv[2:]
net = Net(fault)
trainer = create_supervised_trainer(net, torch.optim.SGD(net.parameters(), lr=rate(fault, 0.02)), torch.nn.MSELoss())
trainer.logger = setup_logger("trainer", stream=sys.stdout)
RunningAverage(output_transform=lambda x: x).attach(trainer, "loss")
ProgressBar(persist=True).attach(trainer, ["loss"])
if "guarded" in options:
    trainer.add_event_handler(Events.ITERATION_COMPLETED, TerminateOnNan())


@trainer.on(Events.ITERATION_COMPLETED(every=4))
def log_loss(engine):
    engine.logger.info(
        f"Epoch[{engine.state.epoch}] Iteration[{engine.state.iteration}] Loss: {engine.state.output:.4f}"
    )


trainer.run(torch.utils.data.DataLoader(Data(), batch_size=32), max_epochs=3)
