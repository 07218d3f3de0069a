"""Injects random faults while random jobs run, then checks the invariants from the ledgers of the jobs."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
from pathlib import Path

from tests.chaos.report import report
from tests.chaos.run import Wanted, run
from tests.chaos.slurm_jobs import cluster_of_its_own
from tests.fleet.fleet import Fleet
from tests.slurm.cluster import Cluster


def main() -> int:
    options = _options()
    # Each of the many commands would compile all modules.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    keep = options.keep is not None
    folder = Path(options.keep).absolute() if keep else Path(tempfile.mkdtemp(prefix="rung-chaos-"))
    print(f"seed {options.seed}, {options.faults} faults, in {folder}", flush=True)
    with contextlib.ExitStack() as stack:
        place: Fleet | Cluster | None = None
        if options.engine == "docker":
            place = stack.enter_context(Fleet.claimed()).up(options.hosts)
        elif options.engine == "slurm":
            place = stack.enter_context(cluster_of_its_own())
        wanted = Wanted(options.seed, options.faults, options.seconds, place)
        result = run(folder, wanted, keep=keep)
    lines, code = report(result, _again(options))
    print("\n".join(lines))
    if code:
        print(f"The ledgers, logs and the home are in {folder}")
    return code


def _end(number: int, frame: object) -> None:
    """End the harness: it takes its jobs, its file system and its hosts with it. A second signal must not stop that."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(f"ended by {signal.Signals(number).name}")


def _again(options: argparse.Namespace) -> str:
    """Return the command that runs the same jobs and faults again."""
    words = ["python -m tests.chaos", f"--seed {options.seed} --faults {options.faults}"]
    if options.engine == "docker":
        words.append(f"--engine docker --hosts {options.hosts}")
    elif options.engine != "process":
        words.append(f"--engine {options.engine}")
    if options.seconds is not None:
        words.append(f"--seconds {options.seconds:g}")
    return " ".join(words)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--engine", choices=("process", "docker", "slurm"), default="process")
    parser.add_argument("--hosts", type=int, default=3, help="with docker: how many hosts (default 3)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seconds", type=float, help="end after so long, even if not all faults were injected")
    parser.add_argument("--keep", metavar="DIR", help="keep ledgers, logs and the home there; made if it is missing")
    return parser.parse_args()


sys.exit(main())
