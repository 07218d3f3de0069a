"""Lets the numbers of a training on the CPU go the way of those on a GPU."""

import operator
from types import SimpleNamespace

import torch

# How many copies have been made.
copies = [0]


def read_as_from_a_gpu():
    """Copy the numbers as from a GPU; only the pinned memory is plain, and has arrived at once."""
    from rung_inside.zero_edit import run_state
    from rung_inside.zero_edit.telemetry import async_readback

    def copy(readback, numbers):
        copies[0] += 1
        if readback._buffer is None:
            readback._buffer = torch.empty(async_readback.MOST_NUMBERS * async_readback.MOST_HELD)
            readback._event = SimpleNamespace(query=lambda: True, synchronize=lambda: None)
        readback._buffer[: len(numbers)].copy_(numbers)

    # A tensor of the CPU is not on a GPU, so none of them is read at once.
    run_state.is_on_host = operator.attrgetter("is_cuda")
    async_readback.GPU, async_readback.AsyncReadback._copy = "cpu", copy
