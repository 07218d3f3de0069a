"""Keeps the one connection to a host: opens it when first needed, watches it, reopens it until it is closed.

One thread, the keeper, does all the connecting. Callers wait while a connection is being opened, and get an error at
once when the host is known to be unreachable.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tenacity import RetryCallState, Retrying, retry_if_exception_type, sleep_using_event, stop_when_event_set
from tenacity.wait import wait_random_exponential

from rung.jobs.model.errors import HostError, HostRefused, HostUnreachable
from rung.runner.ssh.transport import Transport

# How long a caller waits for the first connection: a slow login takes seconds, a dead host never answers.
CONNECT_SECONDS = 10.0
MOST_SECONDS_BETWEEN_TRIES = 30.0
# Only a person can fix a refusal, and trying more often looks like an attack.
SECONDS_AFTER_REFUSAL = 60.0
CHECK_SECONDS = 0.5


class Connection:
    """The shared connection to one host, if there is one now."""

    def __init__(self, name: str, dial: Callable[[], Transport]) -> None:
        self.name = name
        self._dial = dial
        self._changed = threading.Condition()
        self._transport: Transport | None = None
        self._error: HostError | None = None
        self._keeper: threading.Thread | None = None
        self._closed = threading.Event()
        self._backoff = wait_random_exponential(multiplier=0.5, max=MOST_SECONDS_BETWEEN_TRIES)

    def transport(self) -> Transport:
        """Return the live connection, or raise HostUnreachable or HostRefused."""
        deadline = time.monotonic() + CONNECT_SECONDS
        with self._changed:
            self._start_keeper()
            while self._transport is None:
                if self._closed.is_set():
                    raise HostUnreachable(f"{self.name}: the connection was closed by us")
                if self._error is not None:
                    raise type(self._error)(str(self._error))
                if not self._changed.wait(deadline - time.monotonic()):
                    raise HostUnreachable(f"{self.name}: no connection after {CONNECT_SECONDS:g} s")
            return self._transport

    def close(self) -> None:
        self._closed.set()
        with self._changed:
            transport, self._transport = self._transport, None
            self._changed.notify_all()
        if transport is not None:
            transport.close()

    def drop_connection(self) -> None:
        """Cut the connection, as a network failure would; it reconnects by itself."""
        self.transport().close()

    def _start_keeper(self) -> None:
        if self._keeper is None and not self._closed.is_set():
            self._keeper = threading.Thread(target=self._maintain, name=f"keeper of {self.name}", daemon=True)
            self._keeper.start()

    def _maintain(self) -> None:
        """Connect, watch, and reconnect when the connection is lost; the first retry comes at once."""
        while not self._closed.is_set():
            try:
                transport = self._dial_with_retries()
            except HostError:
                return  # closed while the host was unreachable
            self._set(transport, None)
            while transport.is_alive() and not transport.dead and not self._closed.is_set():
                transport.join(CHECK_SECONDS)
            self._set(None, None)
            # Ends every read that waits on it.
            transport.close()

    def _dial_with_retries(self) -> Transport:
        tries = Retrying(
            retry=retry_if_exception_type(HostError),
            stop=stop_when_event_set(self._closed),
            wait=self._wait,
            sleep=sleep_using_event(self._closed),
            after=self._failed,
            reraise=True,
        )
        return tries(self._dial)

    def _wait(self, state: RetryCallState) -> float:
        return SECONDS_AFTER_REFUSAL if isinstance(_error_of(state), HostRefused) else self._backoff(state)

    def _failed(self, state: RetryCallState) -> None:
        self._set(None, _error_of(state))

    def _set(self, transport: Transport | None, trouble: HostError | None) -> None:
        with self._changed:
            self._transport, self._error = transport, trouble
            self._changed.notify_all()


def _error_of(state: RetryCallState) -> HostError:
    error = state.outcome.exception() if state.outcome else None
    return error if isinstance(error, HostError) else HostUnreachable(str(error))
