"""Tells people about jobs while a controller runs: turns events into messages, and sends them, in threads of its own.

Nothing here is waited for by a job. Events become messages in one transaction with a cursor over them, so none is lost
or made twice. A message leaves the outbox right after its service has accepted it. A controller that is killed between
the two sends that message again, marked as perhaps a repeat.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import partial

import click
import tenacity

from rung.jobs.model.errors import RungError, StoreBlocked
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.terminal_text import clean
from rung.runner.notify.batches import Batch, next_batch
from rung.runner.notify.collect import begin, collect, forget
from rung.runner.notify.post import CLOSING_SECONDS, Answer, post
from rung.runner.notify.settings import Settings, SettingsFile, Target
from rung.runner.state.store import Store

TURN_SECONDS = 0.5
# After a failed send, at most this long until the next one.
LONGEST_BACK_OFF = 60.0
# After one that may have arrived, at most this long: each further one may be a copy that somebody reads.
LONGEST_BACK_OFF_UNANSWERED = 600.0
# Between two tries to record a send while the disk is full.
RECORD_SECONDS = 1.0
COLLECTING = "collecting"
# A controller without jobs stays for messages that wait, but not for a service that is gone.
LONGEST_STAY = 86400.0

Post = Callable[[Target, str, threading.Event], Answer]


class _NotAccepted(Exception):
    """A message was not accepted; it is tried again."""


class _Unanswered(_NotAccepted):
    """Nobody knows whether a message was accepted."""


SOON = tenacity.wait_random_exponential(multiplier=1, max=LONGEST_BACK_OFF)
RARELY = tenacity.wait_exponential_jitter(initial=1, max=LONGEST_BACK_OFF_UNANSWERED)


def _back_off(state: tenacity.RetryCallState) -> float:
    """Return the seconds until the next try: ever more, and above all where each try may be a copy."""
    error = state.outcome.exception() if state.outcome is not None else None
    return RARELY(state) if isinstance(error, _Unanswered) else SOON(state)


class Notifier:
    """Collects and sends messages until it is closed. Without notify.yaml it does nothing."""

    def __init__(
        self,
        paths: HomePaths,
        environ: Mapping[str, str],
        *,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] | None = None,
        post: Post = post,
    ) -> None:
        self._paths, self._environ, self._now, self._post = paths, environ, now, post
        self._closing = threading.Event()
        # Between two tries; without another one, it is over when this is closed.
        self._sleep = sleep or tenacity.sleep_using_event(self._closing)
        self._collector = threading.Thread(target=self._run, name="notify", daemon=True)
        self._senders: dict[str, threading.Thread] = {}
        self._file = SettingsFile(paths)
        self._settings: Settings | None = None
        # Whether events are remembered to be told.
        self._begun = False
        # What is wrong, by the thread that says it.
        self._said: dict[str, str] = {}

    def start(self) -> None:
        """Begin. What happens from now on is told, however long the first look takes."""
        with suppress(RungError), closing(Store(self._paths.store)) as store:
            self._begun = self._paths.notify.exists()
            if self._begun:
                begin(store)
            else:
                forget(store)
        self._collector.start()

    def close(self) -> None:
        """Stop. A send that has begun gets a moment to end; what waits is sent by the next controller."""
        self._closing.set()
        if self._collector.is_alive():
            self._collector.join(CLOSING_SECONDS)
        for sender in [*self._senders.values()]:
            sender.join(2 * CLOSING_SECONDS)

    def unsent(self, store: Store) -> int:
        """Return how many events and messages still have to be sent, also later; none that has waited for too long."""
        cursor = store.outbox_cursor() if self._settings is not None else None
        if cursor is None:
            return 0
        recent = [row for row in store.outbox() if self._now() - row.due_at < LONGEST_STAY]
        return len(recent) + (COLLECTING not in self._said and store.last_event() > cursor)

    def settle(self, store: Store, seconds: float) -> None:
        """Wait until everything that can be sent now has been sent, but no longer than this."""
        ends_at = time.monotonic() + seconds
        while self._may_send_now(store) and time.monotonic() < ends_at:
            time.sleep(TURN_SECONDS / 5)

    def _may_send_now(self, store: Store) -> bool:
        settings = self._settings
        if settings is None:
            # It has not looked yet, or there is nobody to tell.
            return COLLECTING not in self._said and self._collector.is_alive() and self._paths.notify.exists()
        return store.last_event() > (store.outbox_cursor() or 0) or any(
            self._next(store, settings, name) is not None for name in settings.targets
        )

    # Collecting

    def _run(self) -> None:
        while not self._closing.is_set():
            if self._begun or self._paths.notify.exists():
                self._guarded(COLLECTING, self._turn)
            self._closing.wait(TURN_SECONDS)

    def _guarded(self, who: str, act: Callable[[], None]) -> None:
        """Act; say once what is wrong, and go on later: nobody is told by a thread that has ended."""
        try:
            act()
            self._said.pop(who, None)
        except Exception as error:
            line = clean(str(error) if isinstance(error, RungError) else f"{type(error).__name__} while telling people")
            if line != self._said.get(who):
                self._said[who] = line
                click.echo(f"rung: nobody is told: {line}", err=True)
            self._closing.wait(TURN_SECONDS)

    def _turn(self) -> None:
        settings = self._file.read()
        with closing(Store(self._paths.store)) as store:
            if settings is None:
                forget(store)
            else:
                while collect(store, settings, self._paths, self._environ):
                    if self._closing.is_set():
                        return
            self._settings, self._begun = settings, settings is not None
            for name in settings.targets if settings is not None else ():
                if self._next(store, settings, name) is not None:
                    self._ensure_sender(name)

    def _next(self, store: Store, settings: Settings | None, name: str) -> Batch | None:
        if settings is None:
            return None
        known = store.outbox_targets().get(name)
        return next_batch(store.outbox(name), known.left_out if known else 0, self._now(), settings.quiet)

    # Sending: a thread for each target, so that a service that hangs is in nobody's way

    def _ensure_sender(self, name: str) -> None:
        sender = self._senders.get(name)
        if sender is None or not sender.is_alive():
            work = partial(self._guarded, f"sending to {name}", partial(self._send_all, name))
            sender = threading.Thread(target=work, name=f"notify {name}", daemon=True)
            self._senders[name] = sender
            sender.start()

    def _send_all(self, name: str) -> None:
        """Send everything that waits for a target. After a failure, wait and look again what waits by then."""
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_NotAccepted),
            wait=_back_off,
            stop=tenacity.stop_when_event_set(self._closing),
            sleep=self._sleep,
        )
        with suppress(tenacity.RetryError), closing(Store(self._paths.store)) as store:
            while not self._closing.is_set() and retrying(self._send_next, store, name):
                pass

    def _send_next(self, store: Store, name: str) -> bool:
        settings = self._settings
        batch = self._next(store, settings, name)
        if settings is None or batch is None or name not in settings.targets:
            return False
        with store.transaction():
            store.sending(batch.rows, at=self._now())
        answer = self._post(settings.targets[name], batch.text, self._closing)
        self._record(store, name, batch, answer)
        if not answer.accepted:
            raise _Unanswered if answer.arrived else _NotAccepted
        return True

    def _record(self, store: Store, name: str, batch: Batch, answer: Answer) -> None:
        """Write at once how a send ended; while the store cannot be written, wait, or the message would come again."""
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(StoreBlocked),
            wait=tenacity.wait_fixed(RECORD_SECONDS),
            stop=tenacity.stop_when_event_set(self._closing),
            sleep=tenacity.sleep_using_event(self._closing),
            reraise=True,
        )
        retrying(self._write, store, name, batch, answer)

    def _write(self, store: Store, name: str, batch: Batch, answer: Answer) -> None:
        with store.transaction():
            if answer.accepted:
                store.sent(name, batch.rows, digest=batch.digest, at=self._now())
            else:
                store.not_sent(name, batch.rows, answer.detail, arrived=answer.arrived, at=self._now())
