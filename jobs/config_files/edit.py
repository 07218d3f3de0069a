"""Owns setting keys of a config file: just the value's own text is replaced, the rest stays byte for byte.

Comments, order, quotes and line ends are the person's. The text is the job's, so it is read with bounds and never run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

from rung.jobs.config_files.json_text import json_spot
from rung.jobs.config_files.location import KeyPath, ValueSpan, no_value
from rung.jobs.config_files.toml_text import toml_spot
from rung.jobs.config_files.yaml_text import yaml_spot
from rung.jobs.model.errors import ConfigFileError
from rung.jobs.spec.precision_names import Word

# PyYAML reads about 100 kB a second; a config that people write has a few.
MAX_CHARS = 200_000
# A key that holds a dot itself is written with a backslash before it.
DOT = re.compile(r"(?<!\\)\.")

KINDS: dict[str, Callable[[str, KeyPath], ValueSpan]] = {
    ".yaml": yaml_spot,
    ".yml": yaml_spot,
    ".json": json_spot,
    ".toml": toml_spot,
}


def set_keys(text: str, name: str, values: Mapping[str, Word]) -> str:
    """Return the text of a file with these keys set; raise Unfit where one cannot be."""
    for key, value in values.items():
        spot = find(text, name, key)
        text = text[: spot.start] + spot.write(value) + text[spot.end :]
        there = find(text, name, key).value
        if (type(there), there) != (type(value), value):
            raise ConfigFileError(f"{name}: {key}: cannot be set to {value!r} there")
    return text


def find(text: str, name: str, key: str) -> ValueSpan:
    """Return where a key's value stands in a file of this name; raise Unfit where there is none that can be set."""
    if len(text) > MAX_CHARS:
        raise ConfigFileError(f"{name}: {len(text)} characters is no config file (at most {MAX_CHARS})")
    path = tuple(part.replace("\\.", ".") for part in DOT.split(key))
    try:
        spot = KINDS[PurePosixPath(name).suffix](text, path)
        if isinstance(spot.value, (dict, list)):
            raise no_value(key, spot.value)
    except ConfigFileError as error:
        raise ConfigFileError(f"{name}: {error}") from None
    except RecursionError:
        raise ConfigFileError(f"{name}: is nested too deeply") from None
    return spot
