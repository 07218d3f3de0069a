"""Trains with Accelerate and its tqdm, as many of its examples do: `python accelerate_.py FAULT`."""

import sys

import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from accelerate.utils import set_seed
from tiny import Data, Net, rate
from tqdm.auto import tqdm

fault = sys.argv[1]
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
logger = get_logger(__name__)
set_seed(1)
net = Net(fault)
optimizer = torch.optim.AdamW(net.parameters(), lr=rate(fault, 1e-2) * (1e30 if fault == "nan" else 1))
net, optimizer, loader = accelerator.prepare(net, optimizer, torch.utils.data.DataLoader(Data(), batch_size=16))
bar = tqdm(range(24), disable=not accelerator.is_local_main_process, desc="Steps", mininterval=0)
step = 0
for epoch in range(3):
    for x, y in loader:
        with accelerator.accumulate(net):
            loss = torch.nn.functional.mse_loss(net(x), y)
            accelerator.backward(loss)
            norm = accelerator.clip_grad_norm_(net.parameters(), 1.0) if accelerator.sync_gradients else None
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            step += 1
            bar.update(1)
            bar.set_postfix(loss=loss.detach().item(), lr=optimizer.param_groups[0]["lr"])
            if step % 8 == 0:
                accelerator.print(
                    f"epoch {epoch}: {{'step': {step}, 'train_loss': {loss.item()}, 'grad_norm': {float(norm)}}}"
                )
accelerator.end_training()
