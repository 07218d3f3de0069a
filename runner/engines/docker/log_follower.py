"""Owns the lookout on one host: a single thread that follows all its containers and keeps the last word on each.

Every log is a channel on the host's one connection, read when something has come in. The end of a log only makes it
look at the container; what the engine says then, and the record on the host, decide. A container that has ended counts
as running until all of its log is here. The lookout starts and stops nothing.
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
from rung.runner.engines.docker.container_state import STATUS, ContainerState, Status, parse_inspect
from rung.runner.engines.docker.followed_attempt import FollowedAttempt, span
from rung.runner.engines.docker.log_copy import LogCopy
from rung.runner.engines.docker.log_stream import Entry, LogStream
from rung.runner.seams.engine import Observation, Presence

# A caller waits so long for the first word; a host that is away is told at once.
FIRST_SECONDS = 10.0
# Between two looks at all containers, for what no log tells.
ROUND_SECONDS = 5.0
# Between two tries while the host or its engine is away; the connection has a back-off of its own.
AWAY_SECONDS = 0.5
# What came since the cursor was last written is read again by the next controller, which costs little.
SAVE_SECONDS = 5.0
FEW = 4
GATHER_SECONDS = 0.02
# Before a log is opened again that ended, or could not be kept, although its container runs on.
REOPEN_SECONDS = 1.0


class LogFollower:
    """Follows the containers of one host; `settler` writes the last word on those that have ended."""

    def __init__(
        self,
        settler: Completion,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settler, self._api, self._now, self._sleep = settler, settler.api, now, sleep
        self._followed: dict[AttemptPaths, FollowedAttempt] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._away, self._refused = "", False
        self._answered_at = self._rounded_at = now()
        self._streams: dict[int, FollowedAttempt] = {}
        self._poll = select.poll()
        self._heard, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll.register(self._heard, select.POLLIN)

    # Asked from any thread

    def word(self, name: str, paths: AttemptPaths) -> Observation:
        """Return the last word on an attempt; wait for the first one, but not for a host that is away."""
        deadline = self._now() + FIRST_SECONDS
        with self._changed:
            followed = self._follow(name, paths)
            while followed.word is None and not self._away and not followed.trouble and not self._closed:
                if not self._changed.wait(max(0.0, deadline - self._now())):
                    return Observation(Presence.WAITING, detail=f"{self._api.host} is being asked")
            if followed.settled and followed.word is not None:
                return followed.word
            if self._away:
                return Observation(Presence.UNREACHABLE, detail=self._why_away())
            if followed.trouble or followed.word is None:
                return Observation(Presence.WAITING, detail=followed.trouble or f"{self._api.host} is not watched")
            return followed.word

    def doubt(self, name: str, paths: AttemptPaths) -> None:
        """Take the last word on an attempt back, and follow it from now on: something was just done to it."""
        with self._changed:
            followed = self._follow(name, paths)
            if not followed.settled:
                followed.word, followed.doubts = None, followed.doubts + 1
        self._rouse()

    def forget(self, paths: AttemptPaths) -> None:
        """Drop an attempt whose last word is written."""
        with self._changed:
            followed = self._followed.get(paths)
            if followed is not None and followed.settled:
                del self._followed[paths]

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._rouse()
        if self._thread is not None:
            self._thread.join()

    def _follow(self, name: str, paths: AttemptPaths) -> FollowedAttempt:
        if paths not in self._followed:
            self._followed[paths] = FollowedAttempt(name, paths, LogCopy(paths))
            self._rouse()
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._watch, name=f"lookout on {self._api.host}", daemon=True)
            self._thread.start()
        return self._followed[paths]

    def _why_away(self) -> str:
        if self._refused:
            return self._away
        return f"{self._api.host} has not answered for {span(self._now() - self._answered_at)}: {self._away}"

    def _rouse(self) -> None:
        if not self._closed or self._thread is not None:
            with contextlib.suppress(OSError):
                os.write(self._wake, b".")

    # The thread's own

    def _watch(self) -> None:
        while not self._closed:
            try:
                self._api.hello()
                self._back()
                while not self._closed:
                    self._turn()
            except (EngineError, HostError) as error:
                self._lost(error)
            # A host may say anything. Whatever we stumble over, nobody else would follow its containers.
            except Exception as error:
                self._lost(EngineError(f"what it says is not understood: {type(error).__name__}: {clean(str(error))}"))
        for followed in self._all():
            self._drop(followed)
            with contextlib.suppress(OSError):
                followed.copy.save()

    def _all(self) -> list[FollowedAttempt]:
        with self._changed:
            return list(self._followed.values())

    def _back(self) -> None:
        with self._changed:
            self._away, self._refused = "", False
            self._answered_at = self._rounded_at = self._now()
            for followed in self._followed.values():
                followed.doubts += 1

    def _lost(self, error: RungError) -> None:
        for followed in self._all():
            self._drop(followed)
        with self._changed:
            self._away = str(error).removeprefix(f"{self._api.host}: ")
            self._refused = isinstance(error, HostRefused)
            self._changed.notify_all()
            if not self._closed:
                self._changed.wait(AWAY_SECONDS)

    def _turn(self) -> None:
        """Look at what is in doubt, open what is to be read, then wait for something to come in."""
        for followed in self._all():
            if followed.doubts > followed.looked:
                self._look(followed)
            if followed.wants_stream and self._now() >= followed.reopen_at:
                self._keeping(followed, self._open)
        if self._now() >= self._rounded_at + ROUND_SECONDS:
            self._round()
        self._read_ready()
        for followed in list(self._streams.values()):
            if followed.copy.unsaved and self._now() >= followed.save_at:
                self._keeping(followed, lambda each: each.copy.save())

    def _read_ready(self) -> None:
        ready = self._poll.poll(self._patience() * 1000)
        if len(self._streams) > FEW:
            # Many logs: what comes within a moment is read together, at a fraction of the cost.
            self._sleep(GATHER_SECONDS)
        for number, _ in ready:
            if number == self._heard:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._heard, 4096)
            elif number in self._streams:
                self._keeping(self._streams[number], self._read)

    def _patience(self) -> float:
        """Return how long there is nothing to do unless something comes in."""
        moments = [self._rounded_at + ROUND_SECONDS]
        for followed in self._all():
            if followed.doubts > followed.looked:
                return 0.0
            if followed.wants_stream:
                moments.append(followed.reopen_at)
            elif followed.stream is not None and followed.copy.unsaved:
                moments.append(followed.save_at)
        return max(0.0, min(moments) - self._now())

    def _round(self) -> None:
        """Doubt every word that the engine's list of containers does not bear out."""
        listed = {}
        for container in self._api.containers({STORE_LABEL: self._settler.store_id}):
            for name in container.get("Names") or ():
                listed[str(name).lstrip("/")] = STATUS.get(str(container.get("State")), Status.RUNNING)
        self._rounded_at = self._answered_at = self._now()
        for followed in self._all():
            if not followed.settled and listed.get(followed.name, Status.ABSENT) is not followed.seen.status:
                followed.doubts += 1

    def _look(self, followed: FollowedAttempt) -> None:
        doubts = followed.doubts
        seen = parse_inspect(self._api.inspect(followed.name))
        self._answered_at = self._now()
        if followed.settled:
            followed.looked = doubts
            return
        word = Observation(Presence.ABSENT)
        if seen.status is Status.ABSENT:
            if self._settler.record(followed.paths).began:
                # Somebody removed it. What is here of its log is all there will be.
                self._keeping(followed, lambda each: self._settle(each, seen))
        elif seen.status is not Status.CREATED:
            word = Observation(Presence.RUNNING, started_at=seen.started_at)
        if seen.status is not followed.seen.status:
            # The log of an ended container is asked for anew: only then is its end the end.
            self._drop(followed)
            followed.reopen_at = 0.0
        followed.seen, followed.looked = seen, doubts
        if not followed.settled:
            self._say(followed, word, doubts)

    def _say(self, followed: FollowedAttempt, word: Observation, doubts: int) -> None:
        with self._changed:
            if followed.doubts == doubts:
                followed.word = word
            self._changed.notify_all()

    def _open(self, followed: FollowedAttempt) -> None:
        followed.copy.begin()
        follow = followed.seen.status is Status.RUNNING
        followed.stream = LogStream(self._api.open_log(followed.name, followed.copy.since, follow=follow))
        self._streams[followed.stream.fileno] = followed
        self._poll.register(followed.stream.fileno, select.POLLIN)

    def _read(self, followed: FollowedAttempt) -> None:
        stream = followed.stream
        assert stream is not None, "only open streams are read"
        damage = ""
        try:
            self._take(followed, stream.read())
            damage = stream.damage
        except EngineError as error:
            damage = str(error)
        if not stream.ended and not damage:
            return
        self._drop(followed)
        followed.reopen_at = self._now() + REOPEN_SECONDS
        if followed.seen.status is Status.ENDED:
            if damage:
                followed.copy.note(f"rung: the host cannot read the rest of this log: {clean(damage)}")
            self._settle(followed, followed.seen)
        else:
            followed.doubts += 1

    def _take(self, followed: FollowedAttempt, entries: list[Entry]) -> None:
        self._answered_at = self._now()
        if entries and not followed.copy.unsaved:
            followed.save_at = self._now() + SAVE_SECONDS
        followed.copy.take(entries)

    def _settle(self, followed: FollowedAttempt, seen: ContainerState) -> None:
        if seen.out_of_memory:
            followed.copy.note(
                "rung: the container reached its memory limit, and the kernel killed a process: out of memory"
            )
        followed.copy.finish()
        end = self._settler.settle(followed.name, followed.paths, seen)
        with self._changed:
            followed.word, followed.settled = end, True
            self._changed.notify_all()

    def _keeping(self, followed: FollowedAttempt, act: Callable[[FollowedAttempt], None]) -> None:
        """Do something that writes to this machine's disk; when that fails, say so and try again later."""
        try:
            act(followed)
        except OSError as error:
            self._drop(followed)
            followed.reopen_at = self._now() + REOPEN_SECONDS
            why = f"{error.filename or followed.paths.log}: cannot be written here: {error.strerror or error}"
        else:
            why = ""
        if why != followed.trouble:
            with self._changed:
                followed.trouble = why
                self._changed.notify_all()

    def _drop(self, followed: FollowedAttempt) -> None:
        if followed.stream is not None:
            self._poll.unregister(followed.stream.fileno)
            del self._streams[followed.stream.fileno]
            followed.stream.close()
            followed.stream = None
        followed.copy.end()
