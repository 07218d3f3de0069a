"""Spells numbers and texts as the records of TensorBoard's event files: messages of Protocol Buffers, with checksums.

The libraries that write these files import torch wherever it is installed, which the controller never does. The format
is small and does not change: TensorBoard reads files of ten years ago.
"""

from __future__ import annotations

import math
import struct

VERSION = "brain.Event:2"
# How a field is stored, by the number that says so.
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
STRING_TENSOR = 7
MASK = 0xFFFFFFFF


def version_record() -> bytes:
    """Return the record that every file begins with."""
    return _framed(_double(1, 0.0) + _bytes(3, VERSION.encode()))


def scalar_record(tag: str, step: int, value: float, at: float) -> bytes:
    """Return the record of a number at a step."""
    return _event(step, at, _bytes(1, tag.encode()) + _key(2, FIXED32) + _float32(value))


def text_record(tag: str, step: int, text: str, at: float) -> bytes:
    """Return the record of a text at a step; TensorBoard reads it as Markdown."""
    tensor = _varint_field(1, STRING_TENSOR) + _bytes(8, text.encode("utf-8", "replace"))
    plugin = _bytes(1, _bytes(1, b"text"))
    return _event(step, at, _bytes(1, tag.encode()) + _bytes(8, tensor) + _bytes(9, plugin))


def _event(step: int, at: float, value: bytes) -> bytes:
    return _framed(_double(1, at) + _varint_field(2, step) + _bytes(5, _bytes(1, value)))


def _float32(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def _double(number: int, value: float) -> bytes:
    return _key(number, FIXED64) + struct.pack("<d", value)


def _bytes(number: int, value: bytes) -> bytes:
    return _key(number, BYTES) + _varint(len(value)) + value


def _varint_field(number: int, value: int) -> bytes:
    return _key(number, VARINT) + _varint(value)


def _key(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _varint(value: int) -> bytes:
    """Return seven bits in each byte, the lowest first; a negative number as its two's complement in 64 bits."""
    rest, found = value & ((1 << 64) - 1), bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


def _framed(data: bytes) -> bytes:
    """Return a record: its length and its bytes, each with a checksum."""
    length = struct.pack("<Q", len(data))
    return b"".join((length, _checksum(length), data, _checksum(data)))


def _checksum(data: bytes) -> bytes:
    """Return the masked CRC-32C of some bytes."""
    value = MASK
    for byte in data:
        value = TABLE[(value ^ byte) & 0xFF] ^ value >> 8
    value ^= MASK
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & MASK)


def _crc_of_byte(value: int) -> int:
    for _ in range(8):
        # Castagnoli's polynomial, its bits reversed.
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


TABLE = tuple(map(_crc_of_byte, range(256)))
