"""Follows all containers of one host in a single thread and keeps the latest observation of each.

Every log is a channel on the one connection to the host, read when data has arrived. The end of a log only triggers an
inspection of the container; the engine's answer and the record on the host decide. A container that has ended counts as
running until all of its log is here. This module starts and stops no container.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable

from rung.jobs.model.errors import EngineError, HostError, HostRefused, RungError
from rung.jobs.model.paths import AttemptPaths
from rung.jobs.model.terminal_text import clean
from rung.runner.engines.docker.completion import Completion
from rung.runner.engines.docker.container_config import STORE_LABEL
from rung.runner.engines.docker.container_state import ContainerState, Status, parse_inspect, parse_list
from rung.runner.engines.docker.followed_attempt import FollowedAttempt, span
from rung.runner.engines.docker.log_copy import LogCopy
from rung.runner.engines.docker.log_stream import LogStream
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
# Before a log is opened again that ended, or could not be written here, while its container still runs.
REOPEN_SECONDS = 1.0
OUT_OF_MEMORY = "rung: the container reached its memory limit, and the kernel killed a process: out of memory"


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
        self._streams: dict[int, FollowedAttempt] = {}
        self._poll = select.poll()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll.register(self._wake_read, select.POLLIN)

    # Called from any thread

    def observation(self, name: str, paths: AttemptPaths) -> Observation:
        """Return the latest observation of an attempt; wait for the first one, but not for an unreachable host."""
        deadline = self._now() + FIRST_ANSWER_SECONDS
        with self._changed:
            followed = self._follow(name, paths)
            while followed.observation is None and not (self._unreachable or followed.disk_error or self._closed):
                if not self._changed.wait(max(0.0, deadline - self._now())):
                    return Observation(Presence.WAITING, detail=f"{self._api.host} is being asked")
            if followed.finalized and followed.observation is not None:
                return followed.observation
            if self._unreachable:
                return Observation(Presence.UNREACHABLE, detail=self._why_unreachable())
            if followed.disk_error or followed.observation is None:
                return Observation(Presence.WAITING, detail=followed.disk_error or f"{self._api.host} is not watched")
            return followed.observation

    def invalidate(self, name: str, paths: AttemptPaths) -> None:
        """Drop the observation of an attempt, because something was just done to it, and follow it from now on."""
        with self._changed:
            followed = self._follow(name, paths)
            if not followed.finalized:
                followed.observation, followed.version = None, followed.version + 1
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
            self._thread.join()

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
            with contextlib.suppress(OSError):
                os.write(self._wake_write, b".")

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
            if followed.needs_inspection:
                self._inspect(followed)
            if followed.wants_stream and self._now() >= followed.reopen_at:
                self._writing_here(followed, self._open)
        if self._now() >= self._polled_at + POLL_ALL_SECONDS:
            self.poll_all()
        self._read_ready()
        for followed in list(self._streams.values()):
            if followed.copy.unsaved and self._now() >= followed.save_at:
                self._writing_here(followed, lambda each: each.copy.save())

    def _read_ready(self) -> None:
        ready = self._poll.poll(self._poll_timeout() * 1000)
        if len(self._streams) > FEW_STREAMS:
            # With many logs it is far cheaper to read together what arrives within a moment.
            self._sleep(GATHER_SECONDS)
        for number, _ in ready:
            if number == self._wake_read:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)
            elif number in self._streams:
                self._writing_here(self._streams[number], self._read)

    def _poll_timeout(self) -> float:
        """Return how long there is nothing to do unless data arrives."""
        moments = [self._polled_at + POLL_ALL_SECONDS]
        for followed in self._attempts():
            if followed.needs_inspection:
                return 0.0
            if followed.wants_stream:
                moments.append(followed.reopen_at)
            elif followed.stream is not None and followed.copy.unsaved:
                moments.append(followed.save_at)
        return max(0.0, min(moments) - self._now())

    def poll_all(self) -> None:
        """Mark every attempt for inspection whose state differs from the engine's list of containers."""
        listed = parse_list(self._api.containers({STORE_LABEL: self._completion.store_id}))
        self._polled_at = self._answered_at = self._now()
        for followed in self._attempts():
            if not followed.finalized and listed.get(followed.name, Status.ABSENT) is not followed.state.status:
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
                self._writing_here(followed, lambda each: self._finalize(each, state))
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
        self._streams[followed.stream.fileno] = followed
        self._poll.register(followed.stream.fileno, select.POLLIN)

    def _read(self, followed: FollowedAttempt) -> None:
        stream = followed.stream
        assert stream is not None, "only open streams are read"
        damage = ""
        try:
            entries = stream.read()
            self._answered_at = self._now()
            if entries and not followed.copy.unsaved:
                followed.save_at = self._now() + SAVE_SECONDS
            followed.copy.take(entries)
            damage = stream.damage
        except EngineError as error:
            damage = str(error)
        if not stream.ended and not damage:
            return
        self._close_stream(followed)
        followed.reopen_at = self._now() + REOPEN_SECONDS
        if followed.state.status is Status.ENDED:
            if damage:
                followed.copy.append_note(f"rung: the host cannot read the rest of this log: {clean(damage)}")
            self._finalize(followed, followed.state)
        else:
            followed.version += 1

    def _finalize(self, followed: FollowedAttempt, state: ContainerState) -> None:
        if state.out_of_memory:
            followed.copy.append_note(OUT_OF_MEMORY)
        followed.copy.finish()
        end = self._completion.finalize(followed.name, followed.paths, state)
        with self._changed:
            followed.observation, followed.finalized = end, True
            self._changed.notify_all()

    def _writing_here(self, followed: FollowedAttempt, act: Callable[[FollowedAttempt], None]) -> None:
        """Do something that writes to the disk here; when that fails, report it and retry later."""
        why = ""
        try:
            act(followed)
        except OSError as error:
            self._close_stream(followed)
            followed.reopen_at = self._now() + REOPEN_SECONDS
            why = f"{error.filename or followed.paths.log}: cannot be written here: {error.strerror or error}"
        if why != followed.disk_error:
            with self._changed:
                followed.disk_error = why
                self._changed.notify_all()

    def _close_stream(self, followed: FollowedAttempt) -> None:
        if followed.stream is not None:
            self._poll.unregister(followed.stream.fileno)
            del self._streams[followed.stream.fileno]
            followed.stream.close()
            followed.stream = None
        followed.copy.end()
