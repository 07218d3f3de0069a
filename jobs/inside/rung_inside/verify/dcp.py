"""Reads folders of torch.distributed.checkpoint: `.metadata`, written last, and the files that it names."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Iterator

from rung_inside.verify.finiteness import tensors_in
from rung_inside.verify.pickles.machine import Machine
from rung_inside.verify.pickles.objects import Dummy
from rung_inside.verify.step_number import KEYS
from rung_inside.verify.stored.mapped_file import Window, map_file
from rung_inside.verify.stored.tensor import MOST_NUMBERS, StoredTensor
from rung_inside.verify.stored.verdict import CORRUPT, REFUSED, TRUNCATED, UNFINISHED, UNVERIFIED, Content, Unfit
from rung_inside.verify.torch_file import load

METADATA = ".metadata"
ENDING = ".distcp"


@dataclass(frozen=True)
class Part:
    """One tensor or one value of the content, and where it is."""

    name: str
    file: str
    offset: int
    length: int


def read_sharded(folder: str, full: bool) -> Content:
    """Return what a sharded folder holds, if every file in its metadata is there at full length."""
    parts = sorted(_parts(folder), key=lambda each: (each.file, each.offset, each.length))
    _check_whole(folder, parts)
    state: dict[str, Any] = {}
    for part in parts:
        key = part.name.rpartition(".")[2]
        if key in KEYS and part.name.count(".") < 2 and key not in state:
            state[key] = _read(_window(folder, part), part, full)
    return Content("dcp", _tensors(folder, parts, full), state)


def _parts(folder: str) -> list[Part]:
    """Return every part with its file, offset and length from the metadata."""
    path = os.path.join(folder, METADATA)
    if not os.path.isfile(path):
        raise Unfit(UNFINISHED, f"{METADATA}, which is written last, is not there")
    try:
        metadata = Machine(map_file(path, follow=False)).run()
    except Unfit as unfit:
        verdict = unfit.verdict if unfit.verdict == REFUSED else CORRUPT
        raise Unfit(verdict, f"{METADATA}: {unfit.detail}") from None
    found = metadata.get("storage_data") if isinstance(metadata, dict) else None
    if not isinstance(found, dict):
        raise Unfit(CORRUPT, f"{METADATA} is damaged")
    return [_part(index, where) for index, where in found.items()]


def _part(index: Any, where: Any) -> Part:
    if not isinstance(index, Dummy) or not isinstance(where, dict):
        raise Unfit(CORRUPT, f"{METADATA} is damaged")
    name, file = index.get("fqn", ""), where.get("relative_path")
    offset, length = where.get("offset"), where.get("length")
    if type(name) is not str or type(file) is not str or not file or "\0" in file:
        raise Unfit(CORRUPT, f"{METADATA} is damaged")
    if os.path.isabs(file) or ".." in file.split("/"):
        raise Unfit(CORRUPT, f"{METADATA} names a file outside of the folder")
    if not all(type(each) is int and 0 <= each < MOST_NUMBERS for each in (offset, length)):
        raise Unfit(CORRUPT, f"{METADATA} is damaged")
    if where.get("transform_descriptors"):
        raise Unfit(UNVERIFIED, "its parts are compressed in a way of their own")
    assert isinstance(offset, int) and isinstance(length, int)
    return Part(name[:300], file, offset, length)


def _check_whole(folder: str, parts: list[Part]) -> None:
    """Check that every file with a part is there and holds all of its parts, each in a place of its own."""
    ends: dict[str, int] = {}
    for part in parts:
        if part.length and part.offset < ends.get(part.file, 0):
            raise Unfit(CORRUPT, f"two parts of {part.file[:300]} overlap")
        ends[part.file] = max(ends.get(part.file, 0), part.offset + part.length)
    for name, end in ends.items():
        path = os.path.join(folder, name)
        if not os.path.isfile(path):
            raise Unfit(UNFINISHED, f"{name[:300]} is not there")
        if os.path.getsize(path) < end:
            raise Unfit(TRUNCATED, f"{end - os.path.getsize(path)} bytes of {name[:300]} are missing")


def _tensors(folder: str, parts: list[Part], full: bool) -> Iterator[tuple[str, StoredTensor]]:
    name, window = "", Window(b"", 0, 0)
    for part in parts:
        if part.file != name:
            name, window = part.file, _window(folder, part)
        for inner, tensor in tensors_in(_read(window, part, full)):
            yield f"{part.name}.{inner}" if inner else part.name, tensor


def _window(folder: str, part: Part) -> Window:
    return map_file(os.path.join(folder, part.file), follow=False)


def _read(window: Window, part: Part, full: bool) -> Any:
    if part.offset + part.length > window.length:
        raise Unfit(TRUNCATED, f"{part.file[:300]} has become shorter")
    return load(window.part(part.offset, part.length), full).state
