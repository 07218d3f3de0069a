"""Where a value is in the text of a config file, and the errors for keys that have none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rung.jobs.model.errors import ConfigFileError
from rung.jobs.spec.precision_names import ScriptValue
from rung.jobs.spec.yaml_reader import nearest

KeyPath = tuple[str, ...]
BOM = "\ufeff"
# A longer list does not help the reader.
MOST_NAMES = 20


@dataclass(frozen=True)
class ValueSpan:
    """The position of a value's text, the value, and how to write another one there."""

    start: int
    end: int
    value: Any
    write: Callable[[ScriptValue], str]


def names_in(value: Any) -> list[str]:
    """Return the keys of a mapping or a list; none for other values."""
    names = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [str(name) for name in names]


def missing(path: KeyPath, depth: int, known: list[str]) -> ConfigFileError:
    """Return the error for a key that does not exist, with the nearest one that does."""
    key = ".".join(path[: depth + 1])
    return ConfigFileError(f"{key}: there is no such key{nearest(path[depth], known[:MOST_NAMES]) if known else ''}")


def not_a_single_value(key: str, value: Any) -> ConfigFileError:
    known = names_in(value)[:MOST_NAMES]
    return ConfigFileError(f"{key}: is no single value{'; in it are: ' + ', '.join(known) if known else ''}")
