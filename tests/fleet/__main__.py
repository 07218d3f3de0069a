"""Starts and stops a fleet from the command line: python -m tests.fleet up | down | status | demo | prepare."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from tests.fleet.demo import show
from tests.fleet.fleet import FIRST_CLAIMED, Fleet
from tests.fleet.host import Host
from tests.fleet.parts import cache, prepare
from tests.fleet.patience import FleetError, say


def main() -> int:
    options = parsed()
    verbs: dict[str, Callable[[argparse.Namespace], int | None]]
    verbs = {"up": up, "down": down, "status": status, "demo": demo, "prepare": get_ready}
    try:
        return int(verbs[options.verb](options) or 0)
    except FleetError as error:
        say(str(error))
        return 2


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet", description="Real hosts to try things on.")
    verbs = ["up", "down", "status", "demo", "prepare"]
    parser.add_argument("verb", choices=verbs, help="prepare only makes what up needs")
    numbers = range(1, FIRST_CLAIMED)
    number_help = f"the number of the fleet (1 to {numbers[-1]}, default 1)"
    parser.add_argument("--number", type=int, default=1, choices=numbers, metavar="N", help=number_help)
    parser.add_argument("--hosts", type=int, default=3, help="how many hosts (default 3: turing, pascal, ampere)")
    parser.add_argument("--gpus", type=int, default=1, help="how many GPUs each pretends to have (default 1)")
    return parser.parse_args()


def up(options: argparse.Namespace) -> None:
    """Bring a fleet up, if it is not up already."""
    fleet = Fleet(options.number)
    if fleet.engine.pid and fleet.inventory.exists():
        say(f"fleet {options.number} is up already")
    else:
        fleet.up(options.hosts, options.gpus)
    status(options)


def get_ready(_: argparse.Namespace) -> None:
    prepare()


def demo(options: argparse.Namespace) -> int:
    """Run the job with three faults on a fleet, and bring the fleet up first if needed."""
    up(options)
    return show(Fleet.found(options.number))


def down(options: argparse.Namespace) -> None:
    Fleet(options.number).down()


def status(options: argparse.Namespace) -> None:
    """Print the hosts of a fleet and how to reach them."""
    fleet = Fleet.found(options.number)
    lines = [line_of(host, is_up=fleet.engine.pid is not None) for host in fleet.hosts.values()]
    lines += [
        "",
        f"  export RUNG_HOSTS={fleet.inventory}",
        f"  ssh -F {fleet.ssh_config} {next(iter(fleet.hosts))}",
        "",
    ]
    lines += [f"{name:12} {reference}" for name, reference in fleet.images.items()]
    lines += ["", f"All of it lies in {fleet.folder}; what is kept for the next time, in {cache()}."]
    sys.stdout.write("\n".join([*lines, ""]))


def line_of(host: Host, *, is_up: bool) -> str:
    state = host.state()["State"]["Status"] if is_up else "gone"
    link = "cut" if is_up and host.is_cut() else ""
    return f"{host.name:10} {host.address:15} {state:8} {link:4} {host.gpus} x {host.card.name}"


if __name__ == "__main__":
    sys.exit(main())
