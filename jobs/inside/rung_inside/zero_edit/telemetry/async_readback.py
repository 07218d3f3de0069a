"""Owns numbers on their way from a GPU: many at once, by one copy into pinned memory that nobody waits for."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

# Copies are at least this far apart, in seconds; updates that are quicker travel together.
APART = 0.02
FIRST = 32
MOST = 256


class Submitted(NamedTuple):
    """One update as it is sent."""

    step: int
    skipped: bool | None
    lr: float | None


class Received(NamedTuple):
    """One update as it is read; norm and scale of those that travelled together are known of the newest alone."""

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
        self._flying: list[Submitted] = []
        # Which numbers travel behind the losses.
        self._has_flags = self._has_norm = self._has_scale = False
        self._buffer: Any = None
        self._event: Any = None
        self._sent_at = 0.0
        self._sent = 0

    @property
    def waiting(self) -> bool:
        return bool(self._held or self._flying)

    def add(self, sent: Submitted, loss: Any, flag: Any) -> None:
        """Take one update: its loss, and the flag by which only the GPU knows whether it was skipped."""
        self._held.append((sent, loss, flag))
        if len(self._held) > MOST:
            del self._held[0]

    def should_send(self, now: float) -> bool:
        return not self._flying and (now - self._sent_at >= APART or self._sent < FIRST)

    def send(self, now: float, norm: Any, scale: Any) -> None:
        """Let all that is held travel to the host, behind what the GPU is doing."""
        if not self._held or self._flying:
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
        self._flying = [sent for sent, _, _ in held]
        self._sent_at = now
        self._sent += 1

    def _copy(self, numbers: Any) -> None:
        if self._buffer is None:
            self._buffer = torch.empty(2 * MOST + 2, dtype=torch.float32, pin_memory=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._buffer[: len(numbers)].copy_(numbers, non_blocking=True)
        self._event.record(torch.cuda.current_stream(numbers.device))

    def arrived(self) -> bool:
        return bool(self._flying) and bool(self._event.query())

    def wait(self) -> None:
        if self._flying:
            self._event.synchronize()

    def take(self) -> list[Received]:
        """Return the updates that have arrived, the oldest first."""
        flying, self._flying = self._flying, []
        if not flying:
            return []
        count = len(flying)
        values = iter(self._buffer[: 2 * count + 2].tolist())
        losses = [next(values) for _ in flying]
        skips = [bool(next(values)) if self._has_flags else sent.skipped for sent in flying]
        norm = next(values) if self._has_norm else None
        scale = next(values) if self._has_scale else None
        seen = [
            Received(sent.step, losses[index], sent.lr, None, None, skips[index], False)
            for index, sent in enumerate(flying)
        ]
        seen[-1] = seen[-1]._replace(norm=norm, scale=scale, is_last=True)
        return seen


def _usable(value: Any, device: Any) -> Any:
    """Return a tensor of one number on this device, or None."""
    if isinstance(value, torch.Tensor) and value.device == device and value.numel() == 1:
        return value.detach().reshape(())
    return None
