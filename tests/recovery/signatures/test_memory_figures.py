"""Tests what an out-of-memory message says about the memory needed, and which batches it rules out."""

from __future__ import annotations

import pytest

from rung.recovery.signatures.memory_figures import MemoryFigures, read_memory_figures

GIB = 2**30
TORCH_2 = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {} GiB. GPU 0 has a total capacity of 24.00 GiB of "
    "which 1.00 GiB is free. Including non-PyTorch memory, this process has 22.50 GiB memory in use. Of the allocated "
    "memory 20.00 GiB is allocated by PyTorch, and 1.50 GiB is reserved by PyTorch but unallocated."
)
TORCH_1 = (
    "RuntimeError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 10.50 GiB total capacity; 9.00 GiB already "
    "allocated; 256.00 MiB free; 9.50 GiB reserved in total by PyTorch)"
)
POOLS = TORCH_2.replace(
    "by PyTorch, and", "by PyTorch, with 64.00 MiB allocated in private pools (e.g., CUDA Graphs), and"
)
ALLOWED = TORCH_2.replace("memory in use. Of", "memory in use. 21.00 GiB allowed; Of")
CPU = (
    "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried "
    "to allocate 2147483648 bytes. Error code 12 (Cannot allocate memory)"
)
NUMPY = "_ArrayMemoryError: Unable to allocate 4.00 GiB for an array with shape (32768, 32768) and data type float32"
CAPACITY = "CUDA out of memory. Tried to allocate 40.00 GiB. GPU 0 has a total capacity of 24.00 GiB."


@pytest.mark.parametrize(
    ("message", "needed", "available"),
    [
        (TORCH_2.format("2.00"), 22 * GIB, 22.5 * GIB),
        (POOLS.format("2.00"), 22 * GIB, 22.5 * GIB),
        (ALLOWED.format("2.00"), 22 * GIB, 21 * GIB),
        (TORCH_1, 9.5 * GIB, 9.75 * GIB),
        (CAPACITY, 40 * GIB, 24 * GIB),
        (CPU, 2 * GIB, GIB),
        (NUMPY, 4 * GIB, GIB),
    ],
)
def test_the_figures_of_a_message_are_read(message: str, needed: float, available: float) -> None:
    assert read_memory_figures(message, GIB) == MemoryFigures(int(needed), int(available))


@pytest.mark.parametrize(
    "message",
    [
        "RuntimeError: CUDA out of memory.",
        "CUDA out of memory. Tried to allocate 2.00 GiB.",
        "CUDA out of memory. Tried to allocate 0 bytes. GPU 0 has a total capacity of 24.00 GiB.",
        "CUDA out of memory. Tried to allocate 2.0.0 GiB. GPU 0 has a total capacity of 24.00 GiB.",
        "rung: the kernel killed a process: out of memory",
        "",
    ],
)
def test_a_message_with_too_few_figures_rules_out_nothing(message: str) -> None:
    assert read_memory_figures(message, GIB) is None


def test_host_memory_without_a_limit_rules_out_nothing() -> None:
    assert read_memory_figures(CPU, None) is None


@pytest.mark.parametrize(
    ("needed", "available", "batch", "largest"),
    [(20, 10, 24, 11), (30, 10, 24, 7), (22, 24, 24, 26), (10, 10, 24, 23), (2000, 10, 24, 0)],
)
def test_a_batch_whose_share_alone_is_too_large_cannot_fit(
    needed: int, available: int, batch: int, largest: int
) -> None:
    assert MemoryFigures(needed, available).largest_batch(batch) == largest
