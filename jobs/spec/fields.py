"""Field types that the parts of a job file share: sizes, durations, numbers, lines."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema

from rung.jobs.model.terminal_text import hidden_character
from rung.jobs.site.times import LONGEST, SHORTEST, parse_limit

# The context for a spec from the store. It was accepted once: rules that came later do not apply to it.
STORED = {"stored": True}
SIZE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([kmgt])i?b?", re.IGNORECASE)
# Module names as torch has them. A comma separates places in a record.
PLACE = re.compile(r"[^\s,*=\"'.]+(?:\.[^\s,*=\"'.]+)*(?:\.\*)?")
LONGEST_PLACE = 200
DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*([smh])")


def parse_size(text: str) -> int:
    """Return the number of bytes for a text such as 16g or 512m."""
    match = SIZE.fullmatch(text.strip())
    size = int(float(match[1]) * 1024 ** ("kmgt".index(match[2].lower()) + 1)) if match else 0
    if size < 1:
        raise ValueError("give a size such as 16g or 512m")
    return size


def _size(text: str) -> str:
    parse_size(text)
    return text


def no_control(text: str) -> str:
    if any(ord(char) < 32 or 127 <= ord(char) < 160 for char in text):
        raise ValueError("no control characters or line breaks here")
    return text


def is_stored(info: ValidationInfo) -> bool:
    return info.context == STORED


def visible(text: str, info: ValidationInfo) -> str:
    found = None if is_stored(info) else hidden_character(text)
    if found:
        raise ValueError(f"no invisible or direction-changing characters here ({found})")
    return text


def on_off(value: Any) -> Any:
    # YAML reads a bare `off` as False.
    return None if value is False or value == "off" else value


def duration(value: Any) -> Any:
    """Read 90s, 30m and 2h as seconds; `off` means no bound."""
    match = DURATION.fullmatch(value) if isinstance(value, str) else None
    if match:
        return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]
    return on_off(value) if value is not True else not_bool(value)


def _limit(value: Any, info: ValidationInfo) -> Any:
    # A stored one is a number of seconds. In a file a bare number could also be Slurm's minutes.
    return value if is_stored(info) and isinstance(value, int) else parse_limit(value)


def not_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("give a number, not a yes or no")
    return value


def _place(text: str) -> str:
    if not PLACE.fullmatch(text):
        raise ValueError("give `loss`, the name of a module such as head.norm, or head.norm.* for all that is in it")
    return text


Line = Annotated[str, AfterValidator(no_control)]
# A place that computes in FP32 while the rest of the run stays in FP16.
Place = Annotated[str, Field(max_length=LONGEST_PLACE), AfterValidator(_place)]
# What people read in tables and type in commands.
Name = Annotated[Line, AfterValidator(visible)]
Size = Annotated[str, AfterValidator(_size)]
EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
# Of notify.yaml: never a URL, which would hold a token.
TargetName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$")]
PositiveFloat = Annotated[float, BeforeValidator(not_bool), Field(gt=0, allow_inf_nan=False)]
# Beyond this bound JSON readers lose digits; no count of steps, samples or cores comes near it.
PositiveInt = Annotated[int, BeforeValidator(not_bool), Field(ge=1, le=2**53)]
# The time limit of a batch job, in seconds.
TimeLimit = Annotated[
    int,
    BeforeValidator(_limit),
    Field(ge=SHORTEST, le=LONGEST),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9.]+ *[smhd]$|^[0-9]+(-[0-9]+(:[0-9]+){0,2}|(:[0-9]+){1,2})$"}),
]
FiniteFloat = Annotated[float, BeforeValidator(not_bool), Field(allow_inf_nan=False)]


class Model(BaseModel):
    # By alias: pydantic reserves some names, and such a field is stored as the job file spells it.
    model_config = ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)
