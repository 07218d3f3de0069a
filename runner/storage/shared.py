"""Treats hosts that share a folder as one place: any of them shows its files, and all are asked what they use of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rung.jobs.model.errors import EngineError, HostError
from rung.jobs.model.host import Host, with_same_folder
from rung.runner.checkpoints.shared_files import first_answer
from rung.runner.engine_pool import Engines
from rung.runner.seams.engine import HostEngine, Request
from rung.runner.seams.storage import DiskUse, FoundFile, OnBytes, ShippedTree, Storage, Trees


def place_of(hosts: Sequence[Host], host: str) -> str:
    """Return the name of the place where a host has the files of jobs: of the first host with the same folder."""
    return min(with_same_folder(hosts, host))


def storage_on(engines: Engines, host: str, request: Request) -> Storage:
    """Return the files of a job in the folder of a host; HostError: it is not in the list."""
    names = with_same_folder(engines.hosts, host)
    found = [engines.on(name).storage(request) for name in names]
    return found[0] if len(found) == 1 else SharedStorage(place_of(engines.hosts, host), found)


def trees_on(engines: Engines, host: str) -> Trees:
    """Return the shipped trees in the folder of a host; HostError: it is not in the list, or does not answer."""
    found = [engines.on(name) for name in with_same_folder(engines.hosts, host)]
    return found[0].trees() if len(found) == 1 else SharedTrees(found)


class SharedStorage:
    """The files of one job in a folder that several hosts have: the first host that answers is asked."""

    def __init__(self, where: str, storages: Sequence[Storage]) -> None:
        self.where, self._storages = where, storages

    def disk_use(self, paths: Sequence[str]) -> dict[str, DiskUse]:
        return first_answer(self._storages, lambda storage: storage.disk_use(paths))

    def remove(self, paths: Sequence[str]) -> None:
        first_answer(self._storages, lambda storage: storage.remove(paths))

    def remove_all(self) -> None:
        first_answer(self._storages, lambda storage: storage.remove_all())

    def files(self, folder: str, pattern: str) -> list[FoundFile]:
        return first_answer(self._storages, lambda storage: storage.files(folder, pattern))

    def fetch(self, folder: str, files: Sequence[FoundFile], to: Path, on_bytes: OnBytes) -> Path:
        return first_answer(self._storages, lambda storage: storage.fetch(folder, files, to, on_bytes))


class SharedTrees:
    """The shipped trees in a folder that several hosts have. A tree is free when every one of them says so."""

    def __init__(self, engines: Sequence[HostEngine]) -> None:
        self._engines = engines

    def list(self) -> list[ShippedTree]:
        found = [self._free_on(engine) for engine in self._engines]
        free = set.intersection(*({tree.id for tree in trees} for trees in found))
        return [tree for tree in found[0] if tree.id in free]

    @staticmethod
    def _free_on(engine: HostEngine) -> Sequence[ShippedTree]:
        try:
            return engine.trees().list()
        except HostError as error:
            # The others can be asked about all else.
            raise EngineError(f"{error}; what it shares with other hosts may be in use there, and stays") from None

    def disk_use(self, ids: Sequence[str]) -> DiskUse:
        return self._engines[0].trees().disk_use(ids)

    def remove(self, ids: Sequence[str]) -> None:
        self._engines[0].trees().remove(ids)
