"""Measures, on the step that failed, whether a training in FP32 would fit the memory of the GPU.

Only what a forward pass keeps for its backward pass grows with the precision; parameters, gradients and the state of
the optimizer are in FP32 under AMP too. So the peak in FP32 is the peak of the run so far, less what one pass keeps as
the script computes it, plus what the same pass keeps in FP32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from rung_inside.zero_edit.replay import rerun_forward

GIB = 2**30


class Memory(NamedTuple):
    """Bytes of one GPU: the most that the run has used, what it uses now, and the most that this process can get."""

    peak: int
    used: int
    limit: int


def read(device: Any) -> Memory | None:
    """Return the memory of a GPU as it is before a replay, which uses some itself; None on the CPU."""
    if device.type != "cuda":
        return None
    cuda = torch.cuda
    free, _ = cuda.mem_get_info(device)
    return Memory(cuda.max_memory_allocated(device), cuda.memory_allocated(device), free + cuda.memory_reserved(device))


def of_fp32(call: Any, before: Memory) -> dict[str, str]:
    """Return whether FP32 fits, what it needs at least and the limit, as fields of a record; empty if not known."""
    try:
        narrow, wide = _kept(call, wide=False), _kept(call, wide=True)
    finally:
        give_back(call.device)
    if narrow is None:
        return {}
    # A pass that ran out would have kept more than what was left.
    needed = before.peak - narrow + (wide if wide is not None else max(0, before.limit - before.used))
    if wide is None and needed < before.limit:
        # It shows nothing: gradients were in its way that are not there during a forward pass of the script.
        return {}
    fits = wide is not None and needed <= before.limit
    return {"fits": "yes" if fits else "no", "needs": _gib(needed), "limit": _gib(before.limit)}


def _kept(call: Any, *, wide: bool) -> int | None:
    """Return the bytes that a forward pass keeps for its backward pass; None if the memory is too small for them."""
    before = torch.cuda.memory_allocated(call.device)
    try:
        with rerun_forward.preserved_state(call.device):
            kept = rerun_forward.forward(call, wide=wide, grads=True)
            after = torch.cuda.memory_allocated(call.device)
            del kept
    except Exception as error:
        if not ran_out(error):
            raise
        return None
    return max(0, int(after - before))


def ran_out(error: BaseException) -> bool:
    """Return whether an exception says that the memory was too small."""
    text = str(error)
    return type(error).__name__ == "OutOfMemoryError" or "out of memory" in text or "ALLOC_FAILED" in text


def give_back(device: Any) -> None:
    """Return the memory that a replay no longer uses to the GPU: other processes may need it."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}GiB"
