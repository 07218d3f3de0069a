"""Follows all containers of one host in a single thread and keeps the latest observation of each.

Every log is a channel on the one connection to the host, read when data has arrived. The end of a log only triggers an
inspection of the container; the engine's answer and the record on the host decide. A container that has ended counts as
running until all of its log is here. This module starts and stops no container.

The trouble of one attempt is that attempt's alone: it is shown as its reason and tried again later. Only a request that
no other attempt could make either, or a connection that is lost, means that the host is unreachable.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from rung.jobs.model.errors import EngineError, HostError, HostRefused, HostUnreachable, RungError
from rung.jobs.model.paths import AttemptPaths
from rung.jobs.model.terminal_text import clean
from rung.runner.engines.docker.completion import Completion
from rung.runner.engines.docker.container_config import STORE_LABEL
from rung.runner.engines.docker.container_state import ContainerState, Status, parse_inspect, parse_list
from rung.runner.engines.docker.followed_attempt import ENDS_EARLY, FollowedAttempt, span
from rung.runner.engines.docker.log_copy import LogCopy
from rung.runner.engines.docker.log_stream import LogStream, StreamPoll
from rung.runner.seams.engine import Observation, Presence

# How long a caller waits for the first observation; an unreachable host is reported at once.
FIRST_ANSWER_SECONDS = 10.0
# Between two lists of all containers, for changes that no log shows.
POLL_ALL_SECONDS = 5.0
# Between two tries while the host or its engine is unreachable; the connection has its own back-off.
RETRY_SECONDS = 0.5
# The next controller reads again what came after the cursor was last saved, which costs little.
SAVE_SECONDS = 5.0
FEW_STREAMS = 4
GATHER_SECONDS = 0.02
# How long the end of the program waits for the thread.
CLOSE_SECONDS = 10.0
# Before a log is opened again that ended while its container still runs.
REOPEN_SECONDS = 1.0


class LogFollower:
    """Follows the containers of one host; `completion` writes the outcome of those that have ended."""

    def __init__(
        self,
        completion: Completion,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._completion, self._api, self._now, self._sleep = completion, completion.api, now, sleep
        self._followed: dict[AttemptPaths, FollowedAttempt] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._unreachable, self._refused = "", False
        self._answered_at = self._polled_at = now()
        self._streams: StreamPoll[FollowedAttempt] = StreamPoll()

    # Called from any thread

    def observation(self, name: str, paths: AttemptPaths) -> Observation:
        """Return the latest observation of an attempt; wait for the first one, but not for an unreachable host."""
        deadline = self._now() + FIRST_ANSWER_SECONDS
        with self._changed:
            followed = self._follow(name, paths)
            while followed.observation is None and not (self._unreachable or followed.trouble or self._closed):
                if not self._changed.wait(max(0.0, deadline - self._now())):
                    return Observation(Presence.WAITING, detail=f"{self._api.host} is being asked")
            if followed.finalized and followed.observation is not None:
                return followed.observation
            if self._unreachable:
                return Observation(Presence.UNREACHABLE, detail=self._why_unreachable())
            return followed.answer(self._api.host, self._now())

    def invalidate(self, name: str, paths: AttemptPaths) -> None:
        """Drop the observation of an attempt, because something was just done to it, and follow it from now on."""
        with self._changed:
            followed = self._follow(name, paths)
            if not followed.finalized:
                followed.observation, followed.version, followed.retry_at = None, followed.version + 1, 0.0
        self.wake()

    def forget(self, paths: AttemptPaths) -> None:
        """Stop following an attempt whose outcome is written."""
        with self._changed:
            followed = self._followed.get(paths)
            if followed is not None and followed.finalized:
                del self._followed[paths]

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self.wake()
        if self._thread is not None:
            # A host that takes a request byte by byte may keep it for long; what is not saved is read again.
            self._thread.join(CLOSE_SECONDS)

    def _follow(self, name: str, paths: AttemptPaths) -> FollowedAttempt:
        if paths not in self._followed:
            self._followed[paths] = FollowedAttempt(name, paths, LogCopy(paths))
            self.wake()
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name=f"log follower of {self._api.host}", daemon=True)
            self._thread.start()
        return self._followed[paths]

    def _why_unreachable(self) -> str:
        if self._refused:
            return self._unreachable
        return f"{self._api.host} has not answered for {span(self._now() - self._answered_at)}: {self._unreachable}"

    def wake(self) -> None:
        if not self._closed or self._thread is not None:
            self._streams.wake()

    # Called from the thread alone

    def _run(self) -> None:
        while not self._closed:
            try:
                self._api.negotiate_version()
                self._mark_reachable()
                while not self._closed:
                    self._run_once()
            except (EngineError, HostError) as error:
                self._mark_unreachable(error)
            # A host may send anything. Without this thread nobody would follow its containers, so it must survive.
            except Exception as error:
                why = f"its answer is not understood: {type(error).__name__}: {clean(str(error))}"
                self._mark_unreachable(EngineError(why))
        for followed in self._attempts():
            self._close_stream(followed)
            with contextlib.suppress(OSError):
                followed.copy.save()

    def _attempts(self) -> list[FollowedAttempt]:
        with self._changed:
            return list(self._followed.values())

    def _mark_reachable(self) -> None:
        with self._changed:
            self._unreachable, self._refused = "", False
            self._answered_at = self._polled_at = self._now()
            for followed in self._followed.values():
                followed.version += 1

    def _mark_unreachable(self, error: RungError) -> None:
        for followed in self._attempts():
            self._close_stream(followed)
        with self._changed:
            # Never empty: that would mean reachable, and a host may give a reason of control codes alone.
            self._unreachable = str(error).removeprefix(f"{self._api.host}: ") or "it gives no reason"
            self._refused = isinstance(error, HostRefused)
            self._changed.notify_all()
            if not self._closed:
                self._changed.wait(RETRY_SECONDS)

    def _run_once(self) -> None:
        """Inspect what may have changed, open the logs to be read, then wait for data."""
        for followed in self._attempts():
            if followed.needs_inspection and self._now() >= followed.retry_at:
                self._guarded(followed, self._inspect)
            if followed.wants_stream and self._now() >= followed.reopen_at:
                self._guarded(followed, self._open)
        if self._now() >= self._polled_at + POLL_ALL_SECONDS:
            self.poll_all()
        self._read_ready()
        for followed in self._streams.owners():
            if followed.copy.unsaved and self._now() >= followed.save_at:
                self._guarded(followed, lambda each: each.copy.save())

    def _read_ready(self) -> None:
        ready = self._streams.wait(self._poll_timeout())
        if len(self._streams.owners()) > FEW_STREAMS:
            # With many logs it is far cheaper to read together what arrives within a moment.
            self._sleep(GATHER_SECONDS)
        for followed in ready:
            if followed.stream is not None:
                self._guarded(followed, self._read)

    def _poll_timeout(self) -> float:
        """Return how long there is nothing to do unless data arrives."""
        due = [moment for followed in self._attempts() for moment in followed.moments()]
        return max(0.0, min([self._polled_at + POLL_ALL_SECONDS, *due]) - self._now())

    def poll_all(self) -> None:
        """Mark every attempt for inspection whose state differs from the engine's list of containers."""
        try:
            listed = parse_list(self._api.containers({STORE_LABEL: self._completion.store_id}))
        except EngineError:
            listed = None  # each is asked about by itself then
        self._polled_at = self._answered_at = self._now()
        for followed in self._attempts():
            same = listed is not None and listed.get(followed.name, Status.ABSENT) is followed.state.status
            if not followed.finalized and not same:
                followed.version += 1

    def _inspect(self, followed: FollowedAttempt) -> None:
        version = followed.version
        state = parse_inspect(self._api.inspect(followed.name))
        self._answered_at = self._now()
        if followed.finalized:
            followed.inspected_version = version
            return
        observation = Observation(Presence.ABSENT)
        if state.status is Status.ABSENT:
            if self._completion.read_record(followed.paths).began:
                # Somebody removed the container, so the log here is all there will be.
                self._finalize(followed, state)
            elif not followed.copy.is_empty:
                followed.copy.append_note(ENDS_EARLY.format(host=self._api.host))
        elif state.status is not Status.CREATED:
            observation = Observation(Presence.RUNNING, started_at=state.started_at)
        if state.status is not followed.state.status:
            # The log is opened again after the end of the container: only then is the end of the log the real end.
            self._close_stream(followed)
            followed.reopen_at = 0.0
        followed.state, followed.inspected_version = state, version
        if not followed.finalized:
            self._publish(followed, observation, version)

    def _publish(self, followed: FollowedAttempt, observation: Observation, version: int) -> None:
        with self._changed:
            if followed.version == version:
                followed.observation = observation
            self._changed.notify_all()

    def _open(self, followed: FollowedAttempt) -> None:
        followed.copy.begin()
        follow = followed.state.status is Status.RUNNING
        followed.stream = LogStream(self._api.open_log(followed.name, followed.copy.since, follow=follow))
        self._streams.add(followed.stream, followed)

    def _read(self, followed: FollowedAttempt) -> None:
        stream = followed.stream
        assert stream is not None, "only open streams are read"
        try:
            entries = stream.read()
        except HostUnreachable:
            # Perhaps only this log broke off: the inspection that follows shows whether the host answers.
            self._end_stream(followed)
            return
        self._answered_at = self._now()
        if entries and not followed.copy.unsaved:
            followed.save_at = self._now() + SAVE_SECONDS
        followed.copy.take(entries)
        if not stream.ended and not stream.damage:
            return
        self._end_stream(followed)
        if followed.state.status is Status.ENDED:
            if stream.damage:
                followed.copy.append_note(f"rung: the host cannot read the rest of this log: {stream.damage}")
            self._finalize(followed, followed.state)

    def _end_stream(self, followed: FollowedAttempt) -> None:
        """Handle the end of a log: unless the container has ended too, it is inspected, and its log opened again."""
        self._close_stream(followed)
        followed.reopen_at = self._now() + REOPEN_SECONDS
        if followed.state.status is not Status.ENDED:
            followed.version += 1

    def _finalize(self, followed: FollowedAttempt, state: ContainerState) -> None:
        followed.finish_log(state, self._api.host)
        end = self._completion.finalize(followed.name, followed.paths, state)
        with self._changed:
            followed.observation, followed.finalized = end, True
            self._changed.notify_all()
        # Only now: a relaunch need not wait for it.
        self._completion.remove_network(followed.name)

    def _guarded(self, followed: FollowedAttempt, act: Callable[[FollowedAttempt], None]) -> None:
        """Do something for one attempt; when that fails, show it as its reason and try again later."""
        try:
            act(followed)
        except HostError:
            raise
        # A host may send anything, and a disk here may be full. Neither says anything about the other attempts.
        except Exception as error:
            self._close_stream(followed)
            with self._changed:
                followed.fail(error, self._now())
                self._changed.notify_all()
            return
        # Opening a log proves nothing yet.
        if followed.failures and act != self._open:
            with self._changed:
                followed.recover()
                self._changed.notify_all()

    def _close_stream(self, followed: FollowedAttempt) -> None:
        if followed.stream is not None:
            self._streams.remove(followed.stream)
            followed.stream.close()
            followed.stream = None
        followed.copy.end()
