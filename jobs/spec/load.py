"""Reads a job file into a frozen JobSpec, and reports all problems at once, each with its line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rung.jobs.model.errors import SpecError
from rung.jobs.spec.image import LOCK_FILE, is_pinned, with_pins
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.yaml_reader import Location, YamlFile, nearest, path_text

# Changes what a job file says before it is checked: `rung launch --grid` sets the values of one combination.
Change = Callable[[dict[str, Any]], None]


def load_spec(path: Path, change: Change | None = None) -> JobSpec:
    """Return the job of a file, or raise a SpecError that names every problem with its line."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise SpecError([f"{path}: cannot be read: {error.strerror}; give the path of a job file"]) from None
    pins = load_pins(path.parent / LOCK_FILE)
    try:
        return parse_spec(raw, pins, change)
    except SpecError as error:
        raise SpecError([f"{path}:{problem}" for problem in error.problems]) from None


def load_pins(path: Path) -> dict[str, str]:
    """Return the pinned name of each tag in a lock file; empty if there is no file."""
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise SpecError([f"{path}: cannot be read: {error.strerror}"]) from None
    file = YamlFile(raw, "a lock file of images", "a tag and its digest")
    if file.problems or not file.readable:
        raise SpecError([f"{path}:{problem}" for problem in file.problem_lines()])
    wrong = [tag for tag, pinned in file.data.items() if not isinstance(pinned, str) or not is_pinned(pinned)]
    if wrong:
        raise SpecError([f"{path}:{file.line((tag,))}: {tag}: is not pinned by digest or id" for tag in wrong])
    return {str(tag): pinned for tag, pinned in file.data.items()}


def images_in(raw: bytes) -> Any:
    """Return the `image` field as the job file has it, pinned or not."""
    file = YamlFile(raw, "a job file", "name: and run:")
    return file.data.get("image") if file.readable else None


def parse_spec(raw: bytes, pins: Mapping[str, str] | None = None, change: Change | None = None) -> JobSpec:
    """Return the JobSpec in these bytes, with its image tags pinned; each problem is `LINE: what`."""
    file = YamlFile(raw, "a job file", "name: and run:")
    if not file.readable:
        raise SpecError(file.problem_lines())
    if pins and "image" in file.data:
        file.data["image"] = with_pins(file.data["image"], pins)
    if change is not None:
        change(file.data)
    try:
        spec = JobSpec.model_validate(file.data)
    except ValidationError as error:
        file.problems += [_problem(detail, file) for detail in error.errors()]
    if file.problems:
        raise SpecError(file.problem_lines())
    return spec


def _problem(detail: ErrorDetails, file: YamlFile) -> tuple[int, str]:
    """Turn an error of pydantic into a line number and a sentence."""
    location = _location_in_file(detail["loc"], file.data, missing=detail["type"] == "missing")
    line, name = file.line(location), path_text(location)
    if detail["type"] == "extra_forbidden":
        return line, f"{name}: unknown key{_nearest(location)}"
    if detail["type"] == "missing":
        return line, f"{name}: is missing"
    message = detail["msg"].removeprefix("Value error, ").replace("a valid tuple", "a list")
    message = re.sub(r"a valid dictionary( or instance of \w+)?", "a mapping", message)
    got = detail["input"]
    shown = f" (got {got!r})" if isinstance(got, (str, int, float, bool)) and len(str(got)) < 60 else ""
    # A rule about the file as a whole begins with the name of its field itself.
    return line, f"{name and f'{name}: '}{message[:1].lower()}{message[1:]}{shown}"


def _location_in_file(location: Location, data: Any, *, missing: bool) -> Location:
    """Cut a pydantic location to the part that is in the file; it adds names of union members."""
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
    return nearest(str(location[-1]), [field.alias or name for name, field in model.model_fields.items()])
