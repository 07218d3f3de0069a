"""Reads the settings of a Slurm site in the list of hosts, and names everything that is wrong with them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from rung.jobs.model.gpu import gpu_type
from rung.jobs.site import words
from rung.jobs.site.settings import GpuOption, Site, Start
from rung.jobs.site.times import parse_limit
from rung.jobs.spec.fields import duration, parse_size
from rung.jobs.spec.image import is_pinned
from rung.jobs.spec.yaml_reader import nearest

# What sbatch accepts.
MOST_WARNING = 65_535
MOST_LISTED = 50


def read_site(raw: Any) -> tuple[Site, list[str]]:
    """Return the site of a mapping, and its problems as `.KEY: what`; with problems, the site has defaults instead."""
    if raw is None:
        raw = {}
    if not isinstance(raw, dict):
        return Site(), [f": should be a mapping, such as {{partition: gpu, time: 12h}} (got {_shown(raw)})"]
    given: dict[str, Any] = {}
    problems: list[str] = []
    for key, value in raw.items():
        if key not in PARSERS:
            problems.append(f".{key}: unknown key{nearest(key, PARSERS)}")
            continue
        try:
            given[key] = PARSERS[key](value)
        except ValueError as error:
            problems.append(f".{key}: {error} (got {_shown(value)})")
    site = Site(**given)
    return site, problems or [f".{what}" for what in _contradictions(site)]


def _contradictions(site: Site) -> Iterator[str]:
    if site.venv and site.conda:
        yield "conda: give either venv or conda"
    if site.start.contains and (site.venv or site.conda):
        yield f"{'venv' if site.venv else 'conda'}: has no effect in a container; leave it out, or write start: plain"
    if site.images and not site.start.contains:
        yield "images: has no effect without a container; leave it out, or write start: apptainer"
    if site.module_init and not site.modules:
        yield "module_init: has no effect without modules"
    if site.time is not None and site.warn >= site.time:
        yield f"warn: {site.warn} s before the limit is not within the time of {site.time} s"


def _shown(value: Any) -> str:
    return repr(str(value)[:60])


def _folder(value: Any) -> str:
    inside_home = isinstance(value, str) and value.startswith("~/")
    words.path(value[1:] if inside_home else value)
    return str(value).rstrip("/")


def _size(value: Any) -> int:
    if not isinstance(value, str):
        raise ValueError("give a size such as 64g or 512m")
    return parse_size(value)


def _count(value: Any, least: int = 1, most: int = 100_000) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"should be a whole number from {least} to {most}")
    return value


def _seconds(least: int, most: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        seconds = duration(value) if isinstance(value, str) else value
        number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        if not number or not least <= seconds <= most or seconds != int(seconds):
            raise ValueError(f"give seconds, or a time such as 90s or 2m, from {least} to {most} seconds")
        return int(seconds)

    return parse


def _choice(kind: type[StrEnum]) -> Callable[[Any], Any]:
    def parse(value: Any) -> StrEnum:
        if value not in [*kind]:
            raise ValueError(f"should be one of {', '.join(kind)}")
        return kind(value)

    return parse


def _list_of(check: Callable[[object], str]) -> Callable[[Any], tuple[str, ...]]:
    def parse(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or len(value) > MOST_LISTED:
            raise ValueError(f"should be a list of at most {MOST_LISTED} words")
        return tuple(check(each) for each in value)

    return parse


def _conda(value: Any) -> str:
    return words.path(value) if isinstance(value, str) and value.startswith("/") else words.name(value)


def _gpu_names(value: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict) or len(value) > MOST_LISTED:
        raise ValueError("should be a mapping from a type of GPU to the site's name, such as {A100: a100}")
    names = {gpu_type(str(kind)): "" if name is None else words.name(name) for kind, name in value.items()}
    if len(names) < len(value):
        raise ValueError("names a type of GPU twice")
    return tuple(sorted(names.items()))


def _images(value: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict) or len(value) > MOST_LISTED or not all(is_pinned(str(each)) for each in value):
        raise ValueError("should be a mapping from a pinned image (name@sha256:...) to its file at the site")
    return tuple(sorted((str(image), words.path(file)) for image, file in value.items()))


PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "partition": words.names,
    "account": words.name,
    "qos": words.name,
    "time": parse_limit,
    "folder": _folder,
    "gpu_option": _choice(GpuOption),
    "gpu_names": _gpu_names,
    "memory": _size,
    "cpus_per_gpu": _count,
    "options": _list_of(words.site_option),
    "warn": _seconds(0, MOST_WARNING),
    "poll": _seconds(1, 3600),
    "submit_at_most": _count,
    "start": _choice(Start),
    "modules": _list_of(words.module),
    "module_init": words.path,
    "venv": words.path,
    "conda": _conda,
    "images": _images,
}
