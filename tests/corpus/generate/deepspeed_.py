"""Trains with DeepSpeed on the CPU: `python deepspeed_.py FAULT`."""

import os
import sys

os.environ |= {
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29611",
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "DS_ACCELERATOR": "cpu",
}
import deepspeed
import torch
from deepspeed.utils import logger
from tiny import Data, Net, rate

fault = sys.argv[1]
logger.setLevel("INFO")
net = Net(fault)
config = {
    "train_micro_batch_size_per_gpu": 16,
    "steps_per_print": 4,
    "optimizer": {"type": "SGD", "params": {"lr": rate(fault, 0.02)}},
    "fp16": {"enabled": True, "initial_scale_power": 16 if fault == "collapse" else 8, "hysteresis": 1},
    "wall_clock_breakdown": False,
}
engine, _, loader, _ = deepspeed.initialize(
    model=net, model_parameters=net.parameters(), training_data=Data(512), config=config, dist_init_required=True
)
for epoch in range(2):
    for step, (x, y) in enumerate(loader):
        loss = torch.nn.functional.mse_loss(engine(x.half()), y.half())
        engine.backward(loss)
        engine.step()
        if step % 8 == 0:
            print(f"epoch: {epoch}|step: {step}|loss: {loss.item()}", flush=True)
