"""Keeps versions of a checkpoint file that every save overwrites: checkpoint.pattern names one file, without a *.

A version is a copy beside the file: `ckpt.rung-step-200.pt` where the step is known, else `ckpt.rung-t17633921792.pt`
with the time of writing. Never a hard link: torch.save writes into the same inode again. A copy has the size and the
time of its original, is made under a hidden name, and gets its name when it is whole. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time

# Before the step or the time in a version's name; the controller knows it too.
MARK = ".rung-"
LEAST, DEFAULT = 4, 5
# The oldest version is dropped only if the next one is this many saves old: a fault may be seen late.
REACH = 16
# A draft that nobody has written to for this long was left by a process that was killed.
STALE_SECONDS = 900.0
# ioctl: share the blocks of another file, where the filesystem can (btrfs, XFS).
FICLONE = 0x40049409
# As they were when this was imported: zero-edit follows files by the renames that the script makes.
_rename, _replace = os.rename, os.replace


def watched_file() -> str | None:
    """Return the path of the one file that checkpoints are saved to; None if they have names of their own."""
    folder, name = os.environ.get("RUNG_CHECKPOINT_DIR", ""), os.environ.get("RUNG_CHECKPOINT_PATTERN", "")
    return os.path.join(folder, name) if folder and name and "*" not in name else None


def is_watched(path: str) -> bool:
    """Return whether this is the one file that checkpoints are saved to."""
    watched = watched_file()
    if watched is None or os.path.basename(path) != os.path.basename(watched):
        return False
    return os.path.realpath(os.path.dirname(os.path.abspath(path))) == os.path.realpath(os.path.dirname(watched))


def keep(path: str, step: int | None = None) -> str | None:
    """Keep the file as it is now, and return the name of its version; None if it changed meanwhile or was rejected.

    What is kept already is not copied again. Raises OSError, for one where the disk is full.
    """
    before = os.stat(path)
    if not stat.S_ISREG(before.st_mode) or not before.st_size or _is_rejected(path, before):
        return None
    folder, name = os.path.split(path)
    wanted = version_name(name, "step-%d" % step if step is not None else "t%d" % (before.st_mtime_ns // 10**6))
    there = next((each for each in versions(path) if is_copy(os.path.join(folder, each), before)), None)
    if there is None:
        if not _copy(path, os.path.join(folder, wanted), before):
            return None
        prune(path)
        return wanted
    if step is None or there == wanted:
        return there
    # It was kept from outside first, where the step is not known.
    _replace(os.path.join(folder, there), os.path.join(folder, wanted))
    return wanted


def reject(path: str) -> None:
    """Let nobody keep the file as it is now: bad versions would push out good ones."""
    with open(_rejection(path), "w", encoding="ascii") as file:
        file.write(_facts(os.stat(path)))


def _is_rejected(path: str, found: os.stat_result) -> bool:
    try:
        with open(_rejection(path), encoding="ascii") as file:
            return file.read(100) == _facts(found)
    except (OSError, ValueError):
        return False


def _rejection(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, ".%s.rejected" % name)


def _facts(found: os.stat_result) -> str:
    return "%d %d" % (found.st_size, found.st_mtime_ns)


def version_name(name: str, which: str) -> str:
    stem, dot, endings = name.partition(".")
    return stem + MARK + which + dot + endings


def versions(path: str) -> list[str]:
    """Return the names of the versions of a file, newest first."""
    folder, name = os.path.split(path)
    stem, dot, endings = name.partition(".")
    found = []
    for each in os.listdir(folder or os.curdir):
        if each.startswith(stem + MARK) and each.endswith(dot + endings):
            with contextlib.suppress(OSError):
                found.append((os.stat(os.path.join(folder, each)).st_mtime_ns, each))
    return [each for _, each in sorted(found, reverse=True)]


def is_copy(path: str, original: os.stat_result) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return (found.st_size, found.st_mtime_ns) == (original.st_size, original.st_mtime_ns)


def _copy(path: str, version: str, before: os.stat_result) -> bool:
    """Copy a file under a hidden name, and rename it if the original has not changed meanwhile."""
    folder, name = os.path.split(version)
    draft = os.path.join(folder, ".%s.%d.tmp" % (name, os.getpid()))
    try:
        with open(path, "rb") as source, open(draft, "wb") as target:
            if not _clone(source.fileno(), target.fileno()):
                shutil.copyfileobj(source, target, 1 << 20)
        after = os.stat(path)
        facts = [(each.st_ino, each.st_size, each.st_mtime_ns) for each in (before, after)]
        if facts[0] != facts[1] or os.path.getsize(draft) != before.st_size:
            return False
        os.chmod(draft, stat.S_IMODE(before.st_mode))
        os.utime(draft, ns=(before.st_atime_ns, before.st_mtime_ns))
        _rename(draft, version)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(draft)
    return True


def _clone(source: int, target: int) -> bool:
    try:
        import fcntl

        fcntl.ioctl(target, FICLONE, source)
    except (ImportError, OSError):
        return False
    return True


def prune(path: str) -> None:
    """Remove the versions that are too many, and drafts that a killed process left."""
    folder, name = os.path.split(path)
    found = versions(path)
    times = {each: _written_at(os.path.join(folder, each)) for each in found}
    for each in too_many([(each, times[each]) for each in found], how_many()):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, each))
    stem = name.partition(".")[0]
    for each in os.listdir(folder or os.curdir):
        draft = os.path.join(folder, each)
        left = each.startswith("." + stem + MARK) and each.endswith(".tmp")
        if left and time.time() - _written_at(draft) > STALE_SECONDS:
            with contextlib.suppress(OSError):
                os.unlink(draft)


def _written_at(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return time.time()


def how_many() -> int:
    text = os.environ.get("RUNG_CHECKPOINT_KEEP", "").strip()
    return max(LEAST, int(text)) if text.isdigit() else DEFAULT


def too_many(found: list[tuple[str, float]], keep: int) -> list[str]:
    """Return the versions to drop of these, newest first: the newest two stay, and the others thin out with their age.

    Five of them are then about 0, 1, 3, 7 and 16 or more saves old: many bad ones do not push out all good ones.
    """
    left, dropped = list(found), []
    while len(left) > keep:
        ages = [max(left[0][1] - at, 1e-6) for _, at in left]
        last = len(left) - 1
        if ages[last - 1] >= REACH * ages[1]:
            index = last
        else:
            index = min(range(2, last), key=lambda each: ages[each + 1] / ages[each - 1])
        dropped.append(left.pop(index)[0])
    return dropped
