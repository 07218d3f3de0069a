"""What a job may ask of a host: GPUs by type, capability, memory and count, cores, memory, time; and its ranks."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from rung.jobs.model.gpu import Gpu, gpu_type
from rung.jobs.spec.fields import Model, PositiveInt, Size, TimeLimit, not_bool

# No single host has more GPUs.
MOST_GPUS = 64
TYPE_AND_COUNT = re.compile(r"\s*([A-Za-z][\w .-]{0,60}?)\s*(?::\s*([0-9]{1,3}))?\s*")
CAPABILITY = re.compile(r"(>=|<=|==|>|<)\s*([0-9]{1,2})\.([0-9]{1,2})")
MEMORY = re.compile(r"(>=|<=|>|<)\s*([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*([mgt])i?b?", re.IGNORECASE)
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
# No training of one person has more; a slip of the finger has.
MOST_NODES = 1024
# A card sold with 16 GB shows a little less than 16 GiB, because error correction uses some of it.
MEMORY_SHARE = 0.9


def _gpu_type(text: str) -> str:
    if not TYPE_AND_COUNT.fullmatch(text):
        raise ValueError("give a type of GPU such as A100 or TITANRTX")
    return gpu_type(text)


def _capability(text: str) -> str:
    if not CAPABILITY.fullmatch(text.strip()):
        raise ValueError('give a comparison such as ">=7.5"')
    return text.strip()


def _memory(text: str) -> str:
    if not MEMORY.fullmatch(text.strip()):
        raise ValueError('give a comparison such as ">=16g"')
    return text.strip()


class GpuRequest(BaseModel):
    """GPUs that a job accepts: `A100:2`, `2` of any type, or a mapping where the type does not matter."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Annotated[str, AfterValidator(_gpu_type)] | None = Field(None, description="The type, such as A100.")
    capability: Annotated[str, AfterValidator(_capability)] | None = Field(
        None, description='The compute capability, such as ">=7.5".'
    )
    memory: Annotated[str, AfterValidator(_memory)] | None = Field(None, description='The memory, such as ">=16g".')
    count: Annotated[int, BeforeValidator(not_bool), Field(ge=1, le=MOST_GPUS)] = 1

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        """Read `TITANRTX:1`, `A100`, and a count alone."""
        if type(value) is int:
            return {"count": value}
        if not isinstance(value, str):
            return value
        match = TYPE_AND_COUNT.fullmatch(value)
        if match is None:
            raise ValueError("give a type with how many, such as A100:1, a count, or a mapping with its fields")
        return {"type": match[1], "count": int(match[2] or 1)}

    def fits(self, gpu: Gpu) -> bool:
        """Return whether a GPU matches, whether or not it is free."""
        if self.type is not None and gpu.type != self.type:
            return False
        return self._has_capability(gpu) and self._has_memory(gpu)

    def _has_capability(self, gpu: Gpu) -> bool:
        match = CAPABILITY.fullmatch(self.capability) if self.capability else None
        return match is None or COMPARE[match[1]](gpu.capability, (int(match[2]), int(match[3])))

    def _has_memory(self, gpu: Gpu) -> bool:
        match = MEMORY.fullmatch(self.memory) if self.memory else None
        if match is None:
            return True
        wanted = float(match[2]) * 1024 ** ("mgt".index(match[3].lower()) + 2)
        # "At least 16g" includes a card that is sold with 16 GB.
        return COMPARE[match[1]](gpu.memory, wanted * (MEMORY_SHARE if match[1] == ">=" else 1.0))

    @property
    def text(self) -> str:
        """Return the request as text for a person: an A100, 2 A100, a GPU with capability >=7.5."""
        extras = [f"{name} {value}" for name in ("capability", "memory") if (value := getattr(self, name))]
        kind = self.type or ("GPU" if self.count == 1 else "GPUs")
        many = f"{self.count} {kind}" if self.count > 1 else f"{'an' if kind[0] in 'AEFHILMNORSX' else 'a'} {kind}"
        return f"{many} with {' and '.join(extras)}" if extras else many


# The word for one rank on each GPU.
PER_GPU = "gpus"
LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
PYTHON = re.compile(r"(?:.*/)?python[\d.]*")


def _ranks(value: Any) -> Any:
    if value is not None and value != PER_GPU and not (type(value) is int and 1 <= value <= MOST_GPUS):
        raise ValueError(f"give `{PER_GPU}`, for one rank on each GPU, or a number of ranks from 1 to {MOST_GPUS}")
    return value


Ranks = Annotated[
    int | str | None,
    BeforeValidator(_ranks),
    WithJsonSchema({"anyOf": [{"const": PER_GPU}, {"type": "integer", "minimum": 1, "maximum": MOST_GPUS}]}),
]


def why_no_ranks(ranks: int | str, gpus: Sequence[GpuRequest], command: Sequence[str]) -> str | None:
    """Return why a command cannot be started as these ranks on these GPUs; None: it can."""
    if not PYTHON.fullmatch(command[0]) or {*LAUNCHERS} & {*command[1:]}:
        return (
            "the command must be that of one rank, such as `python train.py`; one that starts its ranks itself, such "
            "as torchrun, needs no `ranks`"
        )
    if ranks == PER_GPU and not gpus:
        return "`gpus` needs resources.gpu, such as {gpu: A100:4}; give a number for ranks without GPUs"
    few = next((each for each in gpus if isinstance(ranks, int) and ranks > each.count), None)
    return f"{ranks} are more than its GPUs ({few.text}): give `{PER_GPU}`, or ask for as many GPUs" if few else None


def rank_count(ranks: int | str | None, gpus: Sequence[GpuRequest], leased: int) -> int | None:
    """Return how many ranks torchrun starts on so many leased GPUs; None: Rung starts the command itself."""
    if isinstance(ranks, str):
        # A dry run has leased none: it will be as many as are asked for.
        return leased or gpus[0].count
    return ranks


class Resources(Model):
    """What the job needs of a host, or of this machine."""

    gpu: tuple[GpuRequest, ...] = Field((), description="Acceptable GPUs in order of preference, such as TITANRTX:1.")
    cpus: PositiveInt | None = Field(None, description="At most this many CPU cores.")
    memory: Size | None = Field(None, description="At most this much memory, such as 16g.")
    shm: Size = Field("1g", description="Shared memory of a container, which data loaders pass batches through.")
    pids: PositiveInt = Field(4096, description="At most this many processes and threads in a container.")
    time: TimeLimit | None = Field(None, description="Time limit of one batch job of Slurm, such as 12h or 1-12:00.")
    nodes: Annotated[PositiveInt, Field(le=MOST_NODES)] = Field(
        1, description="Nodes of a Slurm site, or hosts that share a folder."
    )

    @field_validator("gpu", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return [value] if isinstance(value, (str, dict, int)) else value
