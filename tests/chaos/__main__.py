"""Injects random faults while random jobs run, then checks the invariants from the ledgers of the jobs."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
from pathlib import Path

from tests.chaos.report import report
from tests.chaos.run import run


def main() -> int:
    options = _options()
    # Whoever ends the harness ends its jobs and its file system with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    keep = options.keep is not None
    folder = Path(options.keep).absolute() if keep else Path(tempfile.mkdtemp(prefix="rung-chaos-"))
    print(f"seed {options.seed}, {options.faults} faults, in {folder}", flush=True)
    result = run(folder, options.seed, options.faults, options.seconds, keep=keep)
    again = f"python -m tests.chaos --seed {options.seed} --faults {options.faults}"
    lines, code = report(result, f"{again} --seconds {options.seconds:g}" if options.seconds is not None else again)
    print("\n".join(lines))
    if code:
        print(f"The ledgers, logs and the home are in {folder}")
    return code


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seconds", type=float, help="end after so long, even if not all faults were injected")
    parser.add_argument("--keep", metavar="DIR", help="keep ledgers, logs and the home there; made if it is missing")
    return parser.parse_args()


sys.exit(main())
