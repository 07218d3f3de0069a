"""Reads files of torch.save, an archive or the older format, without running their code."""

from __future__ import annotations

import inspect
import io
import mmap
import pickle
import struct
import zipfile
from typing import Any

from rung_inside.verify.finiteness import tensors_in
from rung_inside.verify.safe_pickle import PlainUnpickler, is_harmless
from rung_inside.verify.verdict import CORRUPT, REFUSED, TRUNCATED, UNREADABLE, UNVERIFIED, Content, Unfit, first_line

ZIP_MAGIC = b"PK\x03\x04"
LOCAL_HEADER = 30


def read_torch(path: str, full: bool) -> Content:
    """Return what a file of torch.save holds; a full check also checks its checksums."""
    with open(path, "rb") as file:
        head = file.read(len(ZIP_MAGIC))
    if not head:
        raise Unfit(TRUNCATED, "is empty")
    if ZIP_MAGIC.startswith(head):
        check_archive(path, full)
    state, foreign = load(path, head == ZIP_MAGIC)
    lightning = isinstance(state, dict) and "pytorch-lightning_version" in state
    return Content("lightning" if lightning else "torch", tensors_in(state), state, foreign)


def check_archive(source: Any, full: bool) -> None:
    """Check that the archive is complete and, if `full`, the CRCs that torch.save writes and torch.load skips."""
    try:
        archive = zipfile.ZipFile(source)
    except (zipfile.BadZipFile, EOFError, ValueError, OverflowError):
        raise Unfit(TRUNCATED, "the archive has no end: it was not written to the last byte") from None
    with archive:
        # torch.serialization.set_crc32_options(False) leaves them out.
        if not full or all(entry.CRC == 0 for entry in archive.infolist() if entry.file_size):
            return
        try:
            bad = archive.testzip()
        except Exception as error:  # zlib, struct and zipfile each have errors of their own for damaged headers.
            raise Unfit(CORRUPT, first_line(error)) from None
    if bad is not None:
        raise Unfit(CORRUPT, f"checksum of {bad} does not match its bytes")


def load(source: Any, zipped: bool) -> tuple[Any, tuple[str, ...]]:
    """Return the content of a path or a file in memory, and the classes that a plain load refuses."""
    import torch

    known = inspect.signature(torch.load).parameters
    if "weights_only" not in known:
        return _load_with_dummies(source, zipped)
    options: dict[str, Any] = {"map_location": "cpu", "weights_only": True}
    if zipped and "mmap" in known and isinstance(source, str):
        # Reads only what the check touches: a checkpoint may be larger than the memory.
        options["mmap"] = True
    try:
        return torch.load(source, **options), ()
    except EOFError as error:
        raise Unfit(TRUNCATED, first_line(error)) from None
    except pickle.UnpicklingError as error:
        if "truncated" in str(error):
            raise Unfit(TRUNCATED, "the pickle ends too early") from None
        return _load_with_dummies(source, zipped)


def _load_with_dummies(source: Any, zipped: bool) -> tuple[Any, tuple[str, ...]]:
    """Read a file with a dummy for every class; refuse one that is not known to be harmless."""
    try:
        state, foreign = _from_archive(source) if zipped else _from_old_file(source)
    except Unfit:
        raise
    except Exception as error:  # A damaged pickle may raise anything.
        raise Unfit(UNREADABLE, first_line(error)) from None
    for name in foreign:
        if not is_harmless(name):
            raise Unfit(REFUSED, f"would run {name} when loaded")
    return state, foreign


def _from_archive(source: Any) -> tuple[Any, tuple[str, ...]]:
    if not isinstance(source, str):
        source.seek(0)
    with zipfile.ZipFile(source) as archive:
        names = {entry.filename: entry for entry in archive.infolist()}
        pickled = next((name for name in names if name.rpartition("/")[2] == "data.pkl"), None)
        if pickled is None:
            raise Unfit(UNREADABLE, "is an archive, but none of torch.save")
        folder = pickled[: -len("data.pkl")]
        if f"{folder}byteorder" in names and archive.read(f"{folder}byteorder") != b"little":
            raise Unfit(UNVERIFIED, "was written on a machine with another order of bytes")
        unpickler = PlainUnpickler(io.BytesIO(archive.read(pickled)))
        state = unpickler.load()
    buffer = _mapped(source)
    for key, storage in unpickler.storages.items():
        storage.buffer, storage.offset = buffer, _data_offset(buffer, names[f"{folder}data/{key}"])
    return state, tuple(unpickler.foreign)


def _data_offset(buffer: Any, entry: zipfile.ZipInfo) -> int:
    """Return where the bytes of an entry start; its header may be padded differently from the index."""
    if entry.compress_type != zipfile.ZIP_STORED:
        raise Unfit(UNVERIFIED, f"{entry.filename} is compressed")
    header = entry.header_offset
    name, extra = struct.unpack("<HH", buffer[header + 26 : header + LOCAL_HEADER])
    return int(header + LOCAL_HEADER + name + extra)


def _from_old_file(source: Any) -> tuple[Any, tuple[str, ...]]:
    """Read the format before torch 1.6: three pickles of metadata, the content, the keys, then the numbers."""
    buffer = _mapped(source)
    file = io.BytesIO(buffer) if not isinstance(source, str) else open(source, "rb")  # noqa: SIM115
    with file:
        for _ in range(3):
            PlainUnpickler(file).load()
        unpickler = PlainUnpickler(file)
        state = unpickler.load()
        keys = PlainUnpickler(file).load() if unpickler.storages else []
        offset = file.tell()
    for key in keys:
        storage = unpickler.storages[str(key)]
        storage.buffer, storage.offset = buffer, offset + 8
        offset += 8 + storage.count * storage.tensor().element_size()
    return state, tuple(unpickler.foreign)


def _mapped(source: Any) -> Any:
    if not isinstance(source, str):
        return bytearray(source.getbuffer())
    with open(source, "rb") as file:
        # A private copy, because torch warns about read-only memory; nothing is written.
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
