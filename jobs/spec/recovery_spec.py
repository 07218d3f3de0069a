"""The part of a job file that limits recovery: the ladder, the bounds, early warning, rules."""

from __future__ import annotations

import math
import re
from enum import StrEnum
from typing import Annotated, Any, Literal

import re2
from pydantic import (
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_serializer,
    field_validator,
    model_validator,
)

from rung.jobs.model.fault import FaultKind
from rung.jobs.model.knobs import RungName
from rung.jobs.spec.fields import Model, Name, Place, PositiveFloat, PositiveInt, duration, not_bool, on_off
from rung.jobs.spec.trials_spec import Trials
from rung.jobs.spec.validation_spec import off_as_text

DEFAULT_LADDER = (
    RungName.RAISE_CLIP,
    RungName.LOWER_LR,
    RungName.INCREASE_GROWTH_INTERVAL,
    RungName.NATIVE_FP16,
    # The steps of falling back to FP32: each gives up less of FP16's speed and memory than the next.
    RungName.CLAMP_CONSTANTS,
    RungName.FP32_MODULES,
    RungName.BF16,
    RungName.FP32,
)
# `ladder: auto` may use these too.
FURTHER_RUNGS = (RungName.FP32_PARAMS, RungName.SKIP_DATA, RungName.LOWER_BATCH)
AUTO = "auto"
CLEAN_STEPS = re.compile(r"(?:after\s+)?([0-9]{1,15})(?:\s+clean)?(?:\s+steps?)?")


def compile_rule(pattern: str) -> Any:
    """Compile a pattern of the job file so that no line of a log can make it slow.

    RE2 matches in linear time for any pattern; so it has no lookaround and no backreferences.
    """
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        what = error.args[0].decode("utf-8", "replace")
        raise ValueError(f"not a regular expression that RE2 knows: {what}") from None


class RuleAction(StrEnum):
    """What a rule may ask for instead of naming a fault."""

    IGNORE = "ignore"  # such a line is never a fault
    STOP = "stop"  # give the job back to a person
    RETRY = "retry"  # the machine's fault: the same knobs again


class Rule(Model):
    """A signature of the user: a pattern, and the fault it shows or the action to take."""

    name: Name
    pattern: Annotated[str, Field(min_length=1, max_length=500)]
    fault: FaultKind | None = None
    action: RuleAction | None = None

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str, info: ValidationInfo) -> str:
        try:
            compile_rule(pattern)
        except ValueError as error:
            raise ValueError(f"rule {info.data.get('name', '')!r}: {error}") from None
        return pattern

    @model_validator(mode="after")
    def _complete(self) -> Rule:
        if (self.fault is None) == (self.action is None):
            raise ValueError(f"rule {self.name!r}: give exactly one of fault and action")
        if self.fault in (FaultKind.RULE_STOP, FaultKind.RULE_RETRY):
            raise ValueError(f"rule {self.name!r}: write action: {self.fault.removeprefix('rule_')} instead of a fault")
        return self


class RungSpec(Model):
    """One rung of the ladder, with the values it may use instead of the defaults."""

    rung: RungName
    values: tuple[PositiveFloat, ...] = ()
    # For fp32_modules: the places that compute in FP32.
    places: tuple[Place, ...] = ()

    @model_validator(mode="after")
    def _fitting(self) -> RungSpec:
        if self.places and self.rung is not RungName.FP32_MODULES:
            raise ValueError(f"{self.rung}: only fp32_modules takes places")
        if self.values and self.rung in (RungName.FP32_MODULES, RungName.CLAMP_CONSTANTS):
            raise ValueError(f"{self.rung} takes no numbers")
        if len(set(self.places)) < len(self.places):
            raise ValueError("each place may stand in the list once")
        return self


class EarlyWarning(Model):
    """When a run counts as diverging although its numbers are still finite. A reading is one report of the loss."""

    sigmas: PositiveFloat = Field(
        4.0, description="How far above its own recent past a reading must be to count in full, in standard deviations."
    )
    patience: PositiveInt = Field(
        16, description="Readings in full, and not on their way back, that make a divergence."
    )
    rise: PositiveFloat = Field(0.25, description="Share of what was learned that must be lost again.")
    warm_up: PositiveInt = Field(96, description="First readings, from which only the level is taken.")
    backoffs: PositiveInt = Field(5, description="Times the loss scale falls within 128 reports without ever growing.")
    skipped_in_a_row: PositiveInt = Field(10, le=128, description="Steps skipped one after the other.")
    skipped_share: PositiveFloat = Field(0.15, description="Share of skipped steps among the last 100 to 128.")
    stop: bool = Field(True, description="Stop the run at once; false: it only explains a run that ends badly.")


_DEFAULT_STEPS = tuple(RungSpec(rung=name) for name in DEFAULT_LADDER)

LADDER_SCHEMA = {
    "anyOf": [
        {"const": AUTO},
        {
            "type": "array",
            "items": {
                "anyOf": [{"enum": [name.value for name in RungName]}, {"type": "object", "maxProperties": 2}],
            },
        },
    ]
}


STEP_BACK_SCHEMA = {
    "anyOf": [{"type": "integer", "minimum": 1}, {"enum": ["off", False]}, {"pattern": "^after [0-9]+"}]
}


def _clean_steps(value: Any) -> Any:
    """Read `after 2000 clean steps` as 2000; `off` means never."""
    match = CLEAN_STEPS.fullmatch(value.strip()) if isinstance(value, str) else None
    if match:
        return int(match[1])
    if isinstance(value, str) and value != "off":
        raise ValueError("write `after 2000 clean steps`, a number of steps, or off")
    return on_off(value) if value is not True else not_bool(value)


STALLED_SCHEMA = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0},
        {"enum": [AUTO, "off", False]},
        {"pattern": "^[0-9]+(\\.[0-9]+)? *[smh]$"},
    ]
}


def _silence(value: Any) -> Any:
    """Read 90s, 30m and 2h as seconds; `off` means no limit, and `auto` one by the run's own pace."""
    read = duration(value)
    if read != AUTO and (isinstance(read, str) or (isinstance(read, (int, float)) and not 0 < read < math.inf)):
        raise ValueError("write auto, off, or a time such as 30m")
    return read


def _on_off_defaults(value: Any) -> Any:
    return {} if value is True or value == "on" else on_off(value)


class Recovery(Model):
    """How far Rung may go, and in which order."""

    # None: auto. `rungs` has the rungs in both cases.
    ladder: Annotated[tuple[RungSpec, ...] | None, WithJsonSchema(LADDER_SCHEMA)] = Field(
        _DEFAULT_STEPS,
        description="Rungs in order: a name, or {name: [values]}; auto: all of them, ordered by what helped before.",
    )
    fp32: Literal["tf32", "strict"] = Field(
        "tf32",
        description="What fp32 and fp32_modules compute matmuls in on sm_80 and newer; strict: FP32 itself, slower.",
    )
    max_attempts: PositiveInt = Field(8, description="Hard bound on launches of the job for faults of its own.")
    infra_retries: Annotated[int, BeforeValidator(not_bool), Field(ge=0)] = Field(
        3, description="Further launches for faults of the machine, counted apart."
    )
    grace: PositiveFloat = Field(10.0, description="Seconds between TERM and KILL.")
    host_lost_after: Annotated[PositiveFloat | None, BeforeValidator(duration)] = Field(
        1800.0, description="Seconds (or 30m, 2h) a host may be out of reach before the job moves; off: it never does."
    )
    stalled: Annotated[float | Literal["auto"] | None, BeforeValidator(_silence), WithJsonSchema(STALLED_SCHEMA)] = (
        Field(
            "auto",
            description="How long a run may show no sign of life before it is relaunched: seconds (or 30m, 2h); "
            "auto: ten times its own longest gap, at least 30m; off: for ever.",
        )
    )
    rules: tuple[Rule, ...] = Field((), description="Fault signatures of your own, tried before the built-in ones.")
    early_warning: Annotated[EarlyWarning | None, BeforeValidator(_on_off_defaults)] = Field(
        EarlyWarning(), description="When a run counts as diverging before any NaN; off: never."
    )
    trials: Annotated[Trials | None, BeforeValidator(_on_off_defaults)] = Field(
        Trials(), description="Short runs that decide which rung is taken where the cause is not proven; off: none."
    )
    not_learning: Literal["warn", "act"] = Field(
        "warn", description="What a run without a fault that never learns is: a warning, or a fault to act on."
    )
    step_back: Annotated[PositiveInt | None, BeforeValidator(_clean_steps), WithJsonSchema(STEP_BACK_SCHEMA)] = Field(
        None,
        description="Clean steps after which a cured run tries its first precision or lr again, once, or one place "
        "less in FP32; off: never.",
    )
    # pydantic reserves the name `validate`.
    gate: Annotated[Literal["off", "before"], BeforeValidator(off_as_text)] = Field(
        "off",
        alias="validate",
        description="before: the job waits for its validation against FP32, and runs in FP32 if that fails.",
    )

    @property
    def auto(self) -> bool:
        """Return whether the rungs are ordered by what helped before."""
        return self.ladder is None

    @property
    def names_its_rungs(self) -> bool:
        """Return whether the job has a ladder of its own; one that is written out as the default is the default."""
        return self.ladder is not None and self.ladder != _DEFAULT_STEPS

    @property
    def rungs(self) -> tuple[RungSpec, ...]:
        """Return the rungs that the job may use, in the order of the job file or the default ladder."""
        if self.ladder is not None:
            return self.ladder
        return tuple(RungSpec(rung=name) for name in (*DEFAULT_LADDER, *FURTHER_RUNGS))

    @field_validator("ladder", mode="before")
    @classmethod
    def _rungs(cls, value: Any) -> Any:
        if value == AUTO:
            return None
        if value is None or isinstance(value, str):
            raise ValueError("give a list of rungs, or the word auto")
        return [_rung(item) for item in value] if isinstance(value, list) else value

    @field_validator("ladder")
    @classmethod
    def _each_once(cls, ladder: tuple[RungSpec, ...] | None) -> tuple[RungSpec, ...] | None:
        if ladder is not None and len({step.rung for step in ladder}) < len(ladder):
            raise ValueError("each rung may stand in the ladder once; give several values in a list")
        return ladder

    @field_serializer("ladder")
    def _written(self, ladder: tuple[RungSpec, ...] | None) -> Any:
        return AUTO if ladder is None else [step.model_dump(mode="json") for step in ladder]


def _rung(item: Any) -> Any:
    """Turn `raise_clip` and `{raise_clip: [10.0]}` into a RungSpec's fields."""
    if isinstance(item, str):
        return {"rung": item}
    if isinstance(item, dict) and len(item) == 1:
        ((name, values),) = item.items()
        if name != "rung":
            field = "places" if name == RungName.FP32_MODULES else "values"
            return {"rung": name, field: values if isinstance(values, list) else [values]}
    return item
