"""Finds the value of a key in a TOML text, by letting tomlkit write a mark in its place."""

from __future__ import annotations

import json
from typing import Any

from rung.jobs.config_files.location import BOM, KeyPath, ValueSpan, missing, names_in, not_a_single_value
from rung.jobs.model.errors import ConfigFileError
from rung.jobs.spec.precision_names import ScriptValue

# Not in any text that people write.
MARK = "rung\u2063mark"


def find_in_toml(text: str, path: KeyPath) -> ValueSpan:
    # Only here: every command would wait for it, and few jobs have such a file.
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    body = text.removeprefix(BOM)
    try:
        document = tomlkit.parse(body)
    except TOMLKitError as error:
        raise ConfigFileError(f"is not TOML: {error}") from None
    holder: Any = document
    for depth in range(len(path) - 1):
        holder = _step(holder, path, depth)
    value = _step(holder, path, len(path) - 1)
    if isinstance(value, (dict, list)):
        raise not_a_single_value(".".join(path), value)
    holder[int(path[-1]) if isinstance(holder, list) else path[-1]] = MARK
    marked, old = tomlkit.dumps(document), len(body)
    start = marked.find(f'"{MARK}"')
    end = old - (len(marked) - start - len(MARK) - 2)
    if start < 0 or marked[:start] != body[:start] or not marked.endswith(body[end:]):
        raise ConfigFileError(f"{'.'.join(path)}: cannot be set without touching what stands around it")
    shift = len(text) - old
    plain = value.unwrap() if hasattr(value, "unwrap") else value
    return ValueSpan(start + shift, end + shift, plain, _text)


def _step(holder: Any, path: KeyPath, depth: int) -> Any:
    part, known = path[depth], names_in(holder)
    if part not in known:
        raise missing(path, depth, known)
    return holder[int(part) if isinstance(holder, list) else part]


def _text(value: ScriptValue) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f") if isinstance(value, str) else repr(value)
