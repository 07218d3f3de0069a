"""Completes an attempt in a container: reads its record, removes its container, writes its outcome.

The order matters: a controller that is killed in between finds enough to reach the same outcome again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from rung.jobs.model.errors import EngineError, HostError
from rung.jobs.model.paths import AttemptPaths
from rung.runner.engines.docker.api import EngineApi
from rung.runner.engines.docker.container_config import secrets_folder
from rung.runner.engines.docker.container_state import ContainerState, Record, outcome, parse_record
from rung.runner.engines.docker.network import Networks
from rung.runner.engines.on_host.done_record import write_done
from rung.runner.seams.engine import Observation
from rung.runner.seams.remote import Remote

# The script only looks at two small files; a host that needs longer has other troubles.
RECORD_SECONDS = 10.0
# The job can write in this folder. So only a plain file is opened, which cannot block, and only its beginning is read.
# The container has ended before, so nobody replaces the file between the check and the read.
RECORD_SCRIPT = """
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
if plain "$1/done.json"; then echo done; head -c 4096 "$1/done.json"
elif [ -e "$1/done.json" ] || [ -L "$1/done.json" ]; then echo strange
elif plain "$1/began"; then echo began; fi
"""


@dataclass(frozen=True)
class Completion:
    """Completes attempts of one store on one host."""

    api: EngineApi
    remote: Remote
    store_id: str
    # Returns where the record of an attempt is on the host; asks the host at most once.
    record_folder: Callable[[AttemptPaths], str]
    networks: Networks

    def read_record(self, paths: AttemptPaths) -> Record:
        """Return what the wrapper of an attempt has left on the host."""
        ran = self.remote.run(["sh", "-c", RECORD_SCRIPT, "rung", self.record_folder(paths)], timeout=RECORD_SECONDS)
        return parse_record(ran.out.decode("utf-8", "replace"))

    def finalize(self, name: str, paths: AttemptPaths, state: ContainerState) -> Observation:
        """Write the outcome of an attempt whose log is complete here, and remove its container."""
        end = outcome(state, self.read_record(paths))
        self.api.remove(name)
        self.remove_secrets(paths)
        write_done(paths, end)
        return end

    def remove_network(self, name: str) -> None:
        """Remove the network of an attempt whose end is written; the next controller does what is left of that."""
        self.networks.remove(name)

    def remove_secrets(self, paths: AttemptPaths) -> None:
        folder = secrets_folder(self.store_id, paths.job_id, paths.number)
        with suppress(EngineError, HostError):
            self.remote.run(["rm", "-rf", folder], timeout=RECORD_SECONDS)
