"""Lists hosts of a fleet with one shared folder for a while, and removes what lies in it afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.fleet.fleet import Fleet
from tests.fleet.folders import discard
from tests.fleet.host import SHARED
from tests.fleet.patience import run

# As the hosts have it; only here, because discard removes the folder itself.
SHARED_FOLDER = f"{SHARED}/rung"


@contextmanager
def sharing(fleet: Fleet, names: Sequence[str]) -> Iterator[Path]:
    """List these hosts with one folder, and yield that folder as it is here."""
    folder, listed = fleet.shared / "rung", fleet.inventory.read_text()
    folder.mkdir()
    run("chown", "1000:1000", folder)
    inventory = yaml.safe_load(listed)
    for group in inventory["all"]["children"].values():
        for name, settings in group["hosts"].items():
            settings |= {"rung_shared": SHARED_FOLDER} if name in names else {}
    fleet.inventory.write_text(yaml.safe_dump(inventory, sort_keys=False))
    try:
        yield folder
    finally:
        fleet.inventory.write_text(listed)
        for name in names:
            # Containers that still run could write there again.
            fleet.hosts[name].revive()
            fleet.hosts[name].wait_until_ready()
            fleet.hosts[name].run("tidy")
        discard(folder)
