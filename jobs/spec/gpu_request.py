"""What a job may request of GPUs: a type, a capability, memory, a count."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from rung.jobs.model.gpu import Gpu, gpu_type
from rung.jobs.spec.fields import not_bool

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
    """GPUs that a job accepts: `A100:2`, or a mapping where the type does not matter."""

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
        """Read `TITANRTX:1` and `A100`."""
        if not isinstance(value, str):
            return value
        match = TYPE_AND_COUNT.fullmatch(value)
        if match is None:
            raise ValueError("give a type with how many, such as A100:1, or a mapping with capability or memory")
        return {"type": match[1], "count": int(match[2] or 1)}

    @model_validator(mode="after")
    def _names_a_gpu(self) -> GpuRequest:
        if self.type is None and self.capability is None and self.memory is None:
            raise ValueError("say which GPU: a type, a capability or memory")
        return self

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
        kind = self.type or "GPU"
        many = f"{self.count} {kind}" if self.count > 1 else f"{'an' if kind[0] in 'AEFHILMNORSX' else 'a'} {kind}"
        return f"{many} with {' and '.join(extras)}" if extras else many
