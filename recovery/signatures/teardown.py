"""Messages of processes that are being ended. They follow a fault or a normal end and are never a fault."""

from __future__ import annotations

from rung.recovery.signatures.signature import Role, guard

_T = Role.TEARDOWN

# Each is tried on lines that have a message or look like the last one of a traceback.
ROWS = (
    guard(
        "torchrun's summary",
        _T,
        r"\bChildFailedError\b|\bProcessRaisedException\b|\bProcessExitedException\b"
        r"(?!.{0,60}\bSIG(?:KILL|SEGV|BUS)\b)",
    ),
    guard(
        "launcher",
        _T,
        r"CalledProcessError: (?!.{0,900}\bSIG(?:KILL|SEGV|BUS)\b)|\bexits with return code = (?!-(?:7|9|11)\b)"
        r"|Killing subprocess \d|Sending process \d+ closing(?! signal SIGHUP)",
    ),
    guard("resource tracker", _T, r"resource_tracker\b|leaked (?:semaphore|shared_memory)"),
    guard(
        "process group left",
        _T,
        r"destroy_process_group\(\)|\"should dump\" flag on TCPStore|TCPStore server has shut down too early",
    ),
    guard("at exit", _T, r"Exception ignored (?:in|while)|\batexit\b|Error in sys\.excepthook"),
    guard("interrupt", _T, r"\bKeyboardInterrupt\b|got signal: 2\b"),
    guard("terminated", _T, r"^Terminated\b|terminate called (?:without|recursively)"),
    guard("step ends", _T, r"srun: (?:Job step aborted|Terminating|Force Terminated)"),
    guard("tracking service", _T, r"\bwandb\b.{0,200}(?:Connection|Network|Broken|SSL|EOF|sync)|api\.wandb\.ai"),
    # An exception from another process, which has its own traceback.
    guard("passed on", _T, r": Caught \w+ in |(?:Error|Exception): ?$"),
)
