"""Messages about out of memory: on the device, on the host, or from a kernel or scheduler that killed the run."""

from __future__ import annotations

from rung.jobs.model.fault import FaultKind
from rung.recovery.signatures.quoted_text import PREFIX
from rung.recovery.signatures.signature import Role, row

_OOM = FaultKind.OOM
# The row of the messages that only say that a process was killed.
KILLED = "killed"
# The same as a shell says it in other languages: glibc's translations of "Killed".
_KILLED_ABROAD = (
    r"已杀死|強制結束|強制終了|죽었음|убито|вбито|getötet|processus arrêté|terminado [(]killed[)]|ucciso|unicestwiony"
)

ROWS = (
    row(
        "device memory",
        _OOM,
        "out of memory",
        r"\b(?:CUDA|HIP|MPS|XPU|NPU|GPU|cudaMalloc|hipMalloc|Cuda failure)\b.{0,40}\bout of memory"
        r"|(?:cuda runtime error \(2\)|\berror=2|\bcudaError_t 2|\bErrStr) ?: ?\"?out of memory"
        r"|cudaSuccess \(2 vs\. 0\).{0,40}out of memory",
    ),
    row(
        "OutOfMemoryError",
        _OOM,
        "outofmemoryerror|outofmemoryexception|objectstorefullerror",
        r"\bOutOfMemory(?:Error|Exception)\b|\bObjectStoreFullError\b",
    ),
    # Of any library: LightGBMError: Out of memory.
    row("error of memory", _OOM, "error: out of memory", r"\b\w{1,60}Error: out of memory\b"),
    row(
        "memory asked for",
        _OOM,
        "tried to allocate|out of memory to allocate",
        r"Tried to allocate \d[\d.]{0,10} ?[KMGT]i?B|\bout of memory to allocate \d",
    ),
    row(
        "short message",
        _OOM,
        "cuda oom|gpu oom|of gpu memory|of cuda memory|of vram|enough gpu memory|all available ram|low on memory"
        "|for the cache blocks|memory allocation of|insufficient gpu mem|insufficient cuda mem"
        "|gpu memory exhaust|insufficient vram|tried to allocate more memory|exceeded hbm cap",
        r"\b(?:CUDA|GPU) OOM\b|\b(?:ran|run|running) out of (?:GPU memory|CUDA memory|VRAM)|not enough GPU memory"
        r"|using all available RAM|node running low on memory|No available memory for the cache blocks"
        r"|memory allocation of \d+ bytes failed|\b(?:insufficient (?:GPU |CUDA )?(?:memory|VRAM) (?:for|to)"
        r"|GPU memory exhausted)|tried to allocate more memory than is available|Exceeded hbm capacity by",
    ),
    row(
        "ran out",
        _OOM,
        "ran out of memory|out of memory error on",
        r"(?:ran out of memory (?:with|trying|on|in)|Out of memory error on) ",
    ),
    row(
        "ComfyUI",
        _OOM,
        "got an oom, unloading|allocation on device",
        r"Got an OOM, unloading|Allocation on device.{0,80}(?:exceed|out of memory)",
    ),
    row("HIP runtime", _OOM, "memory allocation failed", r"\bvideo memory allocation failed"),
    row(
        "CUDA memory code",
        _OOM,
        "cuda_error_out_of|cudaerrormemoryalloc",
        r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation",
    ),
    row("library memory", _OOM, "status_alloc_failed", r"(?:CUBLAS|CUDNN|CUSOLVER|CUSPARSE)_STATUS_ALLOC_FAILED"),
    row(
        "CPU allocator",
        _OOM,
        "defaultcpuallocator|cannot allocate memory|not enough memory: you",
        r"DefaultCPUAllocator: (?:can't|not enough)|Cannot allocate memory(?! in static TLS)"
        r"|not enough memory: you tried",
    ),
    row(
        "array",
        _OOM,
        "unable to allocate|oom when allocating|insufficient memory|resourceexhaustederror|dst tensor is not",
        r"Unable to allocate \S+ \S+ for an array|OOM when allocating|\bResourceExhaustedError:"
        r"|:Insufficient memory\)|: Dst tensor is not initialized",
    ),
    # A terminal can wrap the line after the first word.
    row(
        "XLA",
        _OOM,
        "resource_exhausted: |resource exhausted: ",
        r"RESOURCE[_ ]EXHAUSTED: (?:Out\b|Failed to allocate|OOM|XLA:|Error allocating"
        r"|Attempting to (?:reserve|allocate))",
    ),
    row(
        "older libraries",
        _OOM,
        "allocation failed|failed to allocate working|mem_object_allocation",
        r"\bCudaNdarray\w{0,40}: allocation failed|\bfailed to allocate working memory"
        r"|\bMEM_OBJECT_ALLOCATION_FAILURE\b",
    ),
    row("C++", _OOM, "std::bad_alloc", r"std::bad_alloc"),
    row("MemoryError", _OOM, "memoryerror", r"(?:^|[\s.\]>_])(?:_Array)?MemoryError(?::|\s*$)"),
    row("Windows", _OOM, "paging file is too small", r"The paging file is too small"),
    row(
        "kernel killed",
        _OOM,
        "out of memory: kill|cgroup out of memory",
        r"Out of memory: Kill(?:ed)? process|Memory cgroup out of memory",
    ),
    row(
        "oom killer",
        _OOM,
        "oom-kill|oom_kill event|oom_reaper|oom.kill event|out-of-memory handler",
        r"\boom-kill:|\boom_reaper: reaped|oom[-_]kill event|invoked oom-killer|Detected \d+ oom.kill"
        r"|cgroup out-of-memory handler",
    ),
    row(
        "scheduler killed",
        _OOM,
        "out of memory|out_of_memory|memory limit|term_memlimit|term_swap|exceeded limit|oomkilled"
        "|memory pressure|h_vmem|oom killed|oom-killed|oom killer|oom-killer",
        r"srun: error: .{0,80}: Out Of Memory|\bexceeded (?:job |step |\S{0,20} )?memory limit|TERM_MEMLIMIT"
        r"|job killed: v?mem .{0,40}exceeded limit|\bOOMKilled\b(?!\W{1,4}false)|killed due to memory pressure"
        r"|State(?:=|: )OUT_OF_MEMORY|\bTERM_SWAP\b|exceeds job (?:hard|soft) limit \W?(?:h_|s_)?(?:vmem|rss)"
        r"|\bgone over (?:the )?memory limit|\b(?:was|been|is|process) (?:killed by the )?OOM[- ]kill(?:ed|er)\b",
    ),
    # What Rung itself adds to the log when the control group or the engine reports it (jobs/inside/contained.sh).
    row(
        "control group",
        _OOM,
        "killed a process: out of memory",
        # Not at the beginning of a line: it may follow a progress bar.
        r"rung: .{0,80}\bthe kernel killed a process: out of memory$",
    ),
    # Most SIGKILLs without another message are from the out-of-memory killer, but not in a log that Rung watches: there
    # the row above is the only word about it.
    row(
        KILLED,
        _OOM,
        "killed|sigkill|signal 9|return code = -9|exit code 137|code 137|status 137|exitcode  : -9|exitcode: -9"
        "|exit code -9|exit code: -9|exit code: 137|exit code is 137|exited (137)|exit code: 9"
        "|exited with 137|kernel appears to have|error code -9"
        "|error code: -9|已杀死|強制結束|強制終了|죽었음|бито|getötet|processus arrêté|terminado (killed)|ucciso"
        "|unicestwiony",
        rf"^{PREFIX}Killed\.?(?: {{2,20}}.{{0,200}})?$"
        r"|(?<!signal): Killed\.?$|: line \d+: +\d+ Killed\b"
        r"|^\[\d+\] +[-+]? *\d+ killed\b"
        r"|^Killed: 9|Signal 9 \(SIGKILL\) received|[Ss]ignals\.SIGKILL|terminated (?:by|with) signal (?:9|SIGKILL)"
        r"|on signal 9 \(Killed\)|killed by signal:? (?:9|SIGKILL)|return code = -9\b|exit ?code {0,4}(?:[:=]"
        r"|is)? ?(?:-9|137)\b|kernel appears to have died"
        r"|exit(?:ed with)? (?:status|code) 137\b|\bExited \(137\)|^= {1,6}EXIT CODE: 9$|\berror code:? -9\.?$"
        rf"|(?i:(?:^{PREFIX}|\d +)(?:{_KILLED_ABROAD})(?: {{2,20}}.{{0,200}})?$)",
        Role.CASCADE,
    ),
)
