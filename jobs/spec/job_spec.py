"""The whole job file as one frozen model. `load` reads it from YAML."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from rung.jobs.model.engine import PROCESS
from rung.jobs.model.event import Occasion
from rung.jobs.model.knobs import Precision
from rung.jobs.site.job_section import SlurmSection
from rung.jobs.spec.checkpoint_spec import CheckpointSpec
from rung.jobs.spec.fields import (
    EnvName,
    FiniteFloat,
    Line,
    Model,
    Name,
    TargetName,
    is_stored,
    no_control,
    not_bool,
    visible,
)
from rung.jobs.spec.image import is_pinned
from rung.jobs.spec.knob_channels import placeholders, why_unreachable
from rung.jobs.spec.knob_spec import PLACEHOLDERS, KnobSpec
from rung.jobs.spec.recovery_spec import Recovery
from rung.jobs.spec.resources import Ranks, Resources, why_no_ranks
from rung.jobs.spec.validation_spec import ValidationSpec
from rung.jobs.spec.volume import Volume, host_path, parse_volume, why_refused

SHELL_WORDS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1"})


def _pinned(image: str | dict[str, str]) -> str | dict[str, str]:
    if not all(is_pinned(name) for name in ([image] if isinstance(image, str) else image.values())):
        raise ValueError(
            "pin the image by digest: name@sha256:<64 hex digits>, or by its id: sha256:<64 hex digits>; "
            "`rung image lock` finds the digest of a tag"
        )
    return image


def _volume(text: str, info: ValidationInfo) -> str:
    volume = parse_volume(text)
    reason = None if is_stored(info) else why_refused(volume.host)
    if reason:
        raise ValueError(f"{volume.host} {reason}; give a folder of yours")
    return volume.text


def _network(value: Any) -> Any:
    # Job files of 0.1.0 call it bridge; containers of several jobs shared one then.
    return "own" if value == "bridge" else value


def split_words(line: str) -> list[str]:
    """Return the words of a command that is written as one line."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise ValueError(f"cannot be split into words: {error}") from None
    shell = sorted(SHELL_WORDS & set(words))
    if shell or "\n" in line.strip():
        what = shell[0] if shell else "a line break"
        raise ValueError(f"no shell reads this, so {what} has no meaning; write bash -c '...' if you need one")
    return words


def _switch(value: Any) -> Any:
    # YAML reads a bare `on` or `off` as True or False.
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


NOTIFY_SCHEMA = {
    "anyOf": [
        {"type": ["string", "boolean"]},
        {"type": "array", "items": {"type": "string"}},
        {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "to": {"type": "array", "items": {"type": "string"}},
                "events": {"type": "array", "items": {"enum": [each.value for each in Occasion]}},
            },
        },
    ]
}


def _notify(value: Any) -> Any:
    """Read `lab`, `[lab, me]` and `off` as the field `to`."""
    if value is False or value == "off":
        return {"to": []}
    return {"to": [value] if isinstance(value, str) else value} if isinstance(value, (str, list)) else value


Image = Annotated[str | dict[str, str], AfterValidator(_pinned)]


class Success(Model):
    """What exit code 0 must also show."""

    metric: Name
    below: FiniteFloat | None = None
    above: FiniteFloat | None = None

    @model_validator(mode="after")
    def _one_bound(self) -> Success:
        if (self.below is None) == (self.above is None):
            raise ValueError("give either below or above")
        return self


class Notify(Model):
    """Who is told about the job and of what; what is left out is as notify.yaml in RUNG_HOME says."""

    to: tuple[TargetName, ...] | None = Field(
        None, description="Names of targets in notify.yaml; an empty list: nobody."
    )
    events: tuple[Occasion, ...] | None = Field(None, description="What they are told about.")


class JobSpec(Model):
    """What a person asked for: one training job."""

    name: Annotated[str, Field(min_length=1, max_length=100), AfterValidator(no_control), AfterValidator(visible)]
    run: tuple[str, ...] = Field(description="The command, as one line or a list of words. No shell reads it.")
    run_on_resume: tuple[str, ...] | None = Field(
        None, description="The command of a launch that resumes from a checkpoint, where it is not the one of run."
    )
    image: Image | None = Field(None, description="Container image by digest, or a map by GPU.")
    resources: Resources = Resources()
    ranks: Ranks = Field(None, description="torchrun starts the command so often: a number, or gpus for one per GPU.")
    priority: Annotated[int, BeforeValidator(not_bool), Field(ge=-1000, le=1000)] = Field(
        0, description="Among jobs that wait for a host or for this machine, the higher number goes first."
    )
    envs: dict[EnvName, Line] = Field({}, description="Environment variables; values may hold placeholders.")
    secrets: tuple[EnvName, ...] = Field((), description="Names of secrets; never their values.")
    volumes: tuple[Annotated[Line, AfterValidator(_volume)], ...] = Field(
        (), description="Folders of the host that a container may use: host:container, or host:container:ro."
    )
    network: Annotated[Literal["own", "none", "host"], BeforeValidator(_network)] = Field(
        "own", description="own: only this job's, behind the host's address; none; host: the host's own."
    )
    slurm: SlurmSection | None = Field(None, description="The job runs at a Slurm site, with these settings.")
    workdir: Line = Field(".", description="Where the command runs, relative to the job file.")
    knobs: KnobSpec = KnobSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    success: Success | None = None
    validation: ValidationSpec = ValidationSpec()
    recovery: Recovery = Recovery()
    trackers: Annotated[Literal["on", "off"], BeforeValidator(_switch)] = Field(
        "on", description="on: the attempts of the job are kept together in W&B, MLflow and TensorBoard."
    )
    notify: Annotated[Notify | None, BeforeValidator(_notify), WithJsonSchema(NOTIFY_SCHEMA)] = Field(
        None, description="Who is told about the job: names of notify.yaml in RUNG_HOME, {to, events}, or off."
    )

    @field_validator("run", "run_on_resume", mode="before")
    @classmethod
    def _split_words(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return split_words(value)

    @field_validator("run", "run_on_resume")
    @classmethod
    def _command(cls, words: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if words is None:
            return None
        if not words or not words[0]:
            raise ValueError("the command is empty")
        if any("\0" in word for word in words):
            raise ValueError("no NUL characters here")
        return words

    @field_validator("run", "run_on_resume", "envs")
    @classmethod
    def _known_placeholders(cls, value: Any) -> Any:
        texts = value.values() if isinstance(value, dict) else value or ()
        for name in (name for text in texts for name in placeholders(text)):
            if name not in PLACEHOLDERS:
                known = ", ".join(PLACEHOLDERS)
                raise ValueError(
                    f"unknown placeholder {{{name}}}; known: {known}; `rung launch --grid {name}=...` sets one of your "
                    f"own; write {{{{{name}}}}} for plain braces"
                )
        return value

    @model_validator(mode="after")
    def _resumes_with_its_knobs(self) -> JobSpec:
        def named(words: tuple[str, ...]) -> set[str]:
            return {name for word in words for name in placeholders(word)} - {"checkpoint", "checkpoint_dir"}

        missing = sorted(named(self.run) - named(self.run_on_resume)) if self.run_on_resume is not None else []
        if missing:
            raise ValueError(
                f"run_on_resume: {{{missing[0]}}} is in run and not here, so a relaunch that resumes would lose it"
            )
        return self

    @model_validator(mode="after")
    def _can_have_ranks(self) -> JobSpec:
        for command in (self.run, self.run_on_resume or self.run):
            why = None if self.ranks is None else why_no_ranks(self.ranks, self.resources.gpu, command)
            if why:
                raise ValueError(f"ranks: {why}")
        return self

    @model_validator(mode="after")
    def _rung_can_save(self) -> JobSpec:
        if not self.checkpoint.is_rungs_own:
            return self
        if self.knobs.mode != "zero-edit":
            raise ValueError(
                f"checkpoint.by: rung needs knobs.mode zero-edit, and it is {self.knobs.mode}: only there does Rung "
                "know the model and the optimizer"
            )
        words = (*self.run, *(self.run_on_resume or ()), *self.envs.values())
        if any("checkpoint" in placeholders(word) for word in words):
            raise ValueError("checkpoint.by: rung: the script cannot load a file of Rung's: leave {checkpoint} out")
        return self

    def command(self, *, resumes: bool) -> tuple[str, ...]:
        """Return the words of the command, for a launch that resumes from a checkpoint or for one that does not."""
        return self.run_on_resume if resumes and self.run_on_resume is not None else self.run

    @property
    def validated_metric(self) -> str | None:
        """Return the metric that FP16 and FP32 are compared by; None if the job file names none."""
        return self.validation.metric or (self.success.metric if self.success else None)

    @model_validator(mode="after")
    def _can_be_validated(self) -> JobSpec:
        if self.recovery.gate == "off":
            return self
        if self.validated_metric is None:
            raise ValueError("recovery.validate: before needs a number to compare: name it in success.metric")
        if reason := why_unreachable(self, "precision", Precision.FP32):
            raise ValueError(f"recovery.validate: before cannot be done, since {reason}")
        return self

    @property
    def is_remote(self) -> bool:
        """Tell whether the job goes to a host of the list: the engine of this machine does not take it."""
        return self.needs_site or not PROCESS.takes(image=self.image is not None)

    @property
    def needs_site(self) -> bool:
        """Tell whether the job asks for what only a site with a queue has."""
        return self.slurm is not None or self.resources.time is not None or self.resources.nodes > 1

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
