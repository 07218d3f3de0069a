"""Reads files of a folder that may be pickles, whatever their names are: the job may load any of them.

A file that is no pickle is none of Rung's business. But one that would run code when it is loaded makes its folder
`refused`, and one that begins as a pickle has to be one to its end.
"""

from __future__ import annotations

import re
from typing import Any, Iterable

from rung_inside.verify.finiteness import tensors_in
from rung_inside.verify.pickles.machine import Machine
from rung_inside.verify.pickles.objects import Name
from rung_inside.verify.stored.mapped_file import Window, map_file
from rung_inside.verify.stored.verdict import REFUSED, TRUNCATED, UNVERIFIED, Content, Unfit
from rung_inside.verify.torch_file import OLD_MAGIC, is_tar, read_torch
from rung_inside.verify.zip_archive import MAGIC

# How every pickle begins since Python 2.3, unless it is asked to be older.
PROTOCOL = re.compile(rb"\x80[\x01-\x05]")
IN_ARCHIVE, IN_TAR = re.compile(rb"data\.pkl", re.IGNORECASE), re.compile(rb"storages")


def read_if_pickled(path: str, full: bool, *, surely: bool) -> Content | None:
    """Return what a pickle or a file of torch.save holds; None if the file is neither, unless it is `surely` one."""
    window = map_file(path, follow=False)
    head = window.read(0, len(MAGIC))
    if head == MAGIC:
        found = surely or IN_ARCHIVE.search(window.buffer) is not None
        return read_torch(path, full, follow=False) if found else None
    if is_tar(window):
        if IN_TAR.search(window.buffer) is not None:
            raise Unfit(REFUSED, "is a tar archive; only torch before 0.2 wrote such, and loading one runs any code")
        return None
    if surely and not head:
        raise Unfit(TRUNCATED, "is empty")
    surely = surely or PROTOCOL.match(head) is not None
    machine = Machine(window)
    try:
        value = machine.run()
    except Unfit as unfit:
        if surely or (unfit.verdict == REFUSED and _importable(machine.names)):
            raise
        return None
    if value == OLD_MAGIC:
        return read_torch(path, full, follow=False)
    return _plain(window, machine, value) if surely else None


def _plain(window: Window, machine: Machine, value: Any) -> Content:
    """Return what plain pickles hold, one after the other; numbers of torch are in none of them."""
    values, at = [value], machine.reader.at
    while at < window.length:
        if machine.storages:
            break
        machine = Machine(window, at)
        values.append(machine.run())
        at = machine.reader.at
    if machine.storages:
        raise Unfit(UNVERIFIED, "holds a storage of an unknown kind")
    return Content("pickle", tensors_in(values), values[0])


def _importable(names: Iterable[Name]) -> bool:
    """Return whether the last of some names can be one of Python. A text may begin like a pickle, but not with such."""
    last = list(names)[-1:]
    return all(part.isidentifier() for name in last for part in (*name.module.split("."), *name.name.split(".")))
