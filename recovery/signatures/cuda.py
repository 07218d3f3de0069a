"""Messages about the GPU, its driver and libraries, and about an image without kernels for it."""

from __future__ import annotations

from rung.jobs.model.fault import FaultKind
from rung.recovery.signatures.signature import Role, row

_CUDA, _ARCH = FaultKind.CUDA_FAULT, FaultKind.IMAGE_ARCH
# A kernel has checked its numbers: the words of its own line, and those of the exception that follows.
DEVICE_ASSERTION, ASSERT_TRIGGERED = "device assertion", "device-side assert"

ROWS = (
    row(
        "kernel image",
        _ARCH,
        "no kernel image|nokernelimage|nobinaryforgpu|illegal seek for gpu",
        r"no kernel image is available|cudaErrorNoKernelImageForDevice|CUDA_ERROR_NO_BINARY_FOR_GPU"
        r"|\bhipErrorNoBinaryForGpu\b|Illegal seek for GPU arch",
    ),
    row("capability", _ARCH, "is not compatible", r"CUDA capability sm_\w+ is not compatible", Role.NOTICE),
    # Caffe and others print the check that failed: error == cudaSuccess (8 vs. 0)  invalid device function
    row(
        "function",
        _ARCH,
        "invalid device function",
        r"(?:CUDA error.{0,10}:|cudaSuccess \(\d{1,4} vs\. 0\)|\bcudaError_t \d{1,4} : \"?) {0,4}"
        r"invalid device function",
    ),
    row("PTX", _ARCH, "unsupported toolchain", r"PTX was compiled with an unsupported toolchain"),
    row(
        "architecture",
        _ARCH,
        "unsupported gpu arch|for option 'gpu-name'|for --gpu-architecture",
        r"Unsupported gpu architecture|'sm_\w{2,5}' is not defined for option 'gpu-name'"
        r"|invalid value for --gpu-architecture",
    ),
    row(
        "driver too old",
        _ARCH,
        "on your system is too old|version is insufficient",
        r"NVIDIA driver on your system is too old|CUDA driver version is insufficient for CUDA runtime",
    ),
    # A library of the GPU that the image lacks, or has in another version. Many packages only warn, and go on without.
    row(
        "GPU library",
        _ARCH,
        "cannot open shared object|could not load library lib|cudnn version incompat|different cuda version",
        r"\b\w{0,20}(?:Import|OS|Runtime)Error: (?:.{0,120}/)?lib(?:cu(?:da|dnn|blas|fft|rand|solver|sparse)"
        r"|nccl|nvrtc"
        r"|nvToolsExt|nvJitLink|nvinfer|amdhip|hip|roc|MIOpen|rccl)[\w.-]{0,40}: cannot open shared object"
        r"|Could not load library libcud\w{1,30}\.so|cuDNN version incompatibility: "
        r"|\bcompiled with different CUDA versions",
        Role.CASCADE,
    ),
    row("no GPU to train on", _CUDA, "no supported gpu backend", r"No supported gpu backend found"),
    row("no NCCL in torch", _ARCH, "have nccl built in", r"Distributed package doesn't have NCCL built in"),
    row("no CUDA in torch", _ARCH, "not compiled with cuda", r"Torch not compiled with CUDA enabled"),
    row(
        "Xid",
        _CUDA,
        "nvrm: |xid error|sxid (pci",
        r"NVRM: (?:Xid\b|API mismatch|.{0,160}(?:RmInitAdapter failed|fallen off the bus|needs to be reset))"
        r"|\bXid errors?\b[^0-9]{0,40}[1-9]|\bSXid \(PCI",
    ),
    row(
        "off the bus",
        _CUDA,
        "fallen off the bus|fell off the bus|gpu is lost",
        r"\bGPU .{0,60}(?:fallen|fell) off the bus|GPU is lost",
    ),
    row(
        "ECC",
        _CUDA,
        "ecc error|nvlink error",
        r"uncorrectable (?:double bit )?(?:ECC|NVLink) error|double.bit ECC error",
    ),
    row(
        "NVML",
        _CUDA,
        "to initialize nvml|nvmlerror|nvmlinit|nvidia-smi has failed|determine the device handle"
        "|find libnvidia-ml|driver/library version",
        r"Failed to initialize NVML|NVIDIA-SMI has failed|Unable to determine the device handle for GPU"
        r"|Driver/library version mismatch|couldn't find libnvidia-ml"
        r"|\bNVMLError_(?:GpuIsLost|Unknown|DriverNotLoaded|Timeout|IRQIssue|LibRmVersionMismatch)\b"
        r"|nvmlInit\w{0,4}\(\) failed: ",
    ),
    row("no devices", _CUDA, "no devices were found", r"(?:^|: )No devices were found\.?$"),
    row(
        "CUDA",
        _CUDA,
        "cuda error|cuda driver error|cuda_error_|cuda unknown error|no cuda gpus|no hip gpus|cuda runtime error"
        "|cuda failure|hip error|cudagetdevicecount|cuda status error|cublas runtime error|thcudacheck fail",
        r"\bCUDA (?:driver )?error(?: \d{1,4})?: (?!out of memory|no kernel image)\w|\bHIP error: (?!out of memory)\w"
        r"|CUDA_ERROR_(?!OUT_OF)[A-Z]|CUDA unknown error|No CUDA GPUs are available"
        r"|cuda runtime error \((?!2\))\d+\)|Cuda failure (?:\d{1,4} )?'(?!out of memory)\w"
        r"|Unexpected error from cudaGetDeviceCount|No HIP GPUs are available|\bCUDA error ?\((?!2\))\d{1,4}\)[,:]"
        r"|\bCUDA status Error: file|\[CUDA ERROR\] at file|\bcublas runtime error ?: "
        r"|THCudaCheck FAIL .{0,160}\berror=(?!2 )\d",
    ),
    row(
        "CUDA start",
        _CUDA,
        "triton error [cuda]|driver initialization failed|ptx codegen error|failed lazily at|only supported with gpus",
        r"Triton Error \[CUDA\]: (?!out of memory)|PTX codegen error|CUDA driver initialization failed"
        r"|CUDA call failed lazily at initialization"
        r"|ProcessGroupNCCL is only supported with GPUs",
    ),
    # Others print the code: error == cudaSuccess (77 vs. 0) by glog, cudaError_t 4 : "..." by Kaldi; 2 is memory.
    row(
        "CUDA code of a check",
        _CUDA,
        "== cudasuccess|cudaerror_t ",
        r"== cudaSuccess \((?![02] )\d{1,4} vs\. 0\)|\bcudaError_t (?![02] )\d{1,4} : ",
    ),
    row("CUDA code", _CUDA, "cudaerror", r"\bcudaError(?!MemoryAlloc|NotReady|NoKernel|Peer|_t\b|Code)[A-Z]\w{3,}"),
    row(
        "kernel crash",
        _CUDA,
        "device-side assert|illegal memory access|unspecified launch fail|misaligned address",
        r"device-side assert trigg|illegal memory access was|: unspecified launch failure|: misaligned address",
    ),
    row(DEVICE_ASSERTION, _CUDA, "assertion `", r"\.cuh?:\d+: .{0,200}Assertion `.{1,160}` failed"),
    # Libraries that call cuBLAS by themselves print the second and go on.
    row(
        "cuBLAS",
        _CUDA,
        "cublas_status_|cublas error|kernel execution error",
        r"CUBLAS_STATUS_(?!ALLOC_FAILED|SUCCESS)[A-Z]|\bcuBLAS error\b|!! kernel execution error",
    ),
    row(
        "cuDNN",
        _CUDA,
        "cudnn_status_|cudnn error|cudnn status error|cudnn algorithm to run|find an engine to execute",
        r"cuDNN error: (?!CUDNN_STATUS_ALLOC)\w|CUDNN_STATUS_(?!SUCCESS|NOT_SUPPORTED|ALLOC_FAILED)[A-Z]"
        r"|\bcuDNN status Error in|Unable to find a valid cuDNN algorithm|unable to find an engine to execute",
    ),
    row("cuSOLVER", _CUDA, "cusolver error|cufft error|cusparse error", r"\b(?:cusolver|cuFFT|cusparse) error: "),
    row("driver", _CUDA, "found no nvidia driver", r"Found no NVIDIA driver"),
    # Accelerators of other makers: Ascend, Moore Threads, Intel.
    row(
        "other devices",
        _CUDA,
        ": inner error|inner error is reported|process exits for this inner|npu error|npu function error"
        "|npu warning, error|stream synchronize|stream sync timeout|musa error"
        "|native api failed",
        r"\bE[A-Z0-9]\d{4}: Inner Error|\bInner error is reported as above\. The process exits"
        r"|\bNPU (?:function )?error\b.{0,120}error code is [1-9]|\bstream sync(?:hronize)? (?:timeout|failed)"
        r"|\bMUSA error: (?!out of memory)\w|\bNative API failed\. Native API returns",
    ),
    row(
        "ROCm",
        _CUDA,
        "gpu hang|gpu reset begin|vram is lost|memory access fault by gpu|hsa_status_error|hipblas_status_"
        "|rocblas error|miopenstatus",
        r"Memory access fault by GPU|HW Exception by GPU node|amdgpu\b.{0,80}(?:GPU reset begin|VRAM is lost)"
        r"|HSA_STATUS_ERROR|HIPBLAS_STATUS_(?!SUCCESS|ALLOC)[A-Z]|\brocBLAS error: "
        r"|\bmiopenStatus(?!Success|Alloc)[A-Z]",
    ),
    row(
        "TensorFlow on a GPU",
        _CUDA,
        "check failed: |dnn library |gemm launch failed|gemv launch failed|get convolution algorithm"
        "|gpu sync failed|unexpected event status"
        "|gpu memcpy failed|cpu memcpy failed",
        r"\bBlas (?:x?GEMM|GEMV)\w{0,30} launch failed|Failed to get convolution algorithm|: GPU sync failed"
        r"|Unexpected Event status: [1-9]|\b[CG]PU->[CG]PU Memcpy failed"
        r"|\] Check failed: .{0,120}(?:cuda|cudnn|cublas|cufft)|\bDNN library (?:initialization failed|is not found)",
    ),
    # The chips of Google, and what JAX says of a device that stopped.
    row(
        "TPU",
        _CUDA,
        "tpu initialization failed|no tpu platform|tpu worker may|tpu is already in use|device halted prem|tpu driver"
        "|initialize backend 'tpu|initialize backend 'cuda|initialize backend 'gpu|initialize backend 'rocm",
        r"\bTPU initialization failed|\bTPU worker may have crashed|\bTPU is already in use by"
        r"|Accelerator device halted"
        r" prematurely|\bRuntimeError: Unable to initialize backend '(?:tpu|cuda|gpu|rocm)'",
    ),
    # A kernel asks for more shared memory than this GPU has.
    row(
        "resources of a kernel",
        _CUDA,
        "out of resource: shared|too many resources requested",
        r"out of resource: shared memory, Required|too many resources requested for launch",
        Role.CASCADE,
    ),
)
