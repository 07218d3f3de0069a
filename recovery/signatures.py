"""Owns the messages that tell of a fault, as rows of data. Nothing here decides; messages.py searches through them.

Each row: name, fault, anchors, pattern, role. An anchor is a piece of every such message in lower case, several are
separated by "|"; a line without any of a row's anchors never meets its pattern. How to add one: docs/adding-a-fault.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from jobs.fault import FaultKind


class Role(StrEnum):
    ROOT = "root"  # the cause itself
    HINT = "hint"  # one bad value, told in words: counts like one NaN in the loss
    NOTICE = "notice"  # a warning that explains the end, if the end comes
    CASCADE = "cascade"  # follows from something else; counts when nothing else is known


@dataclass(frozen=True)
class Signature:
    name: str
    fault: FaultKind
    role: Role
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]


def _row(name: str, fault: FaultKind, anchors: str, pattern: str, role: Role = Role.ROOT) -> Signature:
    return Signature(name, fault, role, tuple(anchors.split("|")), re.compile(pattern, re.IGNORECASE))


_K = FaultKind
_BAD = r"(?:nan|inf|infinite|infinity|non-?finite)"
_BAD_LOSS = "nan loss|inf loss|finite loss"

SIGNATURES: tuple[Signature, ...] = (
    # torch <= 2.9 says at::Half, later c10::Half; there is a BFloat16 variant, and quotes that lose the tail.
    _row(
        "half conversion",
        _K.FP16_OVERFLOW,
        "cannot be converted",
        r"value cannot be converted to type (?:\S+ without overflow|(?:at|c10)::(?:Half|BFloat16))",
    ),
    _row("unscale FP16", _K.UNSCALE_ERROR, "unscale", r"Attempting to unscale (?:FP16|BF16|half) gradients"),
    _row("unscale twice", _K.UNSCALE_ERROR, "unscale", r"unscale_\(\) has already been called on this optimizer"),
    _row("unscale late", _K.UNSCALE_ERROR, "unscale", r"unscale_\(\) is being called after step\(\)"),
    _row("unscale dtype", _K.UNSCALE_ERROR, "unscale", r'"_amp_(?:foreach_)?non_finite_check_and_unscale_\w*"'),
    _row("no inf checks", _K.UNSCALE_ERROR, "inf checks", r"No inf checks were recorded (?:for this optimizer|prior)"),
    _row("step twice", _K.UNSCALE_ERROR, "since the last update", r"step\(\) has already been called since the last"),
    _row("floor", _K.SCALE_COLLAPSE, "minimum", r"loss scale already at minimum|Minimum loss scale reached"),
    # nan_loss, raised: anomaly mode, Megatron, sampling, distributions, transformers' hook, Keras, TensorFlow, scripts.
    _row("anomaly mode", _K.NAN_LOSS, "returned nan", r"Function '\w+' returned nan values in its \d+\w* output"),
    _row("Megatron", _K.NAN_LOSS, "in local ", r"found (?:NaN|Inf) in local (?:forward loss|grad norm)"),
    _row("sampling", _K.NAN_LOSS, "probability tensor", r"probability tensor contains either \W?inf\W{1,4}nan\W? or"),
    _row("distribution", _K.NAN_LOSS, "invalid values", r"satisfy the constraint .{1,200}but found invalid values"),
    _row("overflow hook", _K.NAN_LOSS, "inf/nan during", r"Detected inf/nan during batch_number="),
    _row("Keras", _K.NAN_LOSS, "invalid loss", r"Invalid loss, terminating training"),
    _row("TensorFlow", _K.NAN_LOSS, "nan loss", r"NaN loss during training"),
    _row(
        "loss is nan",
        _K.NAN_LOSS,
        "loss is|loss became|loss turned|loss has become|loss returned",
        rf"\bloss (?:is|became|turned|has become|returned .{{0,40}} is) (?:now )?{_BAD}\b",
    ),
    _row("loss ends it", _K.NAN_LOSS, _BAD_LOSS, rf"\b{_BAD} loss(?:es)?\b,? (?:ending|stopping|abort|terminat)"),
    _row("diverged", _K.NAN_LOSS, "diverged with", rf"diverged with loss ?=? ?{_BAD}\b"),
    _row(
        "bad batch",
        _K.NAN_LOSS,
        f"{_BAD_LOSS}|detected|encountered|skipping",
        rf"\b{_BAD}(?:/{_BAD})?\b (?:training )?loss(?:es)?\b.{{0,20}}(?:detected|found|encountered|skipp|at )"
        rf"|\bloss\b.{{0,15}}\b{_BAD}\b.{{0,20}}(?:detected|found|encountered|skipp)",
        Role.HINT,
    ),
    # A scalar that still hangs on the graph and is not finite: somebody printed the loss itself.
    _row("printed scalar", _K.NAN_LOSS, "grad_fn", r"tensor\((?:nan|-?inf),[^()]{0,80}grad_fn=", Role.HINT),
    # oom stands before cuda_fault: it is a CUDA error too.
    _row("device", _K.OOM, "memory", r"\b(?:CUDA|HIP|MPS|XPU|NPU|cuda runtime error \(2\)).{0,30} out of memory"),
    _row("OutOfMemoryError", _K.OOM, "memory", r"\bOutOfMemoryError\b"),
    _row("CUDA code", _K.OOM, "cuda", r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"),
    _row("cuBLAS memory", _K.OOM, "_status_", r"CUBLAS_STATUS_ALLOC_FAILED"),
    _row(
        "CPU allocator",
        _K.OOM,
        "cpuallocator|cannot allocate",
        r"DefaultCPUAllocator: (?:can't|not enough)|Cannot allocate memory",
    ),
    _row(
        "array",
        _K.OOM,
        "to allocate|when allocating",
        r"Unable to allocate \S+ \S+ for an array|OOM when allocating tensor",
    ),
    _row("XLA", _K.OOM, "resource_exhausted", r"RESOURCE_EXHAUSTED: Out of memory"),
    _row("C++", _K.OOM, "bad_alloc", r"std::bad_alloc"),
    _row("MemoryError", _K.OOM, "memory", r"^\S{0,40}\bMemoryError\b"),
    _row("kernel", _K.OOM, "memory", r"Out of memory: Kill(?:ed)? process|Memory cgroup out of memory"),
    _row("oom killer", _K.OOM, "oom", r"\boom-kill:|\boom_reaper:|oom_kill event|oom-killer|Detected \d+ oom.kill"),
    # A plain SIGKILL from outside is memory in most cases, and nothing else is known.
    _row("killed", _K.OOM, "kill", r"^Killed$|: line \d+: +\d+ Killed\b|Signal 9 \(SIGKILL\) received", Role.CASCADE),
    _row("kernel image", _K.IMAGE_ARCH, "kernel image", r"no kernel image is available"),
    _row("capability", _K.IMAGE_ARCH, "not compatible", r"CUDA capability sm_\w+ is not compatible", Role.NOTICE),
    _row("Xid", _K.CUDA_FAULT, "nvrm", r"NVRM: (?:Xid\b|.{0,120}(?:fallen off the bus|needs to be reset))"),
    _row("ECC", _K.CUDA_FAULT, "ecc error", r"uncorrectable ECC error"),
    _row("NVML", _K.CUDA_FAULT, "fail", r"Failed to initialize NVML"),
    _row(
        "CUDA",
        _K.CUDA_FAULT,
        "cuda",
        r"\bCUDA (?:driver )?error: (?!out of memory|no kernel image)\w|CUDA_ERROR_(?!OUT_OF)[A-Z]|CUDA unknown error"
        r"|No CUDA GPUs are available",
    ),
    _row("kernel crash", _K.CUDA_FAULT, "memory|triggered", r"device-side assert trigg|illegal memory access was"),
    _row("cuBLAS", _K.CUDA_FAULT, "_status_", r"CUBLAS_STATUS_(?!ALLOC_FAILED|SUCCESS)[A-Z]"),
    _row("cuDNN", _K.CUDA_FAULT, "_status_", r"CUDNN_STATUS_(?!SUCCESS|NOT_SUPPORTED)[A-Z]"),
    _row("driver", _K.CUDA_FAULT, "nvidia driver", r"Found no NVIDIA driver on your system"),
    _row("watchdog", _K.COMM_FAULT, "collective operation", r"caught collective operation timeout"),
    _row(
        "NCCL",
        _K.COMM_FAULT,
        "nccl",
        r"\bNCCL error\b|\bnccl(?:System|Internal|Remote|UnhandledCuda|Invalid\w+)Error\b"
        r"|NCCL WARN .{0,80}(?:error|failed|timed? ?out|closed)|NCCL operations have failed or timed out",
    ),
    _row("process group", _K.COMM_FAULT, "process group", r"Timed out initializing process group"),
    _row("rendezvous", _K.COMM_FAULT, "fail", r"socket has failed to (?:bind|listen)|\[c10d\].{0,80}failed to connect"),
    _row("gloo", _K.COMM_FAULT, "gloo/", r"gloo/.{0,160}(?:Connection refused|Timed out)"),
    # The other rank went away, and says itself why if it could.
    _row("gloo peer", _K.COMM_FAULT, "gloo/", r"gloo/.{0,160}Connection (?:closed|reset)", Role.CASCADE),
    _row(
        "torch.distributed",
        _K.COMM_FAULT,
        "backenderror|networkerror|storeerror|rendezvous",
        r"\b(?:DistBackend|DistNetwork|DistStore|RendezvousTimeout|RendezvousConnection)Error\b",
        Role.CASCADE,
    ),
    _row("disk full", _K.INFRA_FAULT, "no space left", r"No space left on device"),
    _row("quota", _K.INFRA_FAULT, "quota", r"Disk quota exceeded"),
    _row(
        "file system", _K.INFRA_FAULT, "[errno ", r"\[Errno (?:5|30|116)\] (?:Input/output|Read-only file|Stale file)"
    ),
    _row("write", _K.INFRA_FAULT, "fail", r"PytorchStreamWriter failed|enforce fail at inline_cont"),
    _row(
        "shared memory",
        _K.INFRA_FAULT,
        "memory|bus error",
        r"insufficient shared memory|error encountered in worker",
    ),
    _row("Slurm", _K.INFRA_FAULT, "cancelled at", r"slurmstepd: error: \*{3} (?:JOB|STEP) .{0,80}CANCELLED AT"),
    _row("container", _K.INFRA_FAULT, "from daemon", r"Error response from daemon"),
    _row(
        "worker",
        _K.INFRA_FAULT,
        "dataloader worker|pin memory thread",
        r"worker .{0,60}(?:exited unexp|killed by signal)|Pin memory thread exited",
        Role.CASCADE,
    ),
    # A process at the other end of a pipe or socket is gone: a killed data worker often shows as nothing but this.
    _row(
        "other end",
        _K.INFRA_FAULT,
        "connectionreseterror|brokenpipeerror|eoferror",
        r"\b(?:ConnectionResetError|BrokenPipeError): \[Errno \d+\]|^(?:\[rank\d+\]: )?EOFError$",
        Role.CASCADE,
    ),
    _row(
        "link",
        _K.INFRA_FAULT,
        "disconnect|kex_exch",
        r"client_loop: send disconnect|kex_exchange_identif",
        Role.CASCADE,
    ),
)
