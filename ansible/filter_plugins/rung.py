"""Ansible filters that use Rung's own code: which images a host needs, and whether their kernels run there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rung.jobs.model.gpu import kernels_for
from rung.jobs.spec.image import for_gpu, names_in
from rung.jobs.spec.load import load_spec

Images = str | list[str] | Mapping[str, Any]


def has_kernels(archs: str, capability: str) -> bool:
    """Return whether a label such as `sm_60 sm_75` supports a capability such as `6.0`."""
    major, _, minor = capability.partition(".")
    return kernels_for((int(major), int(minor)), archs.split())


def images_for(pull: Images, job_files: Iterable[str], types: Iterable[str]) -> list[str]:
    """Return the images that a host with these GPU types needs, without duplicates."""
    kinds = list(types) or ["cpu"]
    asked = [pull] if isinstance(pull, str | Mapping) else list(pull)
    asked += [load_spec(Path(file).expanduser()).image or [] for file in job_files]
    found = [name for image in asked for kind in kinds for name in _names(image, kind)]
    return list(dict.fromkeys(found))


def _names(image: Images, kind: str) -> list[str]:
    if isinstance(image, Mapping):
        image = for_gpu(image, kind) or []
    return list(image) if isinstance(image, list) else names_in(image)


def clock_judged(lines: Iterable[str], after: float, most: float) -> list[str]:
    """Return a health script's lines with `time TAB ours before TAB theirs` replaced by a finding.

    The host read its clock between two readings of ours, so a difference within that interval is not an error.
    """
    judged = []
    for line in lines:
        word, *times = line.split("\t")
        judged.append(_clock(int(times[0]), int(times[1]), after, most) if word == "time" else line)
    return judged


def _clock(before: int, there: int, after: float, most: float) -> str:
    behind, ahead = before - there, there - after
    if max(behind, ahead) <= most:
        return f"good\tclock\twithin {most:g} s of ours\t"
    side = f"{behind:.0f} s behind" if behind > ahead else f"{ahead:.0f} s ahead of"
    return f"bad\tclock\tits clock is {side} ours\ttimedatectl set-ntp true"


class FilterModule:
    """Names the filters for Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"has_kernels": has_kernels, "images_for": images_for, "clock_judged": clock_judged}
