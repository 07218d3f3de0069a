"""Tests which faults speak against the machine, which against the script, and which leave it open."""

from __future__ import annotations

import pytest

from rung.jobs.model.fault import Fault, FaultKind
from rung.recovery.nodes.blame import Blame, blame

CUDA, COMM, INFRA = FaultKind.CUDA_FAULT, FaultKind.COMM_FAULT, FaultKind.INFRA_FAULT


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "torch.AcceleratorError: CUDA error: uncorrectable NVLink error detected during the execution",
        "[ 812.1] NVRM: Xid (PCI:0000:3b:00): 79, pid=812, GPU has fallen off the bus.",
        "nvidia-smi: Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.",
        "Failed to initialize NVML: Driver/library version mismatch",
        "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
        "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment",
        "RuntimeError: CUDA error: unknown error",
        "CUDA driver error: CUDA_ERROR_ECC_UNCORRECTABLE",
        "cudaErrorSystemNotReady: system not yet initialized",
        "cudaErrorHardwareStackError",
    ],
)
def test_a_line_that_names_the_hardware_or_its_driver_is_the_machines(line: str) -> None:
    assert blame(Fault(CUDA, line)) is Blame.MACHINE


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: CUDA error: device-side assert triggered",
        "cudaErrorDeviceSideAssert",
        "../aten/src/ATen/native/cuda/Loss.cu:250: nll_loss: block: [0], thread: [3] Assertion `t >= 0` failed.",
        "RuntimeError: CUDA error: invalid device ordinal",
        "RuntimeError: CUDA error: invalid configuration argument",
        "RuntimeError: CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm`",
        "RuntimeError: CUDA error: operation not supported",
    ],
)
def test_a_line_that_names_what_the_script_asked_for_is_the_scripts(line: str) -> None:
    assert blame(Fault(CUDA, line)) is Blame.SCRIPT


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: CUDA error: unspecified launch failure",
        "RuntimeError: CUDA error: misaligned address",
        "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`",
        "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
        "RuntimeError: No CUDA GPUs are available",
    ],
)
def test_other_faults_of_cuda_leave_it_open(line: str) -> None:
    assert blame(Fault(CUDA, line)) is Blame.OPEN


def test_other_kinds_count_only_with_a_line_that_names_the_hardware() -> None:
    assert blame(Fault(COMM, "NCCL WARN Cuda failure 'uncorrectable ECC error encountered'")) is Blame.MACHINE
    assert blame(Fault(INFRA, "NVRM: Xid (PCI:0000:3b:00): 48, double bit ECC")) is Blame.MACHINE
    assert blame(Fault(COMM, "Watchdog caught collective operation timeout")) is None
    assert blame(Fault(INFRA, "OSError: [Errno 28] No space left on device")) is None
    assert blame(Fault(FaultKind.NAN_LOSS, "loss nan after an uncorrectable mistake")) is None
    assert blame(None) is None
