"""Messages about the machine of a run: disk, shared memory, scheduler, container, host."""

from __future__ import annotations

from rung.jobs.model.fault import FaultKind
from rung.recovery.signatures.signature import Role, after_steps, row

_INFRA = FaultKind.INFRA_FAULT

ROWS = (
    row(
        "disk full",
        _INFRA,
        "no space left|errno 28|disk is full|disk full|storagefull|disk i/o error|not enough free disk"
        "|enough space on the disk"
        "|not enough disk",
        r"No space left on device|\bErrno 28\b|\bdisk (?:is )?full\b|kind: StorageFull"
        r"|OperationalError\W{1,3}(?:disk I/O error|database or disk is full)|not enough (?:free )?disk space"
        r"|not enough space on the disk",
    ),
    row(
        "quota",
        _INFRA,
        "quota exceeded|edquot|exceeded your disk quota|over disk quota",
        r"Disk quota exceeded|\bEDQUOT\b|exceeded (?:your|the|its) (?:disk |storage )?quota|over disk quota",
    ),
    row(
        "file system",
        _INFRA,
        "[errno 5]|[errno 30]|[errno 107]|[errno 116]|[errno 121]|[errno 112]|[errno 24]|stale file handle"
        "|too many open files|read-only file system|endpoint is not connected|host is down|, errno = ",
        r"\[Errno (?:5|30|107|112|116|121|24)\] |, errno = (?:5|30|107|112|116|121|122), |: Stale file handle"
        r"|: Too many open files|: Read-only file system"
        r"|: Host is down"
        r"|Transport endpoint is not connected",
    ),
    row(
        "write",
        _INFRA,
        "streamwriter failed|enforce fail at inline|basic_ios::clear|unexpected pos |write(): fd|input/output error",
        r"PytorchStreamWriter failed|enforce fail at inline_cont|basic_ios::clear: iostream error"
        r"|unexpected pos \d+ vs \d|\bwrite\(\): fd \d+ failed with"
        r"|(?:error|failed|failure|reading|writing)\b.{0,160}: Input/output error",
    ),
    row(
        "shared memory",
        _INFRA,
        "insufficient shared memory|encountered in worker|unable to write to file|open shared memory object"
        "|items of ancdata|unable to mmap",
        r"insufficient shared memory|(?:error|fault) encountered in worker|unable to write to file </torch_"
        r"|unable to open shared memory object|received \d+ items of ancdata|unable to mmap \d+ bytes",
    ),
    row(
        "Slurm",
        _INFRA,
        "timed out on send/recv|contact slurm|communication connection failure|zero bytes were transmitted"
        "|waiting for job step|confirm allocation|invalid job credential|cancelled at |node failure on"
        "|due to time limit|due to node fail|due to preemption"
        "|unable to allocate resources|unable to create step|not ending with signals",
        r"\berror: .{0,20}(?:JOB|STEP) .{0,120}(?:CANCELLED AT|NOT ENDING WITH SIGNALS)"
        r"|srun: error: (?:Node failure on"
        r"|Unable to (?:allocate resources|create step))"
        r"|CANCELLED .{0,60}DUE TO (?:TIME LIMIT|NODE FAIL|PREEMPTION)"
        r"|\b(?:srun|sbatch|salloc|slurmstepd): error: .{0,120}(?:timed out on send/recv|contact slurm controller"
        r"|Communication connection failure|Zero Bytes were transmitted|Timed out waiting for job step"
        r"|Unable to confirm allocation|Invalid job credential)",
    ),
    row(
        "scheduler",
        _INFRA,
        "exceeded the wall|exceeded the time|due to time limit|term_runlimit|job killed: walltime|job killed: cput"
        "|was preempted|being preempted|spot instance|term_cpulimit|term_processlimit|term_threadlimit|term_preempt"
        '|term_admin|term_load|max allowed run|maximum allowed run|max runtime|maximum runtime|limit "h_rt'
        "|limit h_rt|termination notice"
        "|preemption notice|preemption signal|walltime|wall time|gone over disk",
        r"exceeded the (?:wall ?time|wall clock|time) limit|\bTERM_(?:CPULIMIT|PROCESSLIMIT|THREADLIMIT"
        r"|PREEMPT|ADMIN|LOAD)\b"
        r"|exceeded the max(?:imum)? (?:allowed )?run(?:ning)? ?(?:time|duration)|exceeds job (?:hard"
        r"|soft) limit \W?[hs]_rt"
        r"|(?:instance )?(?:termination|preemption) (?:notice|signal) (?:was )?received|received (?:a "
        r"|the )?(?:instance "
        r"|spot )?(?:termination|preemption) (?:notice|signal)|\bwall ?time (?:limit )?(?:was |has been "
        r"|is )?(?:reached"
        r"|exceeded)\b|\bgone over (?:the )?disk limit|TERM_RUNLIMIT|PBS: job killed: (?:walltime|cput)"
        r"|(?:instance|node|job|pod) (?:was|is being) preempted"
        r"|spot instance .{0,40}(?:terminat|interrupt|reclaim)",
    ),
    row(
        "pod",
        _INFRA,
        "pod was evicted|pod has been evicted|reason: evicted|status: evicted|low on resource"
        "|imagepullbackoff|errimagepull|failed to pull image",
        r"node was low on resource|\bpod (?:was|has been) evicted|(?:reason|status): *evicted\b"
        r"|\bImagePullBackOff\b|\bErrImagePull\b|Failed to pull image",
    ),
    row(
        "processes",
        _INFRA,
        "start new thread|errno 11]|thread creation failed|pthread_create failed|fork: resource"
        "|resources for omp thread",
        r"RuntimeError: can't start new thread|Error: \[Errno 11\] Resource temporarily unavailable"
        r"|(?:[Tt]hread creation|pthread_create) failed.{0,80}: Resource temporarily unavailable"
        r"|\bfork: Resource temp"
        r"|Error: \[Errno 11\] Unable to lock file|necessary resources for OMP thread",
        Role.CASCADE,
    ),
    # Where the training itself wrote before; in its first steps it is a mistake in the job.
    after_steps(
        row(
            "no longer allowed",
            _INFRA,
            "permissionerror: ",
            r"\bPermissionError: \[Errno (?:1|13)\] (?!.{0,200}\b(?:falling back|ignor|retry|continu|skipp))",
            Role.CASCADE,
        )
    ),
    row(
        "container",
        _INFRA,
        "response from daemon|connect to the docker daemon|runtime create failed|nvidia-container-cli"
        "|exec format error",
        r"Error response from daemon|Cannot connect to the Docker daemon|OCI runtime create failed"
        r"|nvidia-container-cli: .{0,40}error|exec format error",
    ),
    row(
        "host hardware",
        _INFRA,
        "hardware error]|i/o error, dev|buffer i/o error|ext4-fs error|metadata corruption|metadata i/o error"
        "|lustreerror:|soft lockup|kernel panic"
        "|hard lockup",
        r"\[Hardware Error\]|\bI/O error, dev |Buffer I/O error on|EXT4-fs error"
        r"|XFS \(\S{1,20}\): .{0,40}(?:Corruption|I/O error)"
        r"|LustreError: |BUG: soft lockup|Kernel panic - |hard LOCKUP",
    ),
    row(
        "host goes down",
        _INFRA,
        "system is going down|system will power off|system will reboot",
        r"system is going down for (?:reboot|power|system|halt)|system will (?:power off|reboot) ",
    ),
    # Of a loader that gave no batch in time: its worker hangs, or its disk does. A worker that says why comes first.
    row(
        "worker",
        _INFRA,
        "dataloader worker|pin memory thread|dataloader timed out",
        r"DataLoader worker .{0,80}(?:exited unexp|killed by signal)|Pin memory thread exited"
        r"|DataLoader timed out after \d",
        Role.CASCADE,
    ),
    # The process at the other end of a pipe or socket is gone: often the only sign of a killed data worker.
    row(
        "other end",
        _INFRA,
        "connectionreseterror|brokenpipeerror|eoferror|connectionabortederror|connectionrefusederror"
        "|pickle data was trunc",
        r"\b(?:Connection(?:Reset|Aborted|Refused)|BrokenPipe)Error: \[Errno \d+\]"
        r"|UnpicklingError: pickle data was truncated|(?:^|[:)>\]] )EOFError$",
        Role.CASCADE,
    ),
    row(
        "died",
        _INFRA,
        "fatal python error: |windows fatal exception|sigsegv received|sigbus received|sigabrt received"
        "|kernel crashed while"
        "|exit code -1073|0xc0000005|0xc0000409|session crashed|brokenprocesspool|terminatedworkererror"
        "|after throwing an inst"
        "|localrayletdied|ownerdiederror|objectlosterror|raysystemerror|actorunavailable|actordiederror"
        "|return code = -|段错误"
        "|总线错误|speicherzugriffsfehler|erreur de segmentation|violación de segmento|ошибка сегментирования"
        "|セグメンテーション違反|세그멘테이션"
        "|falha de segmentação|errore di segmentazione|received 1 death signal|death signal, shut|closing signal sighup"
        "|segmentation fault|bus error|worker died|actor died|rayactorerror|workercrashederror|nodediederror"
        "|illegal instruction|got signal: 1|exited on signal|(core dumped)|(sigsegv)|(sigbus)|signals.sigsegv"
        "|signals.sigbus|signal sigsegv|signal sigbus|exitcode: -11|exitcode: -7|code -11|code: -11|code = -11"
        "|exit code 139|been marked dead",
        r"(?:^|: |\d )(?:Segmentation fault|Bus error)\b|(?:Segmentation fault|Bus error) \(core dumped\)"
        r"|worker died (?:or was killed|unexpectedly)|actor died unexpectedly"
        r"|\b(?:RayActor|ActorDied|ActorUnavailable|WorkerCrashed|NodeDied|LocalRayletDied|OwnerDied"
        r"|ObjectLost|RaySystem)Error\b"
        r"|Fatal Python error: (?:Segmentation fault|Bus error|Illegal instruction|Floating)"
        r"|Windows fatal exception: |\*\*\* SIG(?:SEGV|BUS|ABRT) received at time|Kernel crashed while executing"
        r"|exit code -1073\d{6}|\(0xC0000(?:005|409|374)\)|session crashed (?:for an unknown|after)"
        r"|\bBrokenProcessPool: |\bTerminatedWorkerError: "
        r"|terminate called after throwing an instance of '(?:c10|std)::"
        r"|return code = -(?:7|11)\b|(?:段错误|总线错误|Speicherzugriffsfehler"
        r"|Erreur de segmentation|Violación de segmento"
        r"|Ошибка сегментирования|セグメンテーション違反|세그멘테이션 오류"
        r"|Falha de segmentação|Errore di segmentazione)"
        r"|Received (?:\d+|Signals\.SIG(?:TERM|HUP)|SIG(?:TERM|HUP)) death signal|^Illegal instruction"
        r"|\bclosing signal SIGHUP\b|exited on signal \d|got signal: (?:1|15)$"
        r"|\b(?:Aborted|Illegal instruction|Floating point exception) {1,40}\(core dumped\)"
        r"|\bterminated with signal SIG(?:SEGV|BUS)\b|\b[Ss]ignal (?:7|11):? \(SIG(?:SEGV|BUS)\)"
        r"|[Ss]ignals\.SIG(?:SEGV|BUS)\b|\bexitcode: -(?:7|11)\b"
        r"|\b(?:exit|return) ?code {0,4}[:=]? ?(?:-11|139)\b|\bnode \S{1,80} has been marked dead",
        Role.CASCADE,
    ),
    # Of glog, which many programs in C++ use, and of Paddle, each below a stack.
    row(
        "signal handler",
        _INFRA,
        "received by pid|is detected by the operating system",
        r"\*\*\* SIG(?:TERM|SEGV|BUS|ILL) \(@0x[0-9a-f]+\) received by PID \d"
        r"|: `(?:Termination signal|Segmentation fault|Illegal instruction|Access to an undefined portion of a memory"
        r" object)` is detected by the operating system",
        Role.CASCADE,
    ),
    # The allocator of the C library found its memory damaged and ended the process.
    row(
        "heap",
        _INFRA,
        "free(): invalid|free(): double|free(): corrupt|double free or corr|corrupted size vs|corrupted double-linked"
        "|malloc(): |realloc(): invalid|munmap_chunk(): |malloc_consolidate(): |stack smashing detected",
        r"\b(?:free|malloc|realloc|munmap_chunk|malloc_consolidate)\(\): (?:invalid|double|corrupt"
        r"|memory corr|smallbin"
        r"|unsorted|unaligned|mismatch|top size)|\bdouble free or corruption\b|\bcorrupted (?:size vs|double-linked)"
        r"|\*\*\* stack smashing detected",
        Role.CASCADE,
    ),
    row(
        "link",
        _INFRA,
        "send disconnect:|kex_exchange|ssh_exchange_ident|closed by remote host|packet_write_wait|port 22: "
        "|host key verification|not responding.|write failed: broken|during banner exchange|rsync error:"
        "|connection unexpectedly closed|unexpected disconnect",
        r"client_loop: send disconnect|kex_exchange_identif|ssh_exchange_identif"
        r"|Connection to \S{1,80} closed by remote host"
        r"|packet_write_wait: |ssh: connect to host|Host key verification failed"
        r"|Timeout, server \S{1,80} not responding|^Write failed: Broken pipe|timed out during banner exchange"
        r"|rsync error: "
        r"|connection unexpectedly closed|unexpected disconnect while reading",
        Role.CASCADE,
    ),
)
