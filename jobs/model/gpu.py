"""What Rung knows about a GPU: its name, its capability, and the short type that job files use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

# Parts of a driver's name for the maker, the form or the packaging. They do not identify the GPU.
NOISE = re.compile(
    r"NVIDIA|TESLA|GEFORCE|QUADRO|GRID|DGX|PCIE|SXM\d*|NVL\d*|HBM\d\w*|\d+[GT]B|MAX|Q|LAPTOP|MOBILE|GPU"
    r"|GENERATION|WITH|DESIGN|BLACKWELL|PASCAL|TURING|SERVER|WORKSTATION|EDITION"
)
WORD = re.compile(r"[A-Z0-9]+")
# The last digit is the minor version: sm_75, sm_120, compute_90, sm_90a.
ARCH = re.compile(r"(sm|compute)_([0-9]{1,2})([0-9])([a-z]?)")
# The first GPUs with TF32, which has FP32's range and FP16's 10 bits of mantissa.
TF32_CAPABILITY = (8, 0)


@dataclass(frozen=True)
class Gpu:
    name: str
    capability: tuple[int, int]
    index: int = 0
    uuid: str = ""
    memory: int = 0  # bytes; 0 where the driver does not say
    driver: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "type": self.type, "capability": list(self.capability)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Gpu:
        major, minor = data["capability"]
        return cls(**{k: v for k, v in data.items() if k != "type"} | {"capability": (major, minor)})

    @property
    def type(self) -> str:
        return gpu_type(self.name)

    @property
    def fp16_tensor_cores(self) -> bool:
        """Return whether FP16 is many times faster than FP32; Pascal (sm_60) has no tensor cores."""
        return self.capability >= (7, 0)

    @property
    def has_tf32(self) -> bool:
        return self.capability >= TF32_CAPABILITY


def gpu_type(name: str) -> str:
    """Return the type for a driver's name: `Tesla P100-PCIE-16GB` is P100, `NVIDIA TITAN RTX` is TITANRTX."""
    # What follows MIG names a slice of the GPU.
    words = [word for word in WORD.findall(name.upper().partition(" MIG ")[0]) if not NOISE.fullmatch(word)]
    # The workstation cards A2000 to A6000 are sold as RTX A6000 and usually called A6000.
    if len(words) > 1 and words[0] == "RTX" and re.fullmatch(r"A\d000", words[1]):
        words = words[1:]
    return "".join(words)[:32] or "GPU"


def kernels_for(capability: tuple[int, int], archs: Iterable[str]) -> bool:
    """Return whether code built for these architectures runs on a GPU of this capability.

    A kernel (sm_80) runs on its own major version from its minor on; PTX (compute_80) is compiled for anything newer. A
    letter at the end limits either to that one capability.
    """
    return any(_runs(capability, match) for arch in archs if (match := ARCH.fullmatch(arch)))


def _runs(capability: tuple[int, int], match: re.Match[str]) -> bool:
    built = (int(match[2]), int(match[3]))
    if match[4]:
        return built == capability
    if match[1] == "compute":
        return built <= capability
    return built[0] == capability[0] and built[1] <= capability[1]


@dataclass(frozen=True)
class Member:
    """A host that runs a part of an attempt, and the GPUs that only this part uses."""

    host: str
    gpus: tuple[Gpu, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {"host": self.host, "gpus": [gpu.to_dict() for gpu in self.gpus]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Member:
        return cls(str(data["host"]), tuple(Gpu.from_dict(gpu) for gpu in data["gpus"]))
