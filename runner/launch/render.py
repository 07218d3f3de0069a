"""Puts knob values into the command, environment variables and config files of a script. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from rung.jobs.job import Attempt
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.knob_channels import PLACEHOLDER, placeholders
from rung.jobs.spec.precision_names import SWITCHES, ScriptValue, script_value_for, script_value_text
from rung.runner.seams.engine import FileEdit

# A Hydra override: a key, a group or a package without a dash before it, `=`, and a value that Hydra's grammar reads.
OVERRIDE = re.compile(r"[+~]{0,2}[A-Za-z_][\w./@:-]*=")
# What Hydra reads as plain text without quotes.
HYDRA_PLAIN = re.compile(r"[\w/\-+.%*:]*", re.ASCII)


def placeholder_values(spec: JobSpec, attempt: Attempt, checkpoint_dir: Path) -> dict[str, ScriptValue | None]:
    """Return the value of every placeholder; None if it has none."""
    asked, knobs = attempt.asked, spec.knobs
    values: dict[str, ScriptValue | None] = asked.to_dict()
    if asked.precision is not None:
        word = script_value_for(asked.precision, knobs.precision_text, knobs.framework)
        values["precision"] = asked.precision.value if word is None else word
    values |= {name: asked.precision is on if asked.precision else None for name, on in SWITCHES.items()}
    found = attempt.resumed_from
    values["checkpoint"] = str(checkpoint_dir / spec.checkpoint.loaded_name(found)) if found else None
    values["checkpoint_dir"] = str(checkpoint_dir)
    return values


def texts(values: Mapping[str, ScriptValue | None]) -> dict[str, str]:
    """Return every value as text; empty if there is none."""
    return {name: "" if value is None else _text(value) for name, value in values.items()}


def _text(value: ScriptValue) -> str:
    # A float keeps its point or exponent: nanoGPT and its like refuse `1` for a setting whose default is 1.0.
    return repr(value) if isinstance(value, float) else script_value_text(value)


def file_edits(spec: JobSpec, values: Mapping[str, ScriptValue | None]) -> tuple[FileEdit, ...]:
    """Return the edits of each file; a knob without a value keeps the one in the file."""
    return tuple(FileEdit(file, _edits(keys, values)) for file, keys in spec.knobs.files.items())


def _edits(keys: Mapping[str, tuple[str, ...]], values: Mapping[str, ScriptValue | None]) -> dict[str, ScriptValue]:
    named = {key: values[name] for name, several in keys.items() for key in several}
    return {key: value for key, value in named.items() if value is not None}


def fill_command(words: tuple[str, ...], values: Mapping[str, str]) -> tuple[str, ...]:
    """Fill the placeholders of a command; one argument stays one argument.

    An argument that is only an empty placeholder is left out together with the option before it, so that
    `--resume {checkpoint}` is not passed at all when there is nothing to resume from.
    """
    filled: list[str] = []
    for word in words:
        names = placeholders(word)
        text = _override(word, values) if names and OVERRIDE.match(word) else fill(word, values)
        if names and not any(values[name] for name in names) and (not text or text.endswith("=")):
            if not text and filled and filled[-1].startswith("-"):
                filled.pop()
            continue
        filled.append(text)
    return tuple(filled)


def fill(text: str, values: Mapping[str, str]) -> str:
    return PLACEHOLDER.sub(lambda match: values[match[1]] if match[1] else match[0][0], text)


def _override(word: str, values: Mapping[str, str]) -> str:
    """Fill a Hydra override; a single value is quoted as a whole, in a list or mapping each placeholder alone."""
    key, _, value = word.partition("=")
    if HYDRA_PLAIN.fullmatch(PLACEHOLDER.sub("", value)):
        return f"{key}={hydra_text(fill(value, values))}"
    return f"{key}={fill(value, {name: hydra_text(text) for name, text in values.items()})}"


def hydra_text(text: str) -> str:
    """Return a value for a Hydra override, in quotes if Hydra would interpret its characters."""
    if HYDRA_PLAIN.fullmatch(text):
        # Hydra reads 1e-05 as text, because its exponents have no leading zero; 1e-5 is a number.
        return re.sub(r"(?<=\d)(e[+-])0+(?=[1-9])", r"\1", text) if _is_number(text) else text
    escaped = re.sub(r"(\\*)('|\Z)", lambda match: match[1] * 2 + ("\\'" if match[2] else ""), text)
    return f"'{escaped}'"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
