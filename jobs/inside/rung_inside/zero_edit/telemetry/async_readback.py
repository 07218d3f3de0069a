"""Copies numbers from a GPU without waiting: many at once, by one copy into pinned memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

# The most updates that share one copy.
EVERY = 8
# Updates that are reported share one too, but only so many: a fault is to be seen soon.
REPORTED = 4
MOST_HELD = 256
GPU = "cuda"
# What may be on the GPU.
COPIED = ("loss", "norm", "scale", "skipped")
MOST_NUMBERS = len(COPIED)


@dataclass
class Numbers:
    """The numbers of one update: on the host, or tensors on a GPU in whose place the numbers are put when they come."""

    __slots__ = ("loss", "lr", "norm", "scale", "skipped", "source", "step")

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
        # The updates whose numbers are being copied; and for each number in the buffer, where it belongs.
        self.in_flight: list[Numbers] = []
        self._places: list[tuple[Numbers, str]] = []
        self._buffer: Any = None
        self._event: Any = None

    @property
    def is_pending(self) -> bool:
        return bool(self._held or self.in_flight)

    def add(self, numbers: Numbers) -> int:
        """Add one update, and return how many are held; `skipped` may be a flag on the GPU."""
        self._held.append(numbers)
        if len(self._held) > MOST_HELD:
            del self._held[0]
        return len(self._held)

    def send(self) -> None:
        """Start the copy of all held numbers to the host, after the current work of the GPU."""
        if not self._held or self.in_flight:
            return
        device = self._held[-1].loss.device
        held, self._held = self._held, []
        if device.type != GPU:
            return
        held = [each for each in held if each.loss.device == device]
        self._places, tensors = [], []
        # Without a call for each update or number: together they would cost more than the copy.
        for numbers in held:
            for name in COPIED:
                value = getattr(numbers, name)
                if value is None or not isinstance(value, torch.Tensor):
                    continue
                if value.device != device or (value.ndim and value.numel() != 1):
                    setattr(numbers, name, None)
                    continue
                # Nearly all are plain already.
                tensors.append(value.detach().reshape(()) if value.ndim or value.requires_grad else value)
                self._places.append((numbers, name))
        self._copy(torch.stack(tensors))
        self.in_flight = held

    def _copy(self, numbers: Any) -> None:
        if self._buffer is None:
            self._buffer = torch.empty(MOST_NUMBERS * MOST_HELD, dtype=torch.float32, pin_memory=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._buffer[: len(self._places)].copy_(numbers, non_blocking=True)
        self._event.record(torch.cuda.current_stream(numbers.device))

    def arrived(self) -> bool:
        return bool(self.in_flight) and bool(self._event.query())

    def wait(self) -> None:
        if self.in_flight:
            self._event.synchronize()

    def take(self) -> list[Numbers]:
        """Return the updates that have arrived, oldest first, with numbers of the host."""
        arrived, self.in_flight = self.in_flight, []
        if not arrived:
            return []
        values = iter(self._buffer[: len(self._places)].tolist())
        for numbers, name in self._places:
            value = next(values)
            setattr(numbers, name, bool(value) if name == "skipped" else value)
        return arrived
