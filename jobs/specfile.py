"""Owns reading a job file: YAML to a frozen JobSpec, with every problem of the file named at once, by line.

The file is hostile input: its size, depth and number of values are bounded before anything is built from it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from jobs.errors import SpecError
from jobs.spec import JobSpec

# PyYAML reads about 100 kB a second; a job file has one or two.
MAX_BYTES = 100_000
MAX_VALUES = 10_000
MAX_DEPTH = 40

PLAIN_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")

Location = tuple[str | int, ...]


class _Reader:
    """Builds plain values from YAML nodes, noting the line of each, within bounds."""

    def __init__(self) -> None:
        self.lines: dict[Location, int] = {}
        self.problems: list[tuple[int, str]] = []
        self._values = 0

    def build(self, node: yaml.Node, at: Location = ()) -> Any:
        self._values += 1
        if self._values > MAX_VALUES or len(at) > MAX_DEPTH:
            raise _Refused(_line(node), "too many or too deeply nested values (aliases count each time)")
        self.lines[at] = _line(node)
        if isinstance(node, yaml.CollectionNode) and node.tag not in PLAIN_TAGS:
            raise _Refused(_line(node), f"the tag {node.tag!r} has no meaning here")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, at)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(child, (*at, index)) for index, child in enumerate(node.value)]
        return _scalar(node)

    def _mapping(self, node: yaml.MappingNode, at: Location) -> dict[str, Any]:
        built: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = _scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str) or not key.isprintable():
                self.problems.append((_line(key_node), "a key must be plain text"))
            elif key in built:
                self.problems.append((_line(key_node), f"{_path((*at, key))}: given twice"))
            else:
                built[key] = self.build(value_node, (*at, key))
                self.lines[(*at, key)] = _line(key_node)
        return built


class _Refused(Exception):
    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line, self.what = line, what


def load_spec(path: Path) -> JobSpec:
    """Return the job a file asks for, or raise a SpecError that names every problem with its line."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise SpecError([f"{path}: cannot be read: {error.strerror}; give the path of a job file"]) from None
    try:
        return parse_spec(raw)
    except SpecError as error:
        raise SpecError([f"{path}:{problem}" for problem in error.problems]) from None


def parse_spec(raw: bytes) -> JobSpec:
    """Return the JobSpec in these bytes; problems read `LINE: what`."""
    reader = _Reader()
    try:
        data = reader.build(_compose(raw))
    except _Refused as refused:
        raise SpecError([f"{refused.line}: {refused.what}"]) from None
    problems = list(reader.problems)
    if not isinstance(data, dict):
        raise SpecError(["1: a job file is a mapping that starts with name: and run:"])
    try:
        spec = JobSpec.model_validate(data)
    except ValidationError as error:
        problems += [_problem(detail, reader.lines, data) for detail in error.errors()]
    if problems:
        raise SpecError([f"{line}: {what}" for line, what in sorted(set(problems))])
    return spec


def _compose(raw: bytes) -> yaml.Node:
    if len(raw) > MAX_BYTES:
        raise _Refused(1, f"{len(raw)} bytes is no job file (at most {MAX_BYTES})")
    try:
        node: yaml.Node | None = yaml.compose(raw.decode("utf-8-sig"), Loader=yaml.SafeLoader)
    except UnicodeDecodeError as error:
        raise _Refused(raw[: error.start].count(b"\n") + 1, "is not UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _Refused(mark.line + 1 if mark else 1, f"is not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise _Refused(1, f"is not YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise _Refused(1, "too many or too deeply nested values (aliases count each time)") from None
    if node is None:
        raise _Refused(1, "is empty; a job file starts with name: and run:")
    return node


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _scalar(node: yaml.Node) -> Any:
    try:
        value = yaml.SafeLoader("").construct_object(node)
    # PyYAML's own constructors trip over values that do not fit their tag (!!int "", !!bool maybe).
    except (yaml.YAMLError, ValueError, LookupError, AttributeError) as error:
        what = getattr(error, "problem", None) or f"it does not fit {node.tag.rpartition(':')[2]}"
        raise _Refused(_line(node), f"cannot be read as a value: {what}") from None
    if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        raise _Refused(_line(node), "cannot be read as a value: a lone surrogate is no character")
    return value


def _path(location: Iterable[str | int]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _problem(detail: ErrorDetails, lines: dict[Location, int], data: Any) -> tuple[int, str]:
    """Turn one of pydantic's errors into a line number and a sentence."""
    location = known = _written(detail["loc"], data, missing=detail["type"] == "missing")
    while known not in lines:
        known = known[:-1]
    name = _path(location)
    if detail["type"] == "extra_forbidden":
        return lines[known], f"{name}: unknown key{_nearest(location)}"
    if detail["type"] == "missing":
        return lines[known], f"{name}: is missing"
    message = detail["msg"].removeprefix("Value error, ").replace("a valid tuple", "a list")
    message = re.sub(r"a valid dictionary( or instance of \w+)?", "a mapping", message)
    got = detail["input"]
    shown = f" (got {got!r})" if isinstance(got, (str, int, float, bool)) and len(str(got)) < 60 else ""
    return lines[known], f"{name}: {message[:1].lower()}{message[1:]}{shown}"


def _written(location: Location, data: Any, *, missing: bool) -> Location:
    """Cut a pydantic location down to the part that stands in the file (it adds names of union members)."""
    written: list[str | int] = []
    for index, part in enumerate(location):
        inside = (isinstance(data, dict) and part in data) or (isinstance(data, list) and isinstance(part, int))
        if not inside:
            return (*written, *(location[index:] if missing and isinstance(data, dict) else ()))
        written.append(part)
        data = data[part]
    return tuple(written)


def _nearest(location: Location) -> str:
    """Name the valid key nearest to the last part of a location, or list them all."""
    model: Any = JobSpec
    for part in location[:-1]:
        field = getattr(model, "model_fields", {}).get(part)
        annotation = field.annotation if field else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return ""
        model = annotation
    names = list(model.model_fields)
    close = difflib.get_close_matches(str(location[-1]), names, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; known here: {', '.join(names)}"
