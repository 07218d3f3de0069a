"""Tells whether a fault speaks against the machine it came on, against the script, or leaves that open."""

from __future__ import annotations

import re
from enum import StrEnum

from rung.jobs.model.fault import Fault, FaultKind

# A collective or a data loader that fails quotes the error of the GPU now and then.
OF_MACHINES = frozenset({FaultKind.CUDA_FAULT, FaultKind.COMM_FAULT, FaultKind.INFRA_FAULT})
# Lines that name the hardware or its driver. A script cannot bring them about.
HARDWARE = re.compile(
    r"\bS?Xid\b|\bNVRM:|uncorrectable|double.bit|NVLink error|(?:fallen|fell) off the bus|GPU is lost"
    r"|Failed to initialize NVML|NVIDIA-SMI has failed|Unable to determine the device handle"
    r"|Driver/library version mismatch|No devices were found|hardware.?stack.?error|busy or unavailable"
    r"|Devices.?Unavailable|CUDA (?:error: )?unknown error|CUDA_ERROR_UNKNOWN|System.?Not.?Ready"
    r"|system not yet initialized",
    re.IGNORECASE,
)
# Lines that name what the script asked for. Another GPU would say the same.
OF_SCRIPTS = re.compile(
    r"device.side.assert|DeviceSideAssert|Assertion `|invalid (?:argument|configuration|device|resource)"
    r"|Invalid(?:Value|Configuration|Device|ResourceHandle)|INVALID_(?:VALUE|DEVICE|HANDLE)|not supported"
    r"|NOT_SUPPORTED|NotSupported|PTX codegen|only supported with GPUs"
)


class Blame(StrEnum):
    MACHINE = "machine"
    # An illegal memory access, an error of cuBLAS: the GPU or the script, and the line does not say which.
    OPEN = "open"
    SCRIPT = "script"


def blame(fault: Fault | None) -> Blame | None:
    """Return what a fault speaks against; None: it says nothing about the machine."""
    if fault is None or fault.kind not in OF_MACHINES:
        return None
    if HARDWARE.search(fault.evidence):
        return Blame.MACHINE
    if fault.kind is not FaultKind.CUDA_FAULT:
        return None
    return Blame.SCRIPT if OF_SCRIPTS.search(fault.evidence) else Blame.OPEN
