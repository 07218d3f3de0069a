"""Makes sure that a host sees the folder that it should share with the leading host of an attempt."""

from __future__ import annotations

from rung.jobs.model.errors import EngineError
from rung.runner.engines.on_host.host_account import HostAccount

# The leading host has made it a moment ago. The job of each host writes into a folder of its own there.
SEE_SCRIPT = '[ -d "$1" ] && [ -w "$1" ] && echo seen; :'


def see_shared_folder(account: HostAccount, folder: str) -> None:
    """Raise an EngineError if our account cannot write into a folder that the leading host has made."""
    if account.script(SEE_SCRIPT, folder).strip() != "seen":
        raise EngineError(
            f"{account.name} cannot write into {folder}, which another host has made: hosts with one rung_shared must "
            "have that folder from one file system, and our accounts there the same number"
        )
