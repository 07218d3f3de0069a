"""Owns the measuring of what a run takes: time from update to update, peak memory, the GPU; one record at its end.

On only where RUNG_USAGE is set, as it is for the two runs of a validation. Whatever the script does goes on as without
it: a hook after each update of an optimizer takes the time, nothing waits for the GPU.
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
    """Takes the time of each update and forgets all but four numbers."""

    def __init__(self) -> None:
        self.updates = 0
        self._first_at = self._settled_at = self._last_at = 0.0

    def update(self, *_: Any) -> None:
        self.updates += 1
        self._last_at = time.perf_counter()
        if self.updates == 1:
            self._first_at = self._last_at
        if self.updates == WARM_UP + 1:
            self._settled_at = self._last_at

    def seconds_per_step(self) -> float | None:
        """Return the mean time from update to update, without the first ones where there are enough others."""
        if self.updates > 2 * WARM_UP:
            return (self._last_at - self._settled_at) / (self.updates - WARM_UP - 1)
        return (self._last_at - self._first_at) / (self.updates - 1) if self.updates > 1 else None


def start() -> None:
    """Wait for the script to import torch."""
    from rung_inside.patching import on_import

    on_import.when_imported("torch", _watch)


def _watch(torch: Any) -> None:
    stopwatch = Stopwatch()
    # By its full name: torch.optim takes the attribute away.
    importlib.import_module("torch.optim.optimizer").register_optimizer_step_post_hook(stopwatch.update)
    atexit.register(_tell, stopwatch, torch)


def _tell(stopwatch: Stopwatch, torch: Any) -> None:
    # After an error the last line is for the error; and a process that updated nothing did not train.
    if stopwatch.updates == 0 or hasattr(sys, "last_type"):
        return
    seconds = stopwatch.seconds_per_step()
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    told = {"updates": stopwatch.updates, "seconds_per_step": seconds and records.short(seconds), "rss_bytes": rss}
    records.emit("usage", **told, **_gpu(torch))


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
