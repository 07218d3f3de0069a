"""Reads `--grid KEY=VALUE,VALUE`, and makes one job of each combination of the values.

A key is a knob, a field of the job file with its dots, or a placeholder of the user's own in the command.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from rung.jobs.model.errors import SpecError, UsageError
from rung.jobs.model.knobs import KNOB_NAMES
from rung.jobs.spec.job_spec import JobSpec, split_words
from rung.jobs.spec.knob_channels import PLACEHOLDER, placeholders, why_unreachable
from rung.jobs.spec.knob_spec import PLACEHOLDERS, KnobSpec
from rung.jobs.spec.load import load_spec
from rung.recovery.trials.plan import shared_folder

# A typing error in a range should not fill the queue; whoever needs more launches twice.
MOST_JOBS = 256
LONGEST_NAME = 100
COMMANDS = ("run", "run_on_resume")
KNOBS = tuple(name for name in KNOB_NAMES if name in KnobSpec.model_fields)


@dataclass(frozen=True)
class Combination:
    """One job of a grid: what the grid sets, and the job with it."""

    settings: Mapping[str, str]
    spec: JobSpec


def parse_grid(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the values of each key, in the order in which they were given."""
    grid: dict[str, tuple[str, ...]] = {}
    for text in texts:
        key, equals, listed = text.partition("=")
        values = tuple(value.strip() for value in listed.split(","))
        if not equals or not key or not all(values):
            raise UsageError(f"--grid {text}: write a key and its values, such as lr=1e-3,3e-4")
        key = key.removeprefix("knobs.") if key.removeprefix("knobs.") in KNOBS else key
        if key in grid:
            raise UsageError(f"--grid {key}: given twice; write all of its values behind one key")
        if len(set(values)) < len(values):
            raise UsageError(f"--grid {text}: each value may be there once")
        grid[key] = values
    count = prod(map(len, grid.values()))
    if count > MOST_JOBS:
        raise UsageError(f"--grid: {count} combinations; at most {MOST_JOBS} can be launched at a time")
    return grid


def load_grid(path: Path, grid: Mapping[str, Sequence[str]]) -> list[Combination]:
    """Return every combination as a job; a key or value that the job cannot take is refused."""
    combinations = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    jobs = [Combination(settings, load_with(path, settings)) for settings in combinations]
    _refuse_shared_checkpoints(jobs)
    return jobs


def _refuse_shared_checkpoints(combinations: Sequence[Combination]) -> None:
    """Refuse a grid whose jobs would write their checkpoints into one folder of the user's."""
    folders = [each.spec.checkpoint.dir for each in combinations if shared_folder(each.spec)]
    if len(set(folders)) < len(folders):
        raise UsageError(
            f"--grid: every job would write its checkpoints into checkpoint.dir {folders[0]}; give a relative one, "
            "which is a folder of each job"
        )


def load_with(path: Path, settings: Mapping[str, str]) -> JobSpec:
    """Return the job of a file with these settings; without any it is the file as it is."""
    if not settings:
        return load_spec(path)
    try:
        spec = load_spec(path, lambda data: _apply(data, settings))
    except SpecError as error:
        raise SpecError([f"{problem} (with {_text(settings)})" for problem in error.problems]) from None
    for key, value in settings.items():
        reason = why_unreachable(spec, key, value if key == "precision" else None) if key in KNOBS else None
        if reason:
            raise UsageError(f"--grid {key}: {reason}")
    return spec


def _text(settings: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in settings.items())


def _apply(data: dict[str, Any], settings: Mapping[str, str]) -> None:
    """Set the values of one combination in the plain values of a job file."""
    own = {key: value for key, value in settings.items() if key in _own_placeholders(data)}
    _fill_own(data, own)
    for key, value in settings.items():
        if key not in own:
            _set(data, _location(key), value, key)
    if isinstance(data.get("name"), str):
        data["name"] = _name(data["name"], settings)


def _own_placeholders(data: Mapping[str, Any]) -> set[str]:
    """Return the placeholders in the command and the variables that are none of Rung's."""
    return {name for text in _texts(data) for name in placeholders(text)} - set(PLACEHOLDERS)


def _texts(data: Mapping[str, Any]) -> Iterator[str]:
    envs = data.get("envs")
    for each in (*(data.get(name) for name in COMMANDS), list(envs.values()) if isinstance(envs, dict) else None):
        yield from (text for text in (each if isinstance(each, list) else [each]) if isinstance(text, str))


def _fill_own(data: dict[str, Any], own: Mapping[str, str]) -> None:
    """Put values in place of placeholders; a value stays one word of the command, whatever is in it."""
    if not own:
        return
    for name in COMMANDS:
        words = data.get(name)
        if isinstance(words, str):
            try:
                words = split_words(words)
            except ValueError:
                continue  # the check of the whole file says so
        if isinstance(words, list):
            data[name] = [_filled(word, own) for word in words]
    if isinstance(data.get("envs"), dict):
        data["envs"] = {name: _filled(text, own) for name, text in data["envs"].items()}


def _filled(text: Any, own: Mapping[str, str]) -> Any:
    if not isinstance(text, str):
        return text
    plain = {name: value.replace("{", "{{").replace("}", "}}") for name, value in own.items()}
    return PLACEHOLDER.sub(lambda match: plain.get(match[1], match[0]), text)


def _location(key: str) -> tuple[str, ...]:
    parts = tuple(key.split("."))
    if key in KNOBS:
        return "knobs", key
    if parts[0] not in JobSpec.model_fields or not all(parts):
        raise UsageError(
            f"--grid {key}: the job cannot take it: no knob and no field of the job file, and no {{{key}}} in run or "
            "envs; a variable is written envs.NAME"
        )
    if parts[0] == "name":
        raise UsageError("--grid name: the names say the combination")
    return parts


def _set(data: dict[str, Any], location: Sequence[str], value: str, key: str) -> None:
    *path, last = location
    for part in path:
        inner = data.get(part)
        if inner is not None and not isinstance(inner, dict):
            raise UsageError(f"--grid {key}: {part} has no keys in the job file")
        # A copy, because an alias in the file may stand for the same values elsewhere.
        data[part] = dict(inner or {})
        data = data[part]
    data[last] = value


def _name(name: str, settings: Mapping[str, str]) -> str:
    """Return the name of a job that says its combination; keys without their path, so that names stay short."""
    said = " ".join(f"{key.rpartition('.')[2]}={value}" for key, value in settings.items())
    room = LONGEST_NAME - len(said) - 1
    return f"{name[: max(room, 20)]} {said}"[:LONGEST_NAME]
