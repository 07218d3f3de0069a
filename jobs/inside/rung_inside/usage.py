"""Measures a run: time from update to update, peak memory, the GPU. Writes one record at the end.

Only with RUNG_USAGE set, as in the two runs of a validation. A hook after each update of an optimizer takes the time;
nothing waits for the GPU, and the script runs unchanged.
"""

from __future__ import annotations

import atexit
import importlib
import resource
import sys
import time
from typing import Any

from rung_inside.contract import records

# The first updates compile, allocate and choose kernels.
WARM_UP = 10


class Stopwatch:
    """Takes the time of each update."""

    def __init__(self) -> None:
        self.updates = 0
        self._first_at = self._warm_at = self._last_at = 0.0

    def update(self, *_: Any) -> None:
        self.updates += 1
        self._last_at = time.perf_counter()
        if self.updates == 1:
            self._first_at = self._last_at
        if self.updates == WARM_UP + 1:
            self._warm_at = self._last_at

    def seconds_per_step(self) -> float | None:
        """Return the mean time from update to update, without the first ones if there are enough others."""
        if self.updates > 2 * WARM_UP:
            return (self._last_at - self._warm_at) / (self.updates - WARM_UP - 1)
        return (self._last_at - self._first_at) / (self.updates - 1) if self.updates > 1 else None


def start() -> None:
    """Wait for the script to import torch."""
    from rung_inside.patching import on_import

    on_import.when_imported("torch", _watch)


def _watch(torch: Any) -> None:
    stopwatch = Stopwatch()
    # By its full name: torch.optim removes the attribute.
    importlib.import_module("torch.optim.optimizer").register_optimizer_step_post_hook(stopwatch.update)
    atexit.register(_report, stopwatch, torch)


def _report(stopwatch: Stopwatch, torch: Any) -> None:
    # After an error the error must be the last line. A process without updates did not train.
    if stopwatch.updates == 0 or hasattr(sys, "last_type"):
        return
    seconds = stopwatch.seconds_per_step()
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    values = {"updates": stopwatch.updates, "seconds_per_step": seconds and records.short(seconds), "rss_bytes": rss}
    records.emit("usage", **values, **_gpu(torch))


def _gpu(torch: Any) -> dict[str, Any]:
    cuda = torch.cuda
    if not cuda.is_available() or not cuda.is_initialized():
        return {}
    devices = range(cuda.device_count())
    used = [device for device in devices if cuda.max_memory_allocated(device)]
    if not used:
        return {}
    capability = "%d.%d" % cuda.get_device_capability(used[0])
    peak = sum(cuda.max_memory_allocated(device) for device in used)
    return {"gpu_bytes": peak, "gpu": cuda.get_device_name(used[0]), "capability": capability}
