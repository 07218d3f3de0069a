"""Copies numbers from a GPU without waiting: many at once, by one copy into pinned memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

# The most updates that share one copy.
EVERY = 8
MOST_HELD = 256
GPU = "cuda"
# What may be on the GPU.
COPIED = ("loss", "norm", "scale", "skipped")
MOST_NUMBERS = len(COPIED)
# In place of a loss scale: as that of the next update whose scale is known. A scaler changes its scale in place, and a
# copy of it for each update would cost more than all the rest.
AS_NEXT: Any = object()
# Returns the address of a GPU's current stream by one call, where the stream itself takes about ten.
_address_of: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)


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
        # Updates whose numbers are not sent yet. Added to directly: this runs in every update.
        self.held: list[Numbers] = []
        # Whether one of them is to have the loss scale that is in force when they are sent.
        self.wants_scale = False
        # The updates whose numbers are being copied; and for each number in the buffer, where it belongs.
        self.in_flight: list[Numbers] = []
        self._places: list[tuple[Numbers, str]] = []
        self._buffer: Any = None
        # The beginning of the buffer, by its length: there are few, and to make one takes longer than to keep it.
        self._parts: dict[int, Any] = {}
        self._event: Any = None
        # The device and address of the newest stream, and the stream.
        self._stream: tuple[Any, Any] = (None, None)

    @property
    def is_pending(self) -> bool:
        return bool(self.held or self.in_flight)

    def send(self, scale: Any = None) -> None:
        """Start the copy of all held numbers to the host, after the current work of the GPU.

        `scale`: the loss scale of the newest update, where it is still in force.
        """
        if self.in_flight:
            del self.held[:-MOST_HELD]
            return
        if not self.held:
            return
        device = self.held[-1].loss.device
        held, self.held = self.held, []
        if device.type != GPU:
            return
        if self.wants_scale:
            self.wants_scale = False
            # A newest update that was skipped has its own.
            if held[-1].scale is None or held[-1].scale is AS_NEXT:
                held[-1].scale = scale
        held = [each for each in held if each.loss.device == device]
        self._copy(torch.stack(self._gather(held, device)))
        self.in_flight = held

    def _gather(self, held: list[Numbers], device: Any) -> list[Any]:
        """Return the tensors of these updates on this device, and keep where the number of each belongs."""
        places: list[tuple[Numbers, str]] = []
        tensors = []
        # Without a call for each update or number: together they would cost more than the copy.
        for numbers in held:
            loss, norm, scale = numbers.loss, numbers.norm, numbers.scale
            is_plain = (scale is None or scale is AS_NEXT) and type(numbers.skipped) is bool
            if is_plain and norm is None and not (loss.ndim or loss.requires_grad):
                # As below: of most updates only the loss is on the GPU.
                tensors.append(loss)
                places.append((numbers, "loss"))
                continue
            for name in COPIED:
                value = getattr(numbers, name)
                if value is None or not isinstance(value, torch.Tensor):
                    continue
                if value.device != device or (value.ndim and value.numel() != 1):
                    setattr(numbers, name, None)
                    continue
                # Nearly all are plain already.
                tensors.append(value.detach().reshape(()) if value.ndim or value.requires_grad else value)
                places.append((numbers, name))
        self._places = places
        return tensors

    def _copy(self, numbers: Any) -> None:
        if self._buffer is None:
            self._buffer = torch.empty(MOST_NUMBERS * MOST_HELD, dtype=torch.float32, pin_memory=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        size = len(self._places)
        if size not in self._parts:
            self._parts[size] = self._buffer[:size]
        self._parts[size].copy_(numbers, non_blocking=True)
        self._event.record(self._current_stream(numbers.device))

    def _current_stream(self, device: Any) -> Any:
        """Return the stream whose work the copy comes after: mostly the one of the copy before."""
        if _address_of is None:
            return torch.cuda.current_stream(device)
        known = device.index, _address_of(device.index)
        if known != self._stream[0]:
            self._stream = known, torch.cuda.current_stream(device)
        return self._stream[1]

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
        scale = None
        for numbers in reversed(arrived):
            if numbers.scale is AS_NEXT:
                numbers.scale = scale
            elif numbers.scale is not None:
                scale = numbers.scale
        return arrived
