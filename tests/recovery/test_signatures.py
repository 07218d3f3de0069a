"""The messages: what tells of a fault, what only shows its words."""

import pytest

from jobs.fault import FaultKind
from recovery.messages import is_raised, search
from recovery.signatures import SIGNATURES, Role

K = FaultKind
MESSAGES = [
    (K.FP16_OVERFLOW, "RuntimeError: value cannot be converted to type at::Half without overflow"),
    (K.FP16_OVERFLOW, "RuntimeError: value cannot be converted to type c10::Half without overflow"),
    (K.FP16_OVERFLOW, "[rank3]: RuntimeError: value cannot be converted to type c10::BFloat16 without overflow"),
    (K.UNSCALE_ERROR, "ValueError: Attempting to unscale FP16 gradients."),
    (K.UNSCALE_ERROR, "RuntimeError: unscale_() has already been called on this optimizer since the last update()."),
    (K.UNSCALE_ERROR, "RuntimeError: unscale_() is being called after step()."),
    (K.UNSCALE_ERROR, "AssertionError: No inf checks were recorded for this optimizer."),
    (K.UNSCALE_ERROR, "RuntimeError: step() has already been called since the last update()."),
    (K.UNSCALE_ERROR, 'RuntimeError: "_amp_foreach_non_finite_check_and_unscale_cuda" not implemented'),
    (K.SCALE_COLLAPSE, "Exception: Current loss scale already at minimum - cannot decrease scale anymore."),
    (K.SCALE_COLLAPSE, "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding."),
    (K.NAN_LOSS, "ValueError: Training loss is nan"),
    (K.NAN_LOSS, "FloatingPointError: Loss became infinite or NaN at iteration=12!"),
    (K.NAN_LOSS, "RuntimeError: Function 'LogBackward0' returned nan values in its 0th output."),
    (K.NAN_LOSS, "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0"),
    (K.NAN_LOSS, "Batch 40: Invalid loss, terminating training"),
    (K.NAN_LOSS, "Loss is nan, stopping training"),
    (K.OOM, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
    (K.OOM, "RuntimeError: CUDA error: out of memory"),
    (K.OOM, "RuntimeError: [enforce fail at alloc_cpu.cpp:1] err == 0. DefaultCPUAllocator: can't allocate memory"),
    (K.OOM, "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 3.1 GiB for an array with shape (9, 9)"),
    (K.OOM, "[ 99.1] Out of memory: Killed process 77 (python) total-vm:9kB"),
    (K.IMAGE_ARCH, "RuntimeError: CUDA error: no kernel image is available for execution on the device"),
    (K.CUDA_FAULT, "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    (K.CUDA_FAULT, "NVRM: Xid (PCI:0000:01:00): 79, pid=1, GPU has fallen off the bus."),
    (K.CUDA_FAULT, "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`"),
    (K.COMM_FAULT, "[rank1]:[E1 ProcessGroupNCCL.cpp:6] Watchdog caught collective operation timeout: WorkNCCL("),
    (K.COMM_FAULT, "ncclSystemError: System call (e.g. socket, malloc) or external library call failed."),
    (K.COMM_FAULT, "RuntimeError: [/b/gloo/transport/tcp/unbound_buffer.cc:8] Timed out waiting 1800000ms for recv"),
    (K.COMM_FAULT, "[W socket.cpp:4] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98)."),
    (K.INFRA_FAULT, "OSError: [Errno 28] No space left on device"),
    (K.INFRA_FAULT, "OSError: [Errno 122] Disk quota exceeded"),
    (K.INFRA_FAULT, "RuntimeError: DataLoader worker (pid 42) is killed by signal: Bus error."),
    (K.INFRA_FAULT, "slurmstepd: error: *** JOB 7 ON node1 CANCELLED AT 2025-01-01T00:00:00 DUE TO TIME LIMIT ***"),
]  # fmt: skip
SHOWN = [
    '    raise ValueError("Attempting to unscale FP16 gradients.")',
    "print('RuntimeError: CUDA out of memory')",
    "# RuntimeError: value cannot be converted to type at::Half without overflow",
    "// CUDA out of memory",
    r'pattern: "value cannot be converted to type \S+ without overflow"',
    r"value cannot be converted to type \S+ without overflow",
    "rules: [{name: ours, pattern: CUDA out of memory, fault: oom}]",
    "Namespace(lr=0.1, note='No space left on device')",
    "Set the batch to 4 to avoid CUDA out of memory errors",
    "Large batches may cause CUDA out of memory",
    "node1:77:77 [0] NCCL INFO NET/Plugin: Failed to find ncclCollNetPlugin symbol.",
    "INFO: Running on CPU to avoid GPU OOM.",
    "UserWarning: Anomaly Detection has been enabled.",
    "grad_norm: nan",
]


def find(text):
    return search(text, text.lower())


@pytest.mark.parametrize(("fault", "text"), MESSAGES)
def test_a_message_names_its_fault(fault, text):
    assert find(text).signature.fault is fault
    assert text[find(text).start :]


@pytest.mark.parametrize("text", SHOWN)
def test_words_that_are_only_shown_are_no_fault(text):
    assert find(text) is None


def test_a_line_with_source_and_exception_counts_for_its_exception():
    message = "Attempting to unscale FP16 gradients."
    text = f'in _unscale_grads_ raise ValueError("{message}") ValueError: {message}'
    assert find(text).start > text.index(") ValueError")


def test_every_row_is_reachable_by_its_anchors_and_has_a_name_of_its_own():
    assert len({row.name for row in SIGNATURES}) == len(SIGNATURES)
    for row in SIGNATURES:
        assert all(anchor == anchor.lower() and len(anchor) > 2 for anchor in row.anchors), row.name
    named = {find(text).signature.name for _, text in MESSAGES}
    assert len(named) > 25


def test_what_follows_from_something_else_is_marked_so():
    for text in (
        "Killed",
        "RuntimeError: DataLoader worker (pid 42) exited unexpectedly",
        "RuntimeError: Pin memory thread exited unexpectedly",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "[rank2]: EOFError",
        "[rank0]: RuntimeError: [/b/gloo/transport/tcp/pair.cc:5] Connection closed by peer [127.0.0.1]:415",
    ):
        assert find(text).signature.role is Role.CASCADE


def test_an_exception_nobody_caught_is_told_from_one_that_was_logged():
    assert is_raised("torch.OutOfMemoryError: CUDA out of memory.")
    assert is_raised("[rank0]: RuntimeError: x")
    assert is_raised("Exception: x")
    assert is_raised("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 3.1 GiB")
    assert not is_raised("2025-01-01 WARNING - batch failed: RuntimeError: CUDA out of memory")
    assert not is_raised("    raise RuntimeError: x")
