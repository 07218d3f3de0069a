"""Names of images: by digest, by id, or by a tag that a lock file pins. Asks no registry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rung.jobs.model.gpu import gpu_type

# A name as registries write it: an optional host and port first, no scheme, no upper case in the path.
NAME = r"(?:[A-Za-z0-9][A-Za-z0-9.-]{0,254}(?::[0-9]{1,5})?/)?[a-z0-9]+(?:(?:\.|__?|-+|/)[a-z0-9]+){0,40}"
TAG = re.compile(rf"{NAME}(?::[\w][\w.-]{{0,127}})?")
BY_DIGEST = re.compile(rf"({NAME})(?::[\w][\w.-]{{0,127}})?@(sha256:[0-9a-f]{{64}})")
BY_ID = re.compile(r"sha256:[0-9a-f]{64}")
LOCK_FILE = "images.lock"
LONGEST = 500


def is_pinned(image: str) -> bool:
    """Return whether a name can only mean one image."""
    return len(image) <= LONGEST and bool(BY_DIGEST.fullmatch(image) or BY_ID.fullmatch(image))


def is_tag(image: str) -> bool:
    """Return whether a registry could pin this name."""
    return len(image) <= LONGEST and not BY_ID.fullmatch(image) and bool(TAG.fullmatch(image))


def repository(image: str) -> str:
    """Return a name without its tag and digest."""
    name = image.partition("@")[0]
    head, colon, tag = name.rpartition(":")
    # A colon before the last slash is a port.
    return head if colon and "/" not in tag else name


def for_gpu(image: str | Mapping[str, str], kind: str) -> str | None:
    """Return the image for a type of GPU, or for `cpu`; None if a map has none for it."""
    if isinstance(image, str):
        return image
    return next((name for key, name in image.items() if gpu_type(key) == gpu_type(kind)), None)


def names_in(image: Any) -> list[str]:
    """Return the texts of an `image` field of any shape."""
    values = image.values() if isinstance(image, dict) else [image]
    return [value for value in values if isinstance(value, str)]


def with_pins(image: Any, pins: Mapping[str, str]) -> Any:
    """Return an `image` field with every tag of the lock file replaced by its pinned name."""
    if isinstance(image, dict):
        return {kind: with_pins(name, pins) for kind, name in image.items()}
    return pins.get(image, image) if isinstance(image, str) else image
