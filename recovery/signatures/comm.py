"""Messages about communication between ranks: NCCL, Gloo, rendezvous, MPI."""

from __future__ import annotations

from rung.jobs.model.fault import FaultKind
from rung.recovery.signatures.signature import Role, row

_COMM = FaultKind.COMM_FAULT

ROWS = (
    row(
        "watchdog",
        _COMM,
        "watchdog caught coll|collective operation timeout|before timing out|watchdog got stuck"
        "|heartbeat monitor timed"
        "|timeout at nccl work|watchdog thread terminated|detected by watchdog|heartbeat of its watchdog",
        r"watchdog caught collective|caught collective operation timeout|ran for \d+ milliseconds before timing out"
        r"|watchdog got stuck for"
        r"|Heartbeat monitor timed out|NCCL watchdog thread terminated with exception|Timeout at NCCL work"
        r"|\(either an error or timeout\) detected by watchdog|detected no heartbeat of its watchdog",
    ),
    row(
        "NCCL",
        _COMM,
        "nccl error|ncclsystemerror|ncclinternalerror|ncclremoteerror|ncclunhandledcuda|ncclinvalidusage"
        "|ncclinvalidargument|nccl operations have|nccl timeout|nccl communicator was|ncclcomminit",
        r"\bNCCL error\b|\bnccl(?:SystemError|InternalError|RemoteError|UnhandledCudaError|InvalidUsage"
        r"|InvalidArgument)\b"
        r"|NCCL operations have failed or timed out|\bNCCL timeout\b(?! ?[=:(]| \d| set)"
        r"|NCCL communicator was aborted"
        r"|\bncclCommInit\w{0,20} failed: ",
    ),
    # The collectives of other makers: Ascend and Habana (HCCL), AMD, Intel, Moore Threads, Baidu, Cambricon.
    row(
        "other collectives",
        _COMM,
        "hccl error|rccl error|xccl error|mccl error|oneccl error|bkcl error|cncl error|hccl function error"
        "|hccl timeout|hcclsystemerror|hcclinternalerror|hcclremoteerror|hcclall|hcclbroadcast|hcclreduce|hcclbarrier"
        "|hcclcomminit|hcclsend|hcclrecv|getting socket times out|notify wait timeout|oneccl:"
        "|ei0002|ei0004|ei0005|ei0006|ei0007|ej0001",
        r"\b(?:[HRXM]CCL|oneCCL|BKCL|CNCL) (?:function )?error\b|\bHCCL timeout\b(?! ?[=:(]| \d| set)"
        r"|\bhccl(?:SystemError|InternalError|RemoteError)\b|\bhccl[A-Z]\w{2,30}\b.{0,20}error code is [1-9]"
        r"|\bE[IJ]000\d: |Getting socket times out|notify wait timeout|\boneCCL: .{0,160}EXCEPTION",
    ),
    # Many NCCL warnings are harmless (a missing plugin or library): only a broken connection counts.
    row(
        "NCCL warning",
        _COMM,
        "nccl warn ",
        r"NCCL WARN .{0,160}(?:completion (?:from|with)|with error \d|\bfailed : |returned (?:Connection|No route)"
        r"|Connection (?:refused|reset|closed|timed out)|timed out|Timeout|Duplicate GPU|[Nn]o socket interface"
        r"|Cuda failure|Proxy thread error|async (?:event|fatal)|socket progress error|Failed to execute operation"
        r"|Socket recv failed|Error: failed to (?:extend|open|map)|Message truncated|Net : |Bootstrap : "
        r"|while creating shared memory|has already checked in)",
    ),
    # Often a failed call prints only these return codes from NCCL's own files.
    row(
        "NCCL return codes",
        _COMM,
        "nccl info misc/|nccl info bootstrap.cc|nccl info init.cc|nccl info group.cc|nccl info transport"
        "|nccl info proxy.cc|nccl info enqueue.cc|nccl info channel.cc",
        r"NCCL INFO [\w./]{1,60}\.cc:\d{1,6} -> [1-9]\d?\b",
        Role.NOTICE,
    ),
    row(
        "process group",
        _COMM,
        "timed out initializing|clients joined|store based barrier|pass monitoredbarrier|reached monitoredbarrier"
        "|mismatch between collectives",
        r"Timed out initializing process group|Timed out after \d+ seconds waiting for clients"
        r"|failed to pass monitoredBarrier"
        r"|monitoredBarrier, but received errors|Detected mismatch between collectives",
    ),
    row(
        "rendezvous",
        _COMM,
        "socket has failed to|socket has timed out",
        r"socket has failed to (?:bind|listen)|client socket has timed out after"
        r"|socket has failed to connect to any network address",
    ),
    # A failed connection is retried for minutes; missing address families (97, 99) do not matter.
    row(
        "not reached yet",
        _COMM,
        "has failed to connect",
        r"client socket has failed to connect to .{0,120}errno: (?!97|99)\d",
        Role.CASCADE,
    ),
    row(
        "NCCL socket",
        _COMM,
        "call to connect|call to recv|call to send",
        r"\bsocket\.\w{1,3}:\d+ WARN Call to (?:connect|recv|send)\b.{0,60}failed ?: ",
    ),
    row("port", _COMM, "address already in use", r"\b\w*Error: (?:\[Errno 98\] )?Address already in use"),
    row(
        "gloo",
        _COMM,
        "gloo/transport|gloo/rendezvous|gloo/context|gloo connectfullmesh",
        r"gloo/.{0,160}(?:Connection refused|Timed out|timeout)|Gloo connectFullMesh failed",
    ),
    row(
        "MPI",
        _COMM,
        "lost communication with|unable to reliably start|pmix error: |daemon has unexpectedly|died unexpectedly with"
        "|know how to route",
        r"\b(?:ORTE|PRTE) (?:has lost communication|was unable to reliably start|daemon has unexpectedly failed"
        r"|does not know how to route)|\bPMIX ERROR: (?:UNREACHABLE|LOST|TIMEOUT)"
        r"|\bdaemon \(pid \d+\) died unexpectedly",
    ),
    # Ranks wait for one that does not come.
    row(
        "ranks wait",
        _COMM,
        "subset of ranks and are waiting|stalled tensor|wait timeout after|pair closure|stopped sending heartbeats"
        "|distributed service detected fatal",
        r"submitted to be reduced, gathered or broadcasted by subset of ranks|\bwait timeout after \d+ms, keys"
        r"|Application timeout caused pair closure|tasks are unhealthy \(stopped sending heartbeats\)"
        r"|JAX distributed service detected fatal errors",
        Role.CASCADE,
    ),
    row(
        "status of XLA and TensorFlow",
        _COMM,
        "xlaruntimeerror: unavail|xlaruntimeerror: deadl|xlaruntimeerror: abort|errors_impl.unavailable"
        "|errors_impl.deadline|errors_impl.aborted|collective ops is aborted",
        r"\bXlaRuntimeError: (?:UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED): |\berrors_impl\.(?:Unavailable"
        r"|DeadlineExceeded"
        r"|Aborted)Error\b|Collective ops is aborted by",
        Role.CASCADE,
    ),
    row(
        "InfiniBand",
        _COMM,
        "transport retry counter|ibv_wc_|ucx  error|vendor err ",
        r"transport retry counter exceeded|IBV_WC_\w+_ERR\b|UCX +ERROR|with error \d+, .{0,60}vendor err \d",
    ),
    row(
        "JAX coordination",
        _COMM,
        "coordination service|barrier timed out",
        r"coordination service.{0,120}(?:heartbeat|unavailable|error)|DEADLINE_EXCEEDED: Barrier timed out",
    ),
    # The other rank ended; its own messages have the cause.
    row(
        "gloo peer",
        _COMM,
        "gloo/transport|gloo::ioexception|gloo::timeout",
        r"gloo/.{0,160}Connection (?:closed|reset)|\bgloo::(?:Io|Timeout)Exception\b",
        Role.CASCADE,
    ),
    row(
        "torch.distributed",
        _COMM,
        "distbackenderror|distnetworkerror|diststoreerror|rendezvoustimeouterror|rendezvousconnectionerror"
        "|rendezvousclosederror|c10d store has failed",
        r"\b(?:DistBackend|DistNetwork|DistStore|RendezvousTimeout|RendezvousConnection|RendezvousClosed)Error\b"
        r"|connection to the C10d store has failed",
        Role.CASCADE,
    ),
    row(
        "socket",
        _COMM,
        "connection reset by peer|connection refused|broken pipe|socket timeout|connection closed by peer"
        "|recvvaluewithtimeout failed|recvvalue failed|sendbytes failed|recvbytes failed|recvvector failed"
        "|failed to recv, got",
        r"\bRuntimeError: (?:Connection (?:reset by peer|refused|closed by peer)|Broken pipe|Socket Timeout)"
        r"|\b(?:recvValue\w{0,14}|sendBytes|recvBytes|recvVector) failed on \w|\bfailed to recv, got \d+ bytes",
        Role.CASCADE,
    ),
    row(
        "other ranks",
        _COMM,
        "mpi_abort was invoked|mpi communication peer|and retrieving ncclunique|waiting for key: "
        "|horovod has been shut down|horovodinternalerror|fatal error in mpi_|fatal error in pmpi_"
        "|error occurred in mpi_",
        r"MPI_ABORT was invoked on rank|MPI communication peer process has|and retrieving ncclUniqueId"
        r"|Timeout waiting for key: |Horovod has been shut down|HorovodInternalError"
        r"|Fatal error in P?MPI_\w|\bAn error occurred in MPI_\w",
        Role.CASCADE,
    ),
)
