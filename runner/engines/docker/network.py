"""Gives every attempt a network of its own on its host, so that the containers of two jobs do not reach each other.

The network has the name of the attempt's container, and goes with it.
"""

from __future__ import annotations

import hashlib
import ipaddress
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

from rung.jobs.model.errors import EngineError, HostError
from rung.runner.engines.docker.api import EngineApi
from rung.runner.engines.docker.container_config import STORE_LABEL
from rung.runner.engines.docker.container_state import parse_list

# Reserved for tests of network devices (RFC 2544): no site uses it for its own machines. The engine's own choice ends
# after about thirty networks, and its large networks may hide machines of the site.
ADDRESSES = ipaddress.ip_network("198.18.0.0/15")
# A gateway and a container need two of the six addresses in it.
PREFIX = 29
TRIES = 64


def subnets(name: str) -> Iterator[str]:
    """Yield the subnets to try for a network, beginning with one that follows from its name. Pure."""
    many = 1 << (PREFIX - ADDRESSES.prefixlen)
    first = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    size = 1 << (ADDRESSES.max_prefixlen - PREFIX)
    for number in range(first, first + many):
        yield f"{ADDRESSES.network_address + (number % many) * size}/{PREFIX}"


def network_config(name: str, labels: Mapping[str, str], subnet: str) -> dict[str, Any]:
    """Return the configuration of a network. Pure."""
    return {
        "Name": name,
        "Driver": "bridge",
        "CheckDuplicate": True,
        "Labels": dict(labels),
        "IPAM": {"Driver": "default", "Config": [{"Subnet": subnet}]},
    }


class Networks:
    """The networks of one store on one host. Its methods may be called from any thread."""

    def __init__(self, api: EngineApi, store_id: str) -> None:
        self._api, self._store_id = api, store_id
        self._made: set[str] = set()
        self._swept = False
        self._lock = threading.Lock()

    def create(self, name: str, labels: Mapping[str, str]) -> None:
        """Create the network of an attempt; one that is there already is used."""
        self._made.add(name)
        self._sweep_once()
        for subnet in islice(subnets(name), TRIES):
            try:
                self._api.create_network(network_config(name, labels, subnet))
                return
            except EngineError as error:
                if "overlaps" not in str(error):
                    raise
        raise EngineError(f"{self._api.host}: {TRIES} subnets of {ADDRESSES} are in use: remove networks of ended jobs")

    def remove(self, name: str) -> None:
        """Remove the network of an attempt whose container is gone. One that is still in use is swept later."""
        with suppress(EngineError, HostError):
            self._api.remove_network(name)
            self._made.discard(name)

    def _sweep_once(self) -> None:
        """Remove what earlier controllers left: networks of this store without a container."""
        with self._lock:
            if self._swept:
                return
            self._swept = True
        with suppress(EngineError):
            ours = {STORE_LABEL: self._store_id}
            networks = {str(each.get("Name")) for each in self._api.networks(ours)}
            containers = parse_list(self._api.containers(ours))
            for name in sorted(networks - set(containers) - self._made):
                self.remove(name)
