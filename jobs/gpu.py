"""Owns what Rung knows of a GPU when it chooses a rung."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    name: str
    capability: tuple[int, int]

    @property
    def fp16_tensor_cores(self) -> bool:
        """Tell whether FP16 is many times faster than FP32; Pascal (sm_60) has no tensor cores."""
        return self.capability >= (7, 0)
