"""Reads folders of torch.distributed.checkpoint: `.metadata`, written last, and the files that it names."""

from __future__ import annotations

import io
import os
from typing import Any, Iterator

from rung_inside.verify.finiteness import tensors_in
from rung_inside.verify.safe_pickle import PlainUnpickler
from rung_inside.verify.step_number import KEYS
from rung_inside.verify.torch_file import ZIP_MAGIC, check_archive, load
from rung_inside.verify.verdict import CORRUPT, TRUNCATED, UNFINISHED, UNVERIFIED, Content, Unfit, first_line

METADATA = ".metadata"
ENDING = ".distcp"


def read_sharded(folder: str, full: bool) -> Content:
    """Return what a sharded folder holds, if every file in its metadata is there at full length."""
    parts = _parts(folder)
    _check_whole(folder, parts)
    state: dict[str, Any] = {}
    for name, where in parts:
        if name in KEYS or (name.rpartition(".")[2] in KEYS and name.count(".") == 1):
            content = _read(folder, name, where, full)
            state.setdefault(name.rpartition(".")[2], content)
    return Content("dcp", _tensors(folder, parts, full), state)


def _parts(folder: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the name of every part with its file, offset and length from the metadata."""
    path = os.path.join(folder, METADATA)
    if not os.path.isfile(path):
        raise Unfit(UNFINISHED, f"{METADATA}, which is written last, is not there")
    try:
        with open(path, "rb") as file:
            metadata = PlainUnpickler(file).load()
        found = metadata["storage_data"]
        parts = [(str(index.get("fqn", "")), where) for index, where in found.items()]
        for _, where in parts:
            if os.path.isabs(where["relative_path"]) or ".." in where["relative_path"].split("/"):
                raise Unfit(CORRUPT, f"{METADATA} names a file outside of the folder")
            if where["offset"] < 0 or where["length"] < 0:
                raise Unfit(CORRUPT, f"{METADATA} is damaged")
    except Unfit:
        raise
    except Exception as error:  # A damaged pickle may raise anything.
        raise Unfit(CORRUPT, f"{METADATA}: {first_line(error)}") from None
    if any(where.get("transform_descriptors") for _, where in parts):
        raise Unfit(UNVERIFIED, "its parts are compressed in a way of their own")
    return parts


def _check_whole(folder: str, parts: list[tuple[str, dict[str, Any]]]) -> None:
    ends: dict[str, int] = {}
    for _, where in parts:
        name = where["relative_path"]
        ends[name] = max(ends.get(name, 0), where["offset"] + where["length"])
    for name, end in ends.items():
        path = os.path.join(folder, name)
        if not os.path.isfile(path):
            raise Unfit(UNFINISHED, f"{name} is not there")
        if os.path.getsize(path) < end:
            raise Unfit(TRUNCATED, f"{end - os.path.getsize(path)} bytes of {name} are missing")


def _tensors(folder: str, parts: list[tuple[str, dict[str, Any]]], full: bool) -> Iterator[tuple[str, Any]]:
    for name, where in parts:
        for inner, tensor in tensors_in(_read(folder, name, where, full)):
            yield f"{name}.{inner}" if inner else name, tensor


def _read(folder: str, name: str, where: dict[str, Any], full: bool) -> Any:
    with open(os.path.join(folder, where["relative_path"]), "rb") as file:
        file.seek(where["offset"])
        raw = file.read(where["length"])
    zipped = raw.startswith(ZIP_MAGIC)
    if zipped:
        check_archive(io.BytesIO(raw), full)
    return load(io.BytesIO(raw), zipped)[0]
