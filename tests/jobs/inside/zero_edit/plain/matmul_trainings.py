"""Small trainings that do not know Rung, for the knob matmul; each returns the settings that its last step saw."""

from __future__ import annotations

import torch
from small_training import batch, network, values
from torch import nn


def settings():
    cudnn = torch.backends.cudnn
    # Reading an old name raises where old and new ones were mixed.
    return [torch.backends.cuda.matmul.allow_tf32, cudnn.allow_tf32, torch.get_float32_matmul_precision() == "highest"]


def trained(change=None, capability=(8, 0)):
    """Train with a pretended GPU; `change` is called before each step."""
    torch.cuda.is_initialized = lambda: capability is not None
    torch.cuda.get_device_capability = lambda *_: capability
    model = network()
    seen = []
    model[1].register_forward_hook(lambda *_: seen.append(settings()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(3):
        if change is not None:
            change()
        inputs, targets = batch(step)
        with torch.autocast("cpu", dtype=torch.float16):
            output = model(inputs)
        nn.functional.mse_loss(output.float(), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"settings": seen[-1], "weights": values(model)}


def plain(_folder):
    return trained()


def on_turing(_folder):
    return trained(capability=(7, 5))


def on_the_cpu(_folder):
    return trained(capability=None)


def turns_it_on(_folder):
    return trained(lambda: torch.set_float32_matmul_precision("medium"))


def turns_it_off(_folder):
    def change():
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False

    return trained(change)


def uses_new_names(value):
    def change():
        torch.backends.cuda.matmul.fp32_precision = value
        torch.backends.cudnn.conv.fp32_precision = value

    return trained(change)


def turns_it_off_by_new_names(_folder):
    return uses_new_names("ieee")


def turns_it_on_by_new_names(_folder):
    return uses_new_names("tf32")
