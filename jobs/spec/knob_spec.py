"""The part of a job file that gives the settings Rung may change, and how they reach the script."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from rung.jobs.model.knobs import KNOB_NAMES, Knobs, Precision, first_knobs
from rung.jobs.spec.fields import Line, Model, Place, PositiveFloat, PositiveInt, on_off
from rung.jobs.spec.precision_names import FRAMEWORKS, SWITCHES
from rung.jobs.spec.yaml_reader import nearest

FILE_KINDS = (".yaml", ".yml", ".json", ".toml")
# More places than any model needs; whoever needs more wants fp32.
MOST_PLACES = 256
# What a placeholder or a key of a file may be set to.
PLACEHOLDERS = (*KNOB_NAMES, *SWITCHES, "checkpoint", "checkpoint_dir")


def _config_file(text: str) -> str:
    path = PurePosixPath(text)
    if path.suffix not in FILE_KINDS:
        raise ValueError(f"{text}: give a file that ends in {', '.join(FILE_KINDS)}")
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{text}: give a path in workdir")
    return str(path)


def _framework(name: str) -> str:
    if name not in FRAMEWORKS:
        raise ValueError(f"unknown framework{nearest(name, FRAMEWORKS)}")
    return name


def _single_value(value: Any) -> Any:
    if isinstance(value, (dict, list)) or value is None:
        raise ValueError("give a text, a number, or yes or no")
    return value


def _place_list(value: Any) -> Any:
    """Take one place or a list of them; `off` and an empty list mean none."""
    value = on_off(value)
    return [value] if isinstance(value, str) else value or None


def _each_once(places: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if places is not None and len(set(places)) < len(places):
        raise ValueError("each place may stand in the list once")
    return places


ConfigFile = Annotated[Line, AfterValidator(_config_file)]
KeyPath = Annotated[Line, Field(min_length=1, max_length=500)]


class KnobSpec(Model):
    """The settings Rung may change, with their first values, and how they reach the script."""

    mode: Literal["flags", "inside", "zero-edit"] = Field(
        "flags",
        description="flags: only what `run` or `envs` has a {placeholder} for; inside: the script imports rung_inside; "
        "zero-edit: set on the live objects of a script that knows nothing of Rung.",
    )
    watch: Literal["inside", "log"] = Field(
        "log",
        description="With mode flags: log: only what the script prints is known; inside: losses, norms and values in "
        "force are also read inside a script that imports torch, and nothing is changed there.",
    )
    lr: PositiveFloat | None = Field(None, description="Learning rate.")
    clip: Annotated[PositiveFloat | None, BeforeValidator(on_off)] = Field(
        None, description="max_norm of gradient clipping; off or null: no clipping."
    )
    growth_interval: PositiveInt | None = Field(
        None, description="GradScaler's growth_interval: 2000, and with zero-edit the script's own, unless stated."
    )
    precision: Precision | None = Field(
        None, description="What the run computes in: amp_fp16, and with zero-edit the script's own, unless stated."
    )
    precision_text: dict[Precision, Annotated[bool | int | float | Line, BeforeValidator(_single_value)]] = Field(
        {}, description="The script's name for a precision; in a file it may be true, false or a number."
    )
    framework: Annotated[str, AfterValidator(_framework)] | None = Field(
        None, description=f"The framework whose names for a precision the script takes: {', '.join(FRAMEWORKS)}."
    )
    files: dict[ConfigFile, dict[str, Annotated[tuple[KeyPath, ...], Field(min_length=1)]]] = Field(
        {},
        description="Config files of the script's in workdir: {file: {knob: key}}, dots in keys: optim.lr.",
    )
    batch: PositiveInt | None = Field(None, description="Batch size, lowered when memory runs out.")
    accumulation: PositiveInt | None = Field(
        None, description="Gradient accumulation, raised as batch is lowered: their product stays."
    )

    constants: Annotated[Literal["clamp"] | None, BeforeValidator(on_off)] = Field(
        None, description="clamp: numbers that do not fit a tensor's 16-bit dtype become the limit of that dtype."
    )
    fp32_modules: Annotated[tuple[Place, ...] | None, BeforeValidator(_place_list), AfterValidator(_each_once)] = Field(
        None,
        max_length=MOST_PLACES,
        description="Places that compute in FP32 while the rest stays in FP16: loss, a module's own code (head.norm), "
        "or a module with all that is in it (head.norm.*).",
    )

    @field_validator("files", mode="before")
    @classmethod
    def _keys(cls, value: Any) -> Any:
        """Take one key or a list of them for a knob."""
        if not isinstance(value, dict):
            return value
        return {file: _with_key_lists(keys) if isinstance(keys, dict) else keys for file, keys in value.items()}

    def knobs(self) -> Knobs:
        """Return the knobs of the first attempt."""
        return first_knobs(self.mode, dict(self))


def _with_key_lists(keys: dict[Any, Any]) -> dict[Any, Any]:
    for name in keys:
        if name not in PLACEHOLDERS:
            raise ValueError(f"{name}: no such knob{nearest(str(name), PLACEHOLDERS)}")
    return {name: [key] if isinstance(key, str) else key for name, key in keys.items()}
