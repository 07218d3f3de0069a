"""Reads YAML that people write into plain values, with the line of each, within bounds on size and depth.

The text may be hostile. Its callers (`load`, the list of hosts) check what the values mean.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import yaml

# PyYAML reads about 100 kB a second; a job file has one or two.
MAX_BYTES = 100_000
MAX_VALUES = 10_000
MAX_DEPTH = 40
# The largest float has 309 digits; YAML's numbers to the base 60 would otherwise grow to any size.
MAX_NUMBER = 400

NUMBER_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
TOO_MANY = "too many or too deeply nested values (aliases count each time)"

PLAIN_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")

Location = tuple[str | int, ...]


class YamlFile:
    """The plain values of one text, the line of each, and the problems as (line, what)."""

    def __init__(self, raw: bytes, kind: str, start: str) -> None:
        """Read the text; messages use `kind` (a job file) and `start` (name: and run:)."""
        self.lines: dict[Location, int] = {}
        self.problems: list[tuple[int, str]] = []
        self._values = 0
        self.data: Any = None
        try:
            self.data = self._build(_compose(raw, kind, start), ())
        except _Refused as refused:
            self.problems = [(refused.line, refused.what)]
            self.readable = False
            return
        self.readable = isinstance(self.data, dict)
        if not self.readable:
            self.problems = [(1, f"{kind} is a mapping that starts with {start}")]

    def line(self, at: Location) -> int:
        """Return the line of a value, or of the nearest value around it that is in the file."""
        while at not in self.lines:
            at = at[:-1]
        return self.lines[at]

    def problem_lines(self) -> list[str]:
        """Return every problem once, in the order of the lines."""
        return [f"{line}: {what}" for line, what in sorted(set(self.problems))]

    def _build(self, node: yaml.Node, at: Location) -> Any:
        self._values += 1
        if self._values > MAX_VALUES or len(at) > MAX_DEPTH:
            raise _Refused(_line(node), TOO_MANY)
        self.lines[at] = _line(node)
        if isinstance(node, yaml.CollectionNode) and node.tag not in PLAIN_TAGS:
            raise _Refused(_line(node), f"the tag {node.tag!r} has no meaning here")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, at)
        if isinstance(node, yaml.SequenceNode):
            return [self._build(child, (*at, index)) for index, child in enumerate(node.value)]
        return _scalar(node)

    def _mapping(self, node: yaml.MappingNode, at: Location) -> dict[str, Any]:
        built: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = _scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str) or not key.isprintable():
                self.problems.append((_line(key_node), "a key must be plain text"))
            elif key in built:
                self.problems.append((_line(key_node), f"{path_text((*at, key))}: given twice"))
            else:
                built[key] = self._build(value_node, (*at, key))
                self.lines[(*at, key)] = _line(key_node)
        return built


class _Loader(yaml.SafeLoader):
    """Composes nodes down to a depth: PyYAML's own recursion takes seconds until Python ends it."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH + 1:
            raise _Refused(self.line + 1, TOO_MANY)
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Refused(Exception):
    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line, self.what = line, what


def path_text(location: Iterable[str | int]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint with the known name nearest to a wrong one, or with all of them."""
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; known here: {', '.join(names)}"


def _compose(raw: bytes, kind: str, start: str) -> yaml.Node:
    if len(raw) > MAX_BYTES:
        raise _Refused(1, f"{len(raw)} bytes is no {kind.removeprefix('a ')} (at most {MAX_BYTES})")
    try:
        node: yaml.Node | None = yaml.compose(raw.decode("utf-8-sig"), Loader=_Loader)
    except UnicodeDecodeError as error:
        raise _Refused(raw[: error.start].count(b"\n") + 1, "is not UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _Refused(mark.line + 1 if mark else 1, f"is not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise _Refused(1, f"is not YAML: {str(error).splitlines()[0]}") from None
    except (ValueError, OverflowError):
        raise _Refused(1, "is not YAML: an escape names no character") from None
    if node is None:
        raise _Refused(1, f"is empty; {kind} starts with {start}")
    return node


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _scalar(node: yaml.Node) -> Any:
    if node.tag in NUMBER_TAGS and len(node.value) > MAX_NUMBER:
        raise _Refused(_line(node), f"cannot be read as a value: a number of more than {MAX_NUMBER} characters")
    # YAML 1.1 reads 2:00:00 as a number to the base 60. Nobody means one, and the time of a clock is text.
    if node.tag in NUMBER_TAGS and ":" in node.value:
        return node.value
    try:
        value = yaml.SafeLoader("").construct_object(node)
    # PyYAML's constructors raise these for values that do not fit their tag (!!int "", !!bool maybe, 1:1:...:1.5).
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, ArithmeticError, TypeError) as error:
        what = getattr(error, "problem", None) or f"it does not fit {node.tag.rpartition(':')[2]}"
        raise _Refused(_line(node), f"cannot be read as a value: {what}") from None
    if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        raise _Refused(_line(node), "cannot be read as a value: a lone surrogate is no character")
    return value
