"""Opens the home and the store for a command that only reads them, without what a controller or a launch needs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypeVar

from rung.jobs.model.errors import StoreError
from rung.jobs.model.paths import HomePaths
from rung.runner.state.home import find_home, make_home, refuse_shared_home
from rung.runner.state.store import Store

Opened = TypeVar("Opened", bound="OpenHome")


@dataclass
class OpenHome:
    """The home and the store that one command holds open."""

    paths: HomePaths
    store: Store

    @classmethod
    def open(cls: type[Opened], *, create: bool = False, wait: bool = False) -> Opened:
        """Open the home and the store; `wait`: for as long as the disk is full or another process holds the store."""
        paths = find_home(os.environ)
        if create:
            make_home(paths)
        elif not paths.store.exists():
            raise StoreError(f"{paths.home}: there is no store yet; submit a job with `rung launch FILE`")
        else:
            refuse_shared_home(paths)
        if wait:
            # Only a controller waits, and this measures its turns.
            from rung.runner.session.pause import patiently

            return cls(paths, patiently(paths, lambda: Store(paths.store), owner=False))
        return cls(paths, Store(paths.store))
