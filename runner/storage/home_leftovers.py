"""Finds and removes what old commands left in RUNG_HOME itself: reports of validations, copies of a killed `--from`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR

from rung.runner.context import Context
from rung.runner.files.disk_use import disk_use
from rung.runner.files.own_folder import remove_below
from rung.runner.seams.storage import total_use
from rung.runner.storage.here import HERE
from rung.runner.storage.plan import REPORTS, STARTS, Removal


def plan_leftovers(context: Context, *, older: float, now: float) -> list[Removal]:
    """Plan for what was written more than `older` seconds ago; a validation without a verdict keeps its report."""
    home = context.paths.home
    wanted = {what: tuple(sorted(paths)) for what, paths in _old(context, now - older).items() if paths}
    uses = iter(disk_use(home / path for paths in wanted.values() for path in paths))
    return [Removal(None, HERE, what, paths, total_use(next(uses) for _ in paths)) for what, paths in wanted.items()]


def remove_leftovers(context: Context, paths: Sequence[str]) -> None:
    """Remove these paths below RUNG_HOME. The caller holds the lock for removals, so no `--from` is under way."""
    for path in paths:
        remove_below(context.paths.home, path)


def _old(context: Context, before: float) -> dict[str, list[str]]:
    home, reports = context.paths.home, context.paths.validation("v0").parent
    active = {context.paths.validation(f"v{number}") for number, _, _ in context.store.validations(active=True)}
    return {
        REPORTS: [str(each.relative_to(home)) for each in _folders(reports, "v*", before) if each not in active],
        STARTS: [each.name for each in _folders(home, ".from-*", before)],
    }


def _folders(parent: Path, pattern: str, before: float) -> Iterator[Path]:
    """Yield the folders of this name that were last written to before this time; a link is no folder."""
    for path in parent.glob(pattern):
        # A launch that ends just now removes its own.
        with suppress(FileNotFoundError):
            found = path.lstat()
            if S_ISDIR(found.st_mode) and found.st_mtime < before:
                yield path
