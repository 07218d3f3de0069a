"""Writes checkpoint files by hand, as no torch.save would: from single opcodes and fields of an archive."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from pathlib import Path

OLD_MAGIC = 0x1950A86A20F9469CFC6C


def text(value: str) -> bytes:
    """Return the opcodes that push a text."""
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value: int) -> bytes:
    raw = pickle.dumps(value, 2)
    return raw[2:-1]


def named(module: str, name: str) -> bytes:
    """Return the opcodes that push a global; with protocol 4 its name may have dots."""
    return text(module) + text(name) + b"\x93"


def called(function: bytes, *arguments: bytes) -> bytes:
    """Return the opcodes of a call."""
    return function + b"(" + b"".join(arguments) + b"tR"


def a_tuple(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"


def made(kind: bytes, **state: bytes) -> bytes:
    """Return the opcodes of a new object of a class with these attributes."""
    return kind + b")\x81" + (a_dict(**state) + b"b" if state else b"")


def attribute(kind: bytes, name: str) -> bytes:
    return called(named("builtins", "getattr"), kind, text(name))


def a_dict(**items: bytes) -> bytes:
    return b"}(" + b"".join(text(name) + value for name, value in items.items()) + b"u"


def a_pickle(body: bytes, protocol: int = 4) -> bytes:
    return b"\x80" + bytes([protocol]) + body + b"."


def a_storage(kind: str, key: str, count: int) -> bytes:
    """Return the opcodes of a persistent id, as torch.save writes it for a storage."""
    return b"(" + text("storage") + named("torch", kind) + text(key) + text("cpu") + number(count) + b"tQ"


def a_tensor(storage: bytes, offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> bytes:
    shape = [b"(" + b"".join(map(number, sides)) + b"t" for sides in (size, stride)]
    hooks = named("collections", "OrderedDict") + b")R"
    return called(named("torch._utils", "_rebuild_tensor_v2"), storage, number(offset), *shape, b"\x89", hooks)


def an_archive(
    path: Path, content: bytes, storages: dict[str, bytes] | None = None, method: int = zipfile.ZIP_STORED
) -> Path:
    """Write an archive of torch.save with this pickle in it."""
    files = {"data.pkl": content, "byteorder": b"little", "version": b"3\n"}
    files.update({f"data/{key}": raw for key, raw in (storages or {}).items()})
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, raw in files.items():
            archive.writestr(f"archive/{name}", raw)
    return path


def an_old_file(path: Path, content: bytes, storages: dict[str, bytes] | None = None) -> Path:
    """Write a file of the format before torch 1.6."""
    out = io.BytesIO()
    for part in (OLD_MAGIC, 1001, {"little_endian": True}):
        pickle.dump(part, out, 2)
    out.write(content)
    pickle.dump(list(storages or {}), out, 2)
    for raw in (storages or {}).values():
        out.write(struct.pack("<q", len(raw) // 4) + raw)
    path.write_bytes(out.getvalue())
    return path
