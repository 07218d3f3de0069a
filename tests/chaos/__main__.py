"""`python -m tests.chaos --seed N --faults N [--seconds S] [--keep DIR]`: random faults, then the invariants."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.chaos.run import Result, run


def main() -> int:
    options = _options()
    keep = options.keep is not None
    folder = Path(options.keep).absolute() if keep else Path(tempfile.mkdtemp(prefix="rung-chaos-"))
    print(f"seed {options.seed}, {options.faults} faults, in {folder}", flush=True)
    result = run(folder, options.seed, options.faults, options.seconds, keep=keep)
    again = f"python -m tests.chaos --seed {options.seed} --faults {options.faults}"
    again += f" --seconds {options.seconds:g}" if options.seconds is not None else ""
    for each in result.found:
        print(f"VIOLATION {each.job}: {each.what} [{again}]")
    print(summary(result))
    if result.found:
        print(f"{len(result.found)} violations; the ledgers, logs and the home are in {folder}")
    return 1 if result.found else 0


def summary(result: Result) -> str:
    """Return what was done, as a few lines for a person."""
    jobs, faults = result.evidence.jobs, result.journal.faults
    starts = sum(len(job.runs) for job in jobs)
    states = {state: sum(job.state == state for job in jobs) for state in ("SUCCEEDED", "FAILED", "CANCELLED")}
    ended = ", ".join(f"{count} {state}" for state, count in states.items())
    kinds = "".join(f"\n  {count:5} {kind}" for kind, count in sorted(faults.items()) if count)
    return f"{faults.total()} faults in {result.seconds:.0f} s; {len(jobs)} jobs ({ended}), {starts} processes{kinds}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seconds", type=float, help="end after so long, even if not all faults were injected")
    parser.add_argument("--keep", metavar="DIR", help="keep ledgers, logs and the home there; made if it is missing")
    return parser.parse_args()


sys.exit(main())
