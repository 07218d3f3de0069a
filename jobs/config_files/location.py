"""Owns what the readers of config files share: the spot where a value stands, and what is said of a missing one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rung.jobs.model.errors import ConfigFileError
from rung.jobs.spec.precision_names import Word
from rung.jobs.spec.yaml_reader import nearest

KeyPath = tuple[str, ...]
BOM = "\ufeff"
# More names than this help nobody.
MOST_NAMES = 20


@dataclass(frozen=True)
class ValueSpan:
    """Where a value's own text stands, what it is, and how another one is written there."""

    start: int
    end: int
    value: Any
    write: Callable[[Word], str]


def names_in(value: Any) -> list[str]:
    """Return the keys of a mapping or a list; none of anything else."""
    names = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [str(name) for name in names]


def missing(path: KeyPath, depth: int, known: list[str]) -> ConfigFileError:
    """Say that a key is not there, and which one is nearest to it."""
    told = ".".join(path[: depth + 1])
    return ConfigFileError(f"{told}: there is no such key{nearest(path[depth], known[:MOST_NAMES]) if known else ''}")


def no_value(key: str, value: Any) -> ConfigFileError:
    known = names_in(value)[:MOST_NAMES]
    return ConfigFileError(f"{key}: is no single value{'; in it are: ' + ', '.join(known) if known else ''}")
