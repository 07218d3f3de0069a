"""Runs one attempt on several hosts that share a file system: a part on each, and all of them end together.

Every part is an attempt of the engine of its host, with a record and a log of its own. The first host leads: it has the
files of the job. The attempt ends when all parts have; a part that fails ends the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rung.jobs.model.errors import EngineError, HostError, PartNotStarted, RungError
from rung.jobs.model.paths import AttemptPaths
from rung.runner.engines.group.merged_log import MergedLog
from rung.runner.engines.group.parts import Part, meeting_port, part_requests
from rung.runner.engines.group.summary import Seen, current, is_broken, outcome
from rung.runner.engines.on_host.done_record import read_done, write_done
from rung.runner.seams.engine import FileEntry, Observation, Presence, Request

# The time of the other ranks to say what they saw, once one has failed.
GRACE_SECONDS = 10.0


class GroupEngine:
    """Runs one attempt on its hosts, in the order of their ranks. It serves one thread at a time."""

    def __init__(
        self,
        parts: Sequence[Part],
        address: str,
        store_id: str,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`address`: where the other hosts reach the leading one."""
        self._parts, self._address, self._store_id, self._now = tuple(parts), address, store_id, now
        self._leader = parts[0].engine
        self.host = parts[0].host
        self._log: MergedLog | None = None
        # Since when the parts that still run are ended, because another one has failed.
        self._ending_since: float | None = None

    # Starting

    def start(self, request: Request, secrets: Mapping[str, str]) -> None:
        """Create all parts, then start them, so that no rank waits for the image of another host."""
        if request.paths.stop.exists():
            return
        port = meeting_port(self._store_id, request.job_id, request.attempt)
        requests = part_requests(request, [part.gpus for part in self._parts], f"{self._address}:{port}")
        made = list(zip(self._parts, requests, strict=True))
        self._make_folders(request.paths)
        try:
            for part, each in made:
                part.engine.create(each)
        except EngineError:
            self._discard(request.paths)
            raise
        try:
            for part, each in made:
                part.engine.start(each, secrets)
        except EngineError as error:
            # Not after a HostError: the start may have reached the host.
            self._discard(request.paths)
            raise PartNotStarted(str(error)) from None
        _begun(request.paths).touch()

    def _discard(self, paths: AttemptPaths) -> None:
        for part, its in self._with_paths(paths):
            part.engine.discard(its)

    def _with_paths(self, paths: AttemptPaths) -> list[tuple[Part, AttemptPaths]]:
        return [(part, paths.of_node(node)) for node, part in enumerate(self._parts)]

    def _make_folders(self, paths: AttemptPaths) -> None:
        for _, its in self._with_paths(paths):
            its.folder.mkdir(parents=True, exist_ok=True)

    # Watching and stopping

    def observe(self, paths: AttemptPaths) -> Observation:
        done = read_done(paths)
        if done is not None:
            return done
        self._make_folders(paths)
        seen = [Seen(part.host, part.engine.observe(its), its.stop.exists()) for part, its in self._with_paths(paths)]
        begun = _begun(paths).exists()
        if is_broken(seen, begun=begun):
            self._end_others(paths, seen)
        now = current(seen, begun=begun)
        if now is None:
            return self._finish(paths, seen)
        if now.presence is Presence.RUNNING:
            self._merged(paths).merge(self._now())
        return now

    def _end_others(self, paths: AttemptPaths, seen: Sequence[Seen]) -> None:
        """Ask the parts that still run to end, and end them after a while. One that is created only is removed."""
        since = self._ending_since = self._now() if self._ending_since is None else self._ending_since
        force = self._now() - since >= GRACE_SECONDS
        for (part, its), each in zip(self._with_paths(paths), seen, strict=True):
            runs = each.presence is Presence.RUNNING and (force or not each.asked_to_end)
            if runs or (each.presence is Presence.ABSENT and not each.asked_to_end):
                # A host that is away is asked again in the next turn.
                with suppress(HostError):
                    part.engine.stop(its, force=force)

    def _finish(self, paths: AttemptPaths, seen: Sequence[Seen]) -> Observation:
        log, end = self._merged(paths), outcome(seen)
        log.merge(self._now(), to_end=True)
        write_done(paths, end)
        log.remove_parts()
        return end

    def _merged(self, paths: AttemptPaths) -> MergedLog:
        if self._log is None:
            self._log = MergedLog(paths, [its for _, its in self._with_paths(paths)])
        return self._log

    def stop(self, paths: AttemptPaths, *, force: bool) -> None:
        """Stop every part that can be reached; then raise what could not be done."""
        # The mark comes first: a start that is under way finds the mark, or we find what it has started.
        self._make_folders(paths)
        paths.stop.touch()
        errors: list[RungError] = []
        for part, its in self._with_paths(paths):
            try:
                part.engine.stop(its, force=force)
            except (EngineError, HostError) as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def ask_for_stacks(self, paths: AttemptPaths) -> None:
        for part, its in self._with_paths(paths):
            part.engine.ask_for_stacks(its)

    def kill_unannounced(self, paths: AttemptPaths) -> None:
        self._leader.kill_unannounced(paths.of_node(0))

    # Files of the job, which the leading host has

    def copy(self, source: Request, request: Request, name: str, new_name: str | None = None) -> None:
        self._leader.copy(source, request, name, new_name)

    def remove_residence(self, request: Request, residence: int) -> None:
        self._leader.remove_residence(request, residence)

    def run(self, argv: Sequence[str], request: Request, timeout: float) -> tuple[int, str, str]:
        return self._leader.run(argv, request, timeout)

    def list_files(self, request: Request, pattern: str) -> list[FileEntry]:
        return self._leader.list_files(request, pattern)

    def move(self, request: Request, names: Sequence[str], aside: Path) -> None:
        self._leader.move(request, names, aside)


def _begun(paths: AttemptPaths) -> Path:
    """Return the mark that all parts have been started: what is missing from now on is gone."""
    return paths.folder / "nodes" / "begun"
