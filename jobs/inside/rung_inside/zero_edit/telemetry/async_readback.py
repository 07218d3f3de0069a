"""Copies numbers from a GPU without waiting: many at once, by one copy into pinned memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

# The most updates that share one copy.
EVERY = 8
# Updates that are reported share one too, but only so many: a fault is to be seen soon.
REPORTED = 4
MOST_HELD = 256
GPU = "cuda"
# Loss, flag, norm and scale.
MOST_NUMBERS = 4
# Before these, the step and its source, which are no tensors.
FIRST_NUMBER = 2


class Numbers(NamedTuple):
    """The numbers of one update, on the host or as tensors on a GPU."""

    step: int
    # The optimizer that made it (courses.Source).
    source: Any
    loss: Any
    lr: float | None
    norm: Any
    scale: Any
    skipped: Any


class AsyncReadback:
    """Holds the numbers of the latest updates on the GPU, and reads them together."""

    def __init__(self) -> None:
        self._held: list[Numbers] = []
        self._in_flight: list[list[Any]] = []
        # How many numbers of those in flight are in the buffer.
        self._copied = 0
        self._buffer: Any = None
        self._event: Any = None

    @property
    def is_pending(self) -> bool:
        return bool(self._held or self._in_flight)

    def add(self, numbers: Numbers) -> int:
        """Add one update, and return how many are held; `skipped` may be a flag on the GPU."""
        self._held.append(numbers)
        if len(self._held) > MOST_HELD:
            del self._held[0]
        return len(self._held)

    def send(self) -> None:
        """Start the copy of all held numbers to the host, after the current work of the GPU."""
        if not self._held or self._in_flight:
            return
        device = self._held[-1].loss.device
        held, self._held = self._held, []
        if device.type != GPU:
            return
        tensors: list[Any] = []
        marked = [_marked(each, device, tensors) for each in held if each.loss.device == device]
        self._copy(torch.stack(tensors))
        self._in_flight, self._copied = marked, len(tensors)

    def _copy(self, numbers: Any) -> None:
        if self._buffer is None:
            self._buffer = torch.empty(MOST_NUMBERS * MOST_HELD, dtype=torch.float32, pin_memory=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._buffer[: len(numbers)].copy_(numbers, non_blocking=True)
        self._event.record(torch.cuda.current_stream(numbers.device))

    def arrived(self) -> bool:
        return bool(self._in_flight) and bool(self._event.query())

    def wait(self) -> None:
        if self._in_flight:
            self._event.synchronize()

    def take(self) -> list[Numbers]:
        """Return the updates that have arrived, oldest first, with numbers of the host."""
        in_flight, self._in_flight = self._in_flight, []
        if not in_flight:
            return []
        values = iter(self._buffer[: self._copied].tolist())
        return [_on_host(each, values) for each in in_flight]


# Stands for a number that is in the buffer.
_COPIED = object()


def _marked(numbers: Numbers, device: Any, tensors: list[Any]) -> list[Any]:
    """Return the numbers with a mark in place of those that are copied, which are added to `tensors`."""
    values = list(numbers)
    for index in range(FIRST_NUMBER, len(values)):
        value = values[index]
        if isinstance(value, torch.Tensor) and value.device == device and value.numel() == 1:
            # Nearly all are plain already, and two calls of torch for each of them were half of the work here.
            is_plain = value.dim() == 0 and not value.requires_grad
            tensors.append(value if is_plain else value.detach().reshape(()))
            values[index] = _COPIED
    return values


def _on_host(values: list[Any], copied: Iterator[float]) -> Numbers:
    """Return the numbers with those that were copied, and without those that are still on a GPU."""
    for index in range(FIRST_NUMBER, len(values)):
        value = values[index]
        if value is _COPIED:
            values[index] = next(copied)
        elif isinstance(value, torch.Tensor):
            values[index] = None
    if values[-1] is not None:
        values[-1] = bool(values[-1])
    return Numbers(*values)
