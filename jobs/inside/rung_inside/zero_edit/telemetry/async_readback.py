"""Copies numbers from a GPU without waiting: many at once, by one copy into pinned memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

# Faster updates share one copy.
MIN_SECONDS_APART = 0.02
FIRST_COPIES = 32
MOST_HELD = 256


class Submitted(NamedTuple):
    """One update as it is submitted."""

    step: int
    skipped: bool | None
    lr: float | None


class Received(NamedTuple):
    """One update as it is received; of those in one copy only the newest has norm and scale."""

    step: int
    loss: float | None
    lr: float | None
    norm: float | None
    scale: float | None
    skipped: bool | None
    is_last: bool


class AsyncReadback:
    """Holds the losses of the latest updates on the GPU, and reads them together."""

    def __init__(self) -> None:
        self._held: list[tuple[Submitted, Any, Any]] = []
        self._in_flight: list[Submitted] = []
        # Which numbers follow the losses in the buffer.
        self._has_flags = self._has_norm = self._has_scale = False
        self._buffer: Any = None
        self._event: Any = None
        self._sent_at = 0.0
        self._sent = 0

    @property
    def is_pending(self) -> bool:
        return bool(self._held or self._in_flight)

    def add(self, submitted: Submitted, loss: Any, flag: Any) -> None:
        """Add one update: its loss, and the flag on the GPU for whether it was skipped."""
        self._held.append((submitted, loss, flag))
        if len(self._held) > MOST_HELD:
            del self._held[0]

    def should_send(self, now: float) -> bool:
        return not self._in_flight and (now - self._sent_at >= MIN_SECONDS_APART or self._sent < FIRST_COPIES)

    def send(self, now: float, norm: Any, scale: Any) -> None:
        """Start the copy of all held numbers to the host, after the current work of the GPU."""
        if not self._held or self._in_flight:
            return
        device = self._held[-1][1].device
        held, self._held = [each for each in self._held if each[1].device == device], []
        if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            return
        numbers = [loss.reshape(()) for _, loss, _ in held]
        flags = [_usable(flag, device) for _, _, flag in held]
        norm, scale = _usable(norm, device), _usable(scale, device)
        self._has_flags = None not in flags
        self._has_norm, self._has_scale = norm is not None, scale is not None
        numbers += flags if self._has_flags else []
        self._copy(torch.stack([*numbers, *(each for each in (norm, scale) if each is not None)]))
        self._in_flight = [submitted for submitted, _, _ in held]
        self._sent_at = now
        self._sent += 1

    def _copy(self, numbers: Any) -> None:
        if self._buffer is None:
            self._buffer = torch.empty(2 * MOST_HELD + 2, dtype=torch.float32, pin_memory=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._buffer[: len(numbers)].copy_(numbers, non_blocking=True)
        self._event.record(torch.cuda.current_stream(numbers.device))

    def arrived(self) -> bool:
        return bool(self._in_flight) and bool(self._event.query())

    def wait(self) -> None:
        if self._in_flight:
            self._event.synchronize()

    def take(self) -> list[Received]:
        """Return the updates that have arrived, oldest first."""
        in_flight, self._in_flight = self._in_flight, []
        if not in_flight:
            return []
        count = len(in_flight)
        values = iter(self._buffer[: 2 * count + 2].tolist())
        losses = [next(values) for _ in in_flight]
        skips = [bool(next(values)) if self._has_flags else submitted.skipped for submitted in in_flight]
        norm = next(values) if self._has_norm else None
        scale = next(values) if self._has_scale else None
        received = [
            Received(submitted.step, losses[index], submitted.lr, None, None, skips[index], False)
            for index, submitted in enumerate(in_flight)
        ]
        received[-1] = received[-1]._replace(norm=norm, scale=scale, is_last=True)
        return received


def _usable(value: Any, device: Any) -> Any:
    """Return a tensor of one number on this device, or None."""
    if isinstance(value, torch.Tensor) and value.device == device and value.numel() == 1:
        return value.detach().reshape(())
    return None
