"""The channels by which a knob reaches a script: the command, a variable, a key of a file, or Rung's code in the job.

They are known before a launch, so a rung that would change nothing is skipped with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from rung.jobs.model.knobs import Precision
from rung.jobs.spec.knob_spec import KnobSpec
from rung.jobs.spec.precision_names import FRAMEWORKS, SWITCHES, script_value_for

PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([a-z_]+|fp16|bf16|fp32_modules)\}")

# Knobs that no script has a setting for.
ONLY_INSIDE = ("constants", "fp32_modules")


class TakesKnobs(Protocol):
    """The fields of a job file that decide how knobs reach the script."""

    @property
    def run(self) -> tuple[str, ...]: ...

    @property
    def envs(self) -> Mapping[str, str]: ...

    @property
    def knobs(self) -> KnobSpec: ...


def placeholders(text: str) -> list[str]:
    """Return the names in single braces, in order; {{ and }} are literal braces."""
    return [match[1] for match in PLACEHOLDER.finditer(text) if match[1]]


def channels(spec: TakesKnobs, knob: str) -> list[str]:
    """Return the names of all channels of this knob; none: it cannot reach the script."""
    inside = [spec.knobs.mode] if spec.knobs.mode != "flags" else []
    return [*outside_channels(spec, knob), *inside]


def outside_channels(spec: TakesKnobs, knob: str) -> list[str]:
    """Return the names of the channels that need no code of Rung in the job."""
    return list(dict.fromkeys(_channels(spec, (knob, *SWITCHES) if knob == "precision" else (knob,))))


def _channels(spec: TakesKnobs, names: tuple[str, ...]) -> Iterator[str]:
    if any(name in placeholders(word) for word in spec.run for name in names):
        yield "run"
    yield from (f"envs.{key}" for key, text in spec.envs.items() if set(names) & set(placeholders(text)))
    for file, keys in spec.knobs.files.items():
        yield from (f"{file}: {key}" for name in names for key in keys.get(name, ()))


def why_unreachable(spec: TakesKnobs, knob: str, value: Any = None) -> str | None:
    """Return why this knob (set to this value) cannot reach the script; None if it can."""
    if not channels(spec, knob):
        carried = f"nothing in run, envs or files carries {{{knob}}}, and knobs.mode is {spec.knobs.mode}"
        needs = "; it needs zero-edit or rung_inside.attach" if knob in ONLY_INSIDE else ""
        return f"the job cannot receive {knob}: {carried}{needs}"
    if knob == "precision" and value is not None:
        return _why_precision_unreachable(spec, Precision(value))
    return None


def says_it_knows(spec: TakesKnobs, precision: Precision) -> bool:
    """Return whether the job file shows that this precision can be set: the script's name for it, or a switch.

    Rung's own name of a precision is only a guess: a script with `--precision {precision}` may know two of them.
    """
    knobs = spec.knobs
    if knobs.mode != "flags":
        return True
    if any(SWITCHES[name] is precision and list(_channels(spec, (name,))) for name in SWITCHES):
        return True
    is_named = precision in knobs.precision_text or precision in FRAMEWORKS.get(knobs.framework or "", {})
    return is_named and bool(list(_channels(spec, ("precision",))))


def _why_precision_unreachable(spec: TakesKnobs, precision: Precision) -> str | None:
    """Return why neither a text nor a switch can give the script this precision; None if one can."""
    knobs = spec.knobs
    if list(_channels(spec, ("precision",))):
        if script_value_for(precision, knobs.precision_text, knobs.framework) is not None:
            return None
        whose = f"knobs.framework {knobs.framework} and " if knobs.framework else ""
        return f"the job cannot be set to {precision}: {whose}knobs.precision_text has no name for it"
    if knobs.mode != "flags":
        return None  # set on the live objects, which know every precision
    carried = [name for name in SWITCHES if list(_channels(spec, (name,)))]
    if precision is Precision.FP32 or any(SWITCHES[name] is precision for name in carried):
        return None
    only = " and ".join(f"{{{name}}}" for name in carried)
    return f"the job cannot be set to {precision}: {only} cannot express it"
