"""Owns reading a job file: YAML to a frozen JobSpec, with every problem of the file named at once, by line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from jobs.errors import SpecError
from jobs.spec import JobSpec
from jobs.yamlfile import Location, YamlFile, nearest, path_text


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
    file = YamlFile(raw, "a job file", "name: and run:")
    if not file.readable:
        raise SpecError(file.told())
    try:
        spec = JobSpec.model_validate(file.data)
    except ValidationError as error:
        file.problems += [_problem(detail, file) for detail in error.errors()]
    if file.problems:
        raise SpecError(file.told())
    return spec


def _problem(detail: ErrorDetails, file: YamlFile) -> tuple[int, str]:
    """Turn one of pydantic's errors into a line number and a sentence."""
    location = _written(detail["loc"], file.data, missing=detail["type"] == "missing")
    line, name = file.line(location), path_text(location)
    if detail["type"] == "extra_forbidden":
        return line, f"{name}: unknown key{_nearest(location)}"
    if detail["type"] == "missing":
        return line, f"{name}: is missing"
    message = detail["msg"].removeprefix("Value error, ").replace("a valid tuple", "a list")
    message = re.sub(r"a valid dictionary( or instance of \w+)?", "a mapping", message)
    got = detail["input"]
    shown = f" (got {got!r})" if isinstance(got, (str, int, float, bool)) and len(str(got)) < 60 else ""
    return line, f"{name}: {message[:1].lower()}{message[1:]}{shown}"


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
    return nearest(str(location[-1]), model.model_fields)
