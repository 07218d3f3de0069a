"""Reads files of torch.save, an archive or the format before torch 1.6, without torch.load and without running them."""

from __future__ import annotations

import re
import tarfile
from dataclasses import dataclass
from typing import Any

from rung_inside.verify.finiteness import tensors_in
from rung_inside.verify.pickles.machine import Machine
from rung_inside.verify.pickles.objects import Name
from rung_inside.verify.pickles.permissions import is_plain_for_torch
from rung_inside.verify.stored.mapped_file import Window, map_file
from rung_inside.verify.stored.verdict import CORRUPT, REFUSED, TRUNCATED, UNREADABLE, UNVERIFIED, Content, Unfit
from rung_inside.verify.zip_archive import MAGIC, check_sums, read_archive

# The first of the pickles in a file before torch 1.6.
OLD_MAGIC = 0x1950A86A20F9469CFC6C
LITTLE = b"little"
COUNT_BYTES = 8
# What torch.save writes into an archive, besides its one folder.
RECORD = re.compile(
    r"data\.pkl|byteorder|version|\.format_version|\.storage_alignment|\.data/serialization_id|data/[\w.-]+"
)


@dataclass(frozen=True)
class Loaded:
    """What a file holds, and the classes and functions that it names."""

    state: Any
    names: tuple[Name, ...]


def read_torch(path: str, full: bool, *, follow: bool = True) -> Content:
    """Return what a file of torch.save holds; a full check also checks its checksums."""
    loaded = load(map_file(path, follow=follow), full)
    lightning = isinstance(loaded.state, dict) and "pytorch-lightning_version" in loaded.state
    foreign = tuple(str(name) for name in loaded.names if not is_plain_for_torch(name))
    return Content("lightning" if lightning else "torch", tensors_in(loaded.state), loaded.state, foreign)


def load(window: Window, full: bool) -> Loaded:
    """Return the content of a file, or of a part of one; its tensors stay in the file."""
    head = window.read(0, len(MAGIC))
    if not head:
        raise Unfit(TRUNCATED, "is empty")
    if head == MAGIC:
        return _from_archive(window, full)
    if MAGIC.startswith(head):
        raise Unfit(TRUNCATED, "the archive has no end: it was not written to the last byte")
    return _from_old_file(window)


def _from_archive(window: Window, full: bool) -> Loaded:
    files = read_archive(window)
    if full:
        check_sums(window)
    folder = _checked_folder(files)
    if f"{folder}byteorder" in files and files[f"{folder}byteorder"].read(0, 10) != LITTLE:
        raise Unfit(UNVERIFIED, "was written on a machine with another order of bytes")
    machine = Machine(files[f"{folder}data.pkl"])
    state = machine.run()
    for key, storage in machine.storages.items():
        if f"{folder}data/{key}" not in files:
            raise Unfit(CORRUPT, f"data/{key[:100]}, which it names, is not in the archive")
        storage.place(files[f"{folder}data/{key}"])
    machine.check_later()
    return Loaded(state, tuple(machine.names))


def _checked_folder(files: dict[str, Window]) -> str:
    """Return the only folder of an archive, which holds nothing but what torch.save writes."""
    pickles = [name for name in files if name.lower().rpartition("/")[2] == "data.pkl"]
    if not pickles:
        raise Unfit(UNREADABLE, "is an archive, but none of torch.save")
    folder = pickles[0][: -len("data.pkl")]
    if len(pickles) > 1 or folder.find("/") != len(folder) - 1 or not all(name.startswith(folder) for name in files):
        raise Unfit(CORRUPT, "is an archive with more than one content")
    if f"{folder}constants.pkl" in files:
        raise Unfit(REFUSED, "is a TorchScript archive, which holds code")
    for name in files:
        if RECORD.fullmatch(name[len(folder) :]) is None:
            raise Unfit(CORRUPT, f"is an archive with {name[:100]} in it, which torch.save does not write")
    return folder


def _from_old_file(window: Window) -> Loaded:
    """Read the format before torch 1.6: three pickles of metadata, the content, the keys, then the numbers."""
    at = _after_header(window)
    machine = Machine(window, at)
    state = machine.run()
    at = machine.reader.at
    reader = Machine(window, at)
    keys = reader.run()
    if not isinstance(keys, list) or reader.names:
        raise Unfit(CORRUPT, "its list of storages is damaged")
    at = reader.reader.at
    for key in keys:
        storage = machine.storages.pop(key, None) if isinstance(key, str) else None
        if storage is None:
            raise Unfit(CORRUPT, "its list of storages is damaged")
        at += COUNT_BYTES
        if at + storage.nbytes > window.length:
            raise Unfit(TRUNCATED, f"{at + storage.nbytes - window.length} bytes of its numbers are missing")
        storage.place(window.part(at, storage.nbytes))
        at += storage.nbytes
    if machine.storages:
        raise Unfit(CORRUPT, "its list of storages is damaged")
    machine.check_later()
    return Loaded(state, tuple(machine.names))


def _after_header(window: Window) -> int:
    """Return where the content starts, after the magic number, the version and facts about the machine."""
    if is_tar(window):
        raise Unfit(REFUSED, "is a tar archive; only torch before 0.2 wrote such, and loading one runs any code")
    at = 0
    for number in range(3):
        machine = Machine(window, at)
        try:
            value = machine.run()
        except Unfit as unfit:
            if number == 0 and unfit.verdict != TRUNCATED:
                raise Unfit(UNREADABLE, "is not a file of torch.save") from None
            raise
        if number == 0 and value != OLD_MAGIC:
            raise Unfit(UNREADABLE, "is not a file of torch.save")
        if number == 2 and isinstance(value, dict) and value.get("little_endian") is False:
            raise Unfit(UNVERIFIED, "was written on a machine with another order of bytes")
        at = machine.reader.at
    return at


def is_tar(window: Window) -> bool:
    """Return whether torch.load would read a tar archive, before it even looks for pickles."""
    try:
        tarfile.TarInfo.frombuf(window.read(0, tarfile.BLOCKSIZE), "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    except Exception:  # A header with odd numbers may raise anything; torch.load then fails, too.
        return False
    return True
