"""Owns the job file's shape: what a person may ask for, with every default in one place. Loading is in specfile."""

from __future__ import annotations

import re
import shlex
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

import re2
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from jobs.fault import FaultKind
from jobs.image import is_pinned
from jobs.knobs import KNOB_NAMES, Knobs, Precision, RungName
from jobs.volume import Volume, host_path, parse_volume
from jobs.wish import Wish

PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([a-z_]+)\}")
PLACEHOLDERS = (*KNOB_NAMES, "checkpoint", "checkpoint_dir")
SHELL_WORDS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1"})
SIZE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([kmgt])i?b?", re.IGNORECASE)
DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*([smh])")
DEFAULT_LADDER = (
    RungName.RAISE_CLIP,
    RungName.LOWER_LR,
    RungName.INCREASE_GROWTH_INTERVAL,
    RungName.NATIVE_FP16,
    RungName.FP32,
)


def parse_size(text: str) -> int:
    """Return the bytes that a text such as 16g or 512m means."""
    match = SIZE.fullmatch(text.strip())
    size = int(float(match[1]) * 1024 ** ("kmgt".index(match[2].lower()) + 1)) if match else 0
    if size < 1:
        raise ValueError("give a size such as 16g or 512m")
    return size


def _size(text: str) -> str:
    parse_size(text)
    return text


def _pinned(image: str | dict[str, str]) -> str | dict[str, str]:
    if not all(is_pinned(name) for name in ([image] if isinstance(image, str) else image.values())):
        raise ValueError(
            "pin the image by digest: name@sha256:<64 hex digits>, or by its id: sha256:<64 hex digits>; "
            "`rung image lock` finds the digest of a tag"
        )
    return image


def _volume(text: str) -> str:
    return parse_volume(text).text


def _no_control(text: str) -> str:
    if any(ord(char) < 32 or 127 <= ord(char) < 160 for char in text):
        raise ValueError("no control characters or line breaks here")
    return text


def _on_off(value: Any) -> Any:
    # YAML reads a bare `off` as False.
    return None if value is False or value == "off" else value


def _duration(value: Any) -> Any:
    """Read 90s, 30m and 2h as seconds; `off` is no bound at all."""
    match = DURATION.fullmatch(value) if isinstance(value, str) else None
    if match:
        return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]
    return _on_off(value) if value is not True else _not_bool(value)


def _not_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("give a number, not a yes or no")
    return value


def placeholders(text: str) -> list[str]:
    """Return the names in single braces, in order; {{ and }} are literal braces."""
    return [match[1] for match in PLACEHOLDER.finditer(text) if match[1]]


Line = Annotated[str, AfterValidator(_no_control)]
Size = Annotated[str, AfterValidator(_size)]
Image = Annotated[str | dict[str, str], AfterValidator(_pinned)]
EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
PositiveFloat = Annotated[float, BeforeValidator(_not_bool), Field(gt=0, allow_inf_nan=False)]
# No count of steps, samples or cores comes near the bound; beyond it JSON readers lose digits.
PositiveInt = Annotated[int, BeforeValidator(_not_bool), Field(ge=1, le=2**53)]
FiniteFloat = Annotated[float, BeforeValidator(_not_bool), Field(allow_inf_nan=False)]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Resources(Model):
    """What the job needs of a host."""

    gpu: tuple[Wish, ...] = Field((), description="Acceptable GPUs in order of preference, such as TITANRTX:1.")
    cpus: PositiveInt | None = Field(None, description="At most this many CPU cores.")
    memory: Size | None = Field(None, description="At most this much memory, such as 16g.")
    shm: Size = Field("1g", description="Shared memory of a container, which data loaders pass batches through.")
    pids: PositiveInt = Field(4096, description="At most this many processes and threads in a container.")

    @field_validator("gpu", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return [value] if isinstance(value, (str, dict)) else value


class KnobSpec(Model):
    """The settings Rung may change, as the job has them at first, and how they reach the script."""

    mode: Literal["flags", "inside"] = Field(
        "flags",
        description="flags: only what `run` or `envs` has a {placeholder} for; inside: the script imports rung_inside.",
    )
    lr: PositiveFloat | None = Field(None, description="Learning rate.")
    clip: Annotated[PositiveFloat | None, BeforeValidator(_on_off)] = Field(
        None, description="max_norm of gradient clipping; off or null: no clipping."
    )
    growth_interval: PositiveInt | None = Field(2000, description="GradScaler's growth_interval.")
    precision: Precision = Field(Precision.AMP_FP16, description="What the run computes in.")
    precision_text: dict[Precision, Line] = Field({}, description="The script's own word for a precision.")
    batch: PositiveInt | None = Field(None, description="Batch size, halved when memory runs out.")
    accumulation: PositiveInt | None = Field(None, description="Gradient accumulation, doubled when batch is halved.")

    def knobs(self) -> Knobs:
        return Knobs(**{name: getattr(self, name) for name in KNOB_NAMES})


class CheckpointSpec(Model):
    """Where the job keeps its checkpoints."""

    dir: Line = Field("checkpoints", description="A relative folder lies in the job's own folder under RUNG_HOME.")
    pattern: Line = Field("step_*.pt", description="File name pattern; * stands for the step.")
    every: PositiveInt | None = Field(None, description="Steps between checkpoints, told to the script.")
    mirror: Annotated[Size | None, BeforeValidator(_on_off)] = Field(
        "1g", description="A healthy checkpoint up to this size is copied here from a host now and then; off: never."
    )
    mirror_every: PositiveFloat = Field(600.0, description="Seconds between two such copies.")

    @field_validator("pattern")
    @classmethod
    def _one_folder(cls, pattern: str) -> str:
        if "/" in pattern or pattern.count("*") != 1:
            raise ValueError("give a file name with one * where the step stands, and no folder")
        return pattern


class Success(Model):
    """What exit code 0 must also show."""

    metric: Line
    below: FiniteFloat | None = None
    above: FiniteFloat | None = None

    @model_validator(mode="after")
    def _one_bound(self) -> Success:
        if (self.below is None) == (self.above is None):
            raise ValueError("give either below or above")
        return self


def compile_rule(pattern: str) -> Any:
    """Return a person's pattern, compiled so that no line of a log can make it take long.

    RE2 matches in time linear in the line, whatever the pattern; so it knows no lookaround and no backreferences.
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
    """A signature of the user's own: a pattern, and the fault it shows or what to do."""

    name: Line
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
    """One rung of the ladder, with the values it may use where the defaults do not fit."""

    rung: RungName
    values: tuple[PositiveFloat, ...] = ()


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


def _on_off_defaults(value: Any) -> Any:
    return {} if value is True or value == "on" else _on_off(value)


class Recovery(Model):
    """How far Rung may go, and in which order."""

    ladder: tuple[RungSpec, ...] = Field(
        tuple(RungSpec(rung=name) for name in DEFAULT_LADDER),
        description="Rungs in order: a name, or {name: [values]}.",
    )
    max_attempts: PositiveInt = Field(8, description="Hard bound on launches of the job for faults of its own.")
    infra_retries: Annotated[int, BeforeValidator(_not_bool), Field(ge=0)] = Field(
        3, description="Further launches for faults of the machine, counted apart."
    )
    grace: PositiveFloat = Field(10.0, description="Seconds between TERM and KILL.")
    host_lost_after: Annotated[PositiveFloat | None, BeforeValidator(_duration)] = Field(
        1800.0, description="Seconds (or 30m, 2h) a host may be out of reach before the job moves; off: it never does."
    )
    rules: tuple[Rule, ...] = Field((), description="Fault signatures of your own, tried before the built-in ones.")
    early_warning: Annotated[EarlyWarning | None, BeforeValidator(_on_off_defaults)] = Field(
        EarlyWarning(), description="When a run counts as diverging before any NaN; off: never."
    )

    @field_validator("ladder", mode="before")
    @classmethod
    def _rungs(cls, value: Any) -> Any:
        return [_rung(item) for item in value] if isinstance(value, list) else value

    @field_validator("ladder")
    @classmethod
    def _each_once(cls, ladder: tuple[RungSpec, ...]) -> tuple[RungSpec, ...]:
        if len({step.rung for step in ladder}) < len(ladder):
            raise ValueError("each rung may stand in the ladder once; give several values in a list")
        return ladder


def _rung(item: Any) -> Any:
    """Turn `raise_clip` and `{raise_clip: [10.0]}` into a RungSpec's fields."""
    if isinstance(item, str):
        return {"rung": item}
    if isinstance(item, dict) and len(item) == 1:
        ((name, values),) = item.items()
        if name != "rung":
            return {"rung": name, "values": values if isinstance(values, list) else [values]}
    return item


class JobSpec(Model):
    """What was asked: one training job."""

    name: Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_no_control)]
    run: tuple[str, ...] = Field(description="The command, as one line or a list of words. No shell reads it.")
    image: Image | None = Field(None, description="Container image by digest, or a map by GPU.")
    resources: Resources = Resources()
    priority: Annotated[int, BeforeValidator(_not_bool), Field(ge=-1000, le=1000)] = Field(
        0, description="Among jobs that wait for a host, the higher number goes first."
    )
    envs: dict[EnvName, Line] = Field({}, description="Environment variables; values may hold placeholders.")
    secrets: tuple[EnvName, ...] = Field((), description="Names of secrets; never their values.")
    volumes: tuple[Annotated[Line, AfterValidator(_volume)], ...] = Field(
        (), description="Folders of the host that a container may use: host:container, or host:container:ro."
    )
    network: Literal["bridge", "none", "host"] = Field(
        "bridge", description="bridge: a container's own, behind the host's address; none; host: the host's own."
    )
    workdir: Line = Field(".", description="Where the command runs, relative to the job file.")
    knobs: KnobSpec = KnobSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    success: Success | None = None
    recovery: Recovery = Recovery()

    @field_validator("run", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            words = shlex.split(value, comments=True)
        except ValueError as error:
            raise ValueError(f"cannot be split into words: {error}") from None
        shell = sorted(SHELL_WORDS & set(words))
        if shell or "\n" in value.strip():
            what = shell[0] if shell else "a line break"
            raise ValueError(f"no shell reads this, so {what} has no meaning; write bash -c '...' if you need one")
        return words

    @field_validator("run")
    @classmethod
    def _command(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        if not words or not words[0]:
            raise ValueError("the command is empty")
        if any("\0" in word for word in words):
            raise ValueError("no NUL characters here")
        return words

    @field_validator("run", "envs")
    @classmethod
    def _known_placeholders(cls, value: Any) -> Any:
        texts = value.values() if isinstance(value, dict) else value
        for name in (name for text in texts for name in placeholders(text)):
            if name not in PLACEHOLDERS:
                known = ", ".join(PLACEHOLDERS)
                raise ValueError(
                    f"unknown placeholder {{{name}}}; known: {known}; write {{{{{name}}}}} for plain braces"
                )
        return value

    def receives(self, knob: str) -> bool:
        """Tell whether a change of this knob can reach the script at all."""
        if self.knobs.mode == "inside":
            return True
        return any(knob in placeholders(text) for text in (*self.run, *self.envs.values()))

    @property
    def mounted(self) -> tuple[Volume, ...]:
        return tuple(parse_volume(text) for text in self.volumes)

    @model_validator(mode="after")
    def _checkpoints_outlive_the_container(self) -> JobSpec:
        folder = self.checkpoint.dir
        if self.image is None:
            return self
        if ".." in PurePosixPath(folder).parts:
            raise ValueError(f"checkpoint.dir: {folder}: a folder in a container has no ..")
        found = host_path(folder, self.mounted)
        if folder.startswith("/") and (found is None or found[1].read_only):
            raise ValueError(
                f"checkpoint.dir: {folder} would be lost with the container: put it into a volume, or give "
                "a relative folder"
            )
        return self
