"""Sets keys of a config file by replacing only the text of each value.

Comments, order, quotes and line ends stay as they are. The text may be hostile: it is read with bounds, never run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

from rung.jobs.config_files.json_text import find_in_json
from rung.jobs.config_files.location import KeyPath, ValueSpan, not_a_single_value
from rung.jobs.config_files.toml_text import find_in_toml
from rung.jobs.config_files.yaml_text import find_in_yaml
from rung.jobs.model.errors import ConfigFileError
from rung.jobs.spec.precision_names import ScriptValue

# PyYAML reads about 100 kB a second; a config file that people write has a few kB.
MAX_CHARS = 200_000
# A dot inside a key is written with a backslash before it.
DOT = re.compile(r"(?<!\\)\.")

KINDS: dict[str, Callable[[str, KeyPath], ValueSpan]] = {
    ".yaml": find_in_yaml,
    ".yml": find_in_yaml,
    ".json": find_in_json,
    ".toml": find_in_toml,
}


def set_keys(text: str, name: str, values: Mapping[str, ScriptValue]) -> str:
    """Return the text of a file with these keys set; raise Unfit if one cannot be set."""
    for key, value in values.items():
        span = find(text, name, key)
        text = text[: span.start] + span.write(value) + text[span.end :]
        written = find(text, name, key).value
        if (type(written), written) != (type(value), value):
            raise ConfigFileError(f"{name}: {key}: cannot be set to {value!r} there")
    return text


def find(text: str, name: str, key: str) -> ValueSpan:
    """Return where the value of a key is in a file's text; raise Unfit if there is none that can be set."""
    if len(text) > MAX_CHARS:
        raise ConfigFileError(f"{name}: {len(text)} characters is no config file (at most {MAX_CHARS})")
    path = tuple(part.replace("\\.", ".") for part in DOT.split(key))
    try:
        span = KINDS[PurePosixPath(name).suffix](text, path)
        if isinstance(span.value, (dict, list)):
            raise not_a_single_value(key, span.value)
    except ConfigFileError as error:
        raise ConfigFileError(f"{name}: {error}") from None
    except RecursionError:
        raise ConfigFileError(f"{name}: is nested too deeply") from None
    return span
