"""Finds the value of a key in a YAML text, and writes values as YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import yaml

from rung.jobs.config_files.location import BOM, KeyPath, ValueSpan, missing, names_in
from rung.jobs.model.errors import ConfigFileError
from rung.jobs.spec.precision_names import ScriptValue

# An anchor or a tag may come before a value and is not part of it.
PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")
PLAIN = re.compile(r"[A-Za-z0-9_./-]+")


def find_in_yaml(text: str, path: KeyPath) -> ValueSpan:
    body = text.removeprefix(BOM)
    shift = len(text) - len(body)
    try:
        node: yaml.Node | None = yaml.compose(body, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ConfigFileError(
            f"line {mark.line + 1 if mark else 1}: is not YAML: {error.problem or error.context}"
        ) from None
    except yaml.YAMLError as error:
        raise ConfigFileError(f"is not YAML: {str(error).splitlines()[0]}") from None
    after = 0
    for depth in range(len(path)):
        reached, node = _step(node, path, depth)
        after = max(after, reached)
    if not isinstance(node, yaml.ScalarNode):
        return ValueSpan(0, 0, _names(node), _text(None))
    key = ".".join(path)
    if node.start_mark.index < after:
        raise ConfigFileError(f"{key}: is an alias (*) of another value; name that one's key")
    if node.style in ("|", ">"):
        raise ConfigFileError(f"{key}: is a block of text, not a single value")
    start, end = node.start_mark.index + shift, node.end_mark.index + shift
    empty = not node.value and node.style is None
    properties = PROPERTIES.match(text, start, end)
    start = end if empty or properties is None else properties.end()
    return ValueSpan(start, end, _value(node, key), _text(node.style, empty=empty))


def _step(node: yaml.Node | None, path: KeyPath, depth: int) -> tuple[int, yaml.Node]:
    """Return the position that a value must come after (an alias does not), and the value's node."""
    part = path[depth]
    if isinstance(node, yaml.MappingNode):
        found = {str(key.value): (key.end_mark.index, value) for key, value in node.value}
        if part in found:
            return found[part]
    elif isinstance(node, yaml.SequenceNode) and part.isdecimal() and int(part) < len(node.value):
        before = node.value[: int(part)]
        return max([node.start_mark.index, *(each.end_mark.index for each in before)]), node.value[int(part)]
    raise missing(path, depth, names_in(_names(node)))


def _names(node: yaml.Node | None) -> Any:
    if isinstance(node, yaml.MappingNode):
        return {str(key.value): None for key, _ in node.value}
    return [None] * len(node.value) if isinstance(node, yaml.SequenceNode) else None


def _value(node: yaml.ScalarNode, key: str) -> Any:
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (yaml.YAMLError, ValueError, LookupError, AttributeError):
        raise ConfigFileError(f"{key}: is no plain value: {node.tag} {node.value[:60]!r}") from None


def _text(style: str | None, *, empty: bool = False) -> Callable[[ScriptValue], str]:
    def write(value: ScriptValue) -> str:
        return " " * empty + _value_text(value, style)

    return write


def _value_text(value: ScriptValue, style: str | None) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        # YAML 1.1 reads a number with an exponent as text, unless it has a dot and a sign.
        digits, exponent, power = repr(value).partition("e")
        sign = "+" if power[:1].isdecimal() else ""
        return f"{digits}{'' if '.' in digits else '.0'}e{sign}{power}" if exponent else digits
    if isinstance(value, int):
        return str(value)
    if style == "'":
        return "'" + value.replace("'", "''") + "'"
    plain = style is None and PLAIN.fullmatch(value) and yaml.safe_load(value) == value and not _numeric(value)
    return value if plain else json.dumps(value, ensure_ascii=False)


def _numeric(text: str) -> bool:
    """Return whether another reader of YAML would read a text as a number, such as 1e-3."""
    try:
        float(text)
    except ValueError:
        return False
    return True
