"""Finds the value of a key in a JSON text."""

from __future__ import annotations

import json
import re

from rung.jobs.config_files.location import BOM, KeyPath, ValueSpan, missing
from rung.jobs.model.errors import ConfigFileError

SPACE = re.compile(r"[ \t\r\n]*")


def find_in_json(text: str, path: KeyPath) -> ValueSpan:
    start = len(text) - len(text.removeprefix(BOM))
    try:
        json.loads(text[start:])
        for depth in range(len(path)):
            start = _step(text, start, path, depth)
        value, end = json.JSONDecoder().raw_decode(text, _after_space(text, start))
    except json.JSONDecodeError as error:
        raise ConfigFileError(f"line {error.lineno}: is not JSON: {error.msg}") from None
    return ValueSpan(_after_space(text, start), end, value, lambda value: json.dumps(value, ensure_ascii=False))


def _step(text: str, start: int, path: KeyPath, depth: int) -> int:
    """Return where the value of a key starts; of a key that is given twice the last one counts, as for any reader."""
    members = _members(text, _after_space(text, start))
    if path[depth] not in members:
        raise missing(path, depth, list(members))
    return members[path[depth]]


def _members(text: str, start: int) -> dict[str, int]:
    """Return where each member of an object or a list starts; none for other values. The text is valid JSON."""
    members: dict[str, int] = {}
    opening, decoder = text[start], json.JSONDecoder()
    if opening not in "{[":
        return members
    at = _after_space(text, start + 1)
    while text[at] not in "}]":
        name = str(len(members))
        if opening == "{":
            name, at = decoder.raw_decode(text, at)
            at = _after_space(text, _after_space(text, at) + 1)
        members[name] = at
        at = _after_space(text, decoder.raw_decode(text, at)[1])
        at = _after_space(text, at + (text[at] == ","))
    return members


def _after_space(text: str, at: int) -> int:
    match = SPACE.match(text, at)
    return match.end() if match else at
