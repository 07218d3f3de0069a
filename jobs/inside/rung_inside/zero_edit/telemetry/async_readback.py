"""Copies numbers from a GPU without waiting: many at once, by one copy into pinned memory."""

from __future__ import annotations

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
        self._in_flight: list[Numbers] = []
        self._buffer: Any = None
        self._event: Any = None

    @property
    def is_pending(self) -> bool:
        return bool(self._held or self._in_flight)

    def add(self, numbers: Numbers) -> None:
        """Add one update; `skipped` may be a flag on the GPU."""
        self._held.append(numbers)
        if len(self._held) > MOST_HELD:
            del self._held[0]

    @property
    def is_full(self) -> bool:
        """Return whether enough updates are held for a copy."""
        return len(self._held) >= EVERY

    @property
    def has_enough_to_report(self) -> bool:
        """Return whether enough updates are held for a copy, if the newest is one to report."""
        return len(self._held) >= REPORTED

    def send(self) -> None:
        """Start the copy of all held numbers to the host, after the current work of the GPU."""
        if not self._held or self._in_flight:
            return
        device = self._held[-1].loss.device
        held, self._held = [each for each in self._held if each.loss.device == device], []
        if device.type != GPU:
            return
        usable = [_usable(value, device) for each in held for value in each]
        self._copy(torch.stack([value for value in usable if value is not None]))
        self._in_flight = [_without_copied(each, device) for each in held]

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
        copied = sum(value is _COPIED for each in in_flight for value in each)
        values = iter(self._buffer[:copied].tolist())
        filled = [Numbers._make(next(values) if value is _COPIED else value for value in each) for each in in_flight]
        return [_on_host(each) for each in filled]


# Stands for a number that is in the buffer.
_COPIED = object()


def _usable(value: Any, device: Any) -> Any:
    """Return a tensor of one number on this device, or None."""
    if isinstance(value, torch.Tensor) and value.device == device and value.numel() == 1:
        return value.detach().reshape(())
    return None


def _without_copied(numbers: Numbers, device: Any) -> Numbers:
    """Return the numbers with a mark in place of those that are in the buffer."""
    return Numbers._make(value if _usable(value, device) is None else _COPIED for value in numbers)


def _on_host(numbers: Numbers) -> Numbers:
    """Return the numbers without those that are still on a GPU."""
    norm, scale, skipped = (None if isinstance(each, torch.Tensor) else each for each in numbers[4:])
    return numbers._replace(norm=norm, scale=scale, skipped=None if skipped is None else bool(skipped))
