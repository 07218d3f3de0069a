"""Measures, on the step that failed, whether a training in FP32 would fit the memory of the GPU.

At the end of its forward pass a training needs what it always uses (parameters, the state of the optimizer), and what
the pass keeps for its backward pass. Under AMP only the second grows with the precision. It is counted in a pass in
FP32 that keeps nothing. This is the least that is needed: gradients and the work space of kernels come on top.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from rung_inside.numerics.nested_tensors import tensors_in
from rung_inside.zero_edit.replay import rerun_forward

GIB = 2**30


class Memory(NamedTuple):
    """Bytes of one GPU: the most that the run has used, what it uses without gradients, and the most it can get."""

    peak: int
    used: int
    limit: int


def read(call: Any) -> Memory | None:
    """Return the memory of a GPU as it is before a replay, which uses some itself; None on the CPU."""
    device, cuda = call.device, torch.cuda
    # Tensors have had it since torch 2.0.
    if device.type != "cuda" or not hasattr(torch.Tensor, "untyped_storage"):
        return None
    gradients = [each.grad for each in call.module.parameters() if each.grad is not None]
    used = cuda.memory_allocated(device) - sum(each.numel() * each.element_size() for each in gradients)
    free, _ = cuda.mem_get_info(device)
    return Memory(cuda.max_memory_allocated(device), used, free + cuda.memory_reserved(device))


def of_fp32(call: Any, before: Memory) -> dict[str, str]:
    """Return whether FP32 fits, what it needs at least and the limit, as fields of a record; empty if not known."""
    try:
        narrow, wide = kept(call, wide=False), kept(call, wide=True)
    except Exception as error:
        if not ran_out(error):
            raise
        return {}
    finally:
        give_back(call.device)
    # An exception keeps alive what the failed pass has kept so far; the peak has it too.
    needed = min(before.used, before.peak - narrow) + wide
    return {"fits": "yes" if needed <= before.limit else "no", "needs": _gib(needed), "limit": _gib(before.limit)}


def kept(call: Any, *, wide: bool) -> int:
    """Return how many bytes a forward pass keeps for its backward pass, up to where it fails as in the script."""
    counter = _Counter(call)
    hooks = torch.autograd.graph.saved_tensors_hooks(counter.add, _never_used)
    with rerun_forward.preserved_state(call.device), hooks:
        try:
            rerun_forward.forward(call, wide=wide, grads=True)
        except Exception:
            if wide:
                raise
    return counter.size


class _Counter:
    """Counts the memory of the tensors that are saved, each memory once, and without the model and its inputs."""

    def __init__(self, call: Any) -> None:
        self.size = 0
        self._device = call.device
        # A weak reference to a freed memory keeps its identity from being used again.
        self._seen: set[StorageWeakRef] = set()
        for tensor in (*call.module.parameters(), *call.module.buffers(), *tensors_in([call.args, call.kwargs])):
            self.add(tensor)
        self.size = 0

    def add(self, tensor: torch.Tensor) -> None:
        if tensor.device != self._device or tensor.layout != torch.strided:
            return
        storage = tensor.untyped_storage()
        seen = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        if seen not in self._seen:
            self._seen.add(seen)
            self.size += storage.nbytes()


def _never_used(_saved: Any) -> Any:
    raise RuntimeError("a pass that is only measured has no backward pass")


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
