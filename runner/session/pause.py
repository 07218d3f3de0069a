"""Pauses the controller while its store cannot be written, and goes on by itself when it can.

The disk is full, or another process holds the store. Jobs run on meanwhile; nothing is decided or started.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import click

from rung.jobs.model.errors import StoreBlocked
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.terminal_text import clean
from rung.runner.metrics.turn_times import TurnTimes
from rung.runner.state.lock import put_note
from rung.runner.state.owner import StopRequest
from rung.runner.state.store_errors import require_room

if TYPE_CHECKING:
    from rung.runner.controller.controller import Controller
    from rung.runner.notify.notifier import Notifier
    from rung.runner.state.store import Store

RETRY_SECONDS = 1.0
# For messages about jobs that have just ended; what is not sent by then is sent by the next controller.
SETTLE_SECONDS = 10.0
FULL = (errno.ENOSPC, errno.EDQUOT)

Result = TypeVar("Result")


def patiently(
    paths: HomePaths, step: Callable[[], Result], *, owner: bool = True, stop: StopRequest | None = None
) -> Result:
    """Return the result of a step; while the store is blocked, say so once and try again. `owner`: we hold the lock.

    A request to stop ends the pause with KeyboardInterrupt.
    """
    paused = False
    while True:
        try:
            result = step()
        except (StoreBlocked, OSError) as error:
            if not isinstance(error, StoreBlocked) and error.errno not in FULL:
                raise
            if not paused:
                _tell(paths, f"the controller pauses: {error}", owner=owner)
            paused = True
            if stop is not None and stop.is_made:
                raise KeyboardInterrupt from None
            time.sleep(RETRY_SECONDS)
        else:
            if paused:
                _tell(paths, "", owner=owner)
            return result


def _tell(paths: HomePaths, text: str, *, owner: bool) -> None:
    if owner:
        put_note(paths, clean(text))
    # The standard error may be a file on the full disk.
    with suppress(OSError):
        click.echo(f"rung: {clean(text)}" if text else "rung: the controller goes on", err=True)


class PatientController:
    """A controller whose turns wait while the store is blocked, and which tells people about its jobs."""

    def __init__(
        self, controller: Controller, paths: HomePaths, notifier: Notifier, stop: StopRequest | None = None
    ) -> None:
        self._controller, self._paths, self._notifier, self._stop = controller, paths, notifier, stop
        self._times = TurnTimes(paths.turn_times, controller.hosts_answering)

    def turn(self) -> int:
        return self.patiently(self._turn)

    def wait(self) -> None:
        """Sleep until something is due."""
        self._controller.wait()

    def tidy(self) -> bool:
        return self.patiently(self._controller.tidy)

    def patiently(self, step: Callable[[], Result]) -> Result:
        return patiently(self._paths, step, stop=self._stop)

    def unsent(self, store: Store) -> int:
        """Return how many messages wait that this controller should stay for."""
        return self.patiently(lambda: self._notifier.unsent(store))

    def settle(self, store: Store) -> None:
        """Wait a little for the messages about jobs that have just ended."""
        with suppress(StoreBlocked, KeyboardInterrupt):
            self._notifier.settle(store, SETTLE_SECONDS)

    def close(self) -> None:
        self._times.write()
        self._notifier.close()
        self._controller.close()

    def _turn(self) -> int:
        require_room(self._paths.home)
        return self._times.turn(self._controller.turn)
