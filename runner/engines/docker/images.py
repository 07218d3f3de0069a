"""Manages the images of a host: pulls by digest, sends over the connection, pins, compares with a GPU."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rung.jobs.model.errors import EngineError
from rung.jobs.model.gpu import Gpu, kernels_for
from rung.jobs.model.terminal_text import clean
from rung.jobs.spec.image import BY_ID, is_pinned, repository
from rung.runner.engines.docker.api import EngineApi
from rung.runner.files.tree import size_text

ARCHS_LABEL = "rung.cuda.archs"
# get_arch_list() is empty without a GPU; the flags of its build are not.
ASK_TORCH = "import torch; print('rung.cuda.archs', getattr(torch._C, '_cuda_getArchFlags', str)() or '')"
ARCH = re.compile(r"(?:sm|compute)_[0-9]{2,3}[a-z]?")
PROGRESS_SECONDS = 1.0
MOST_LAYERS = 1000

OnProgress = Callable[[str], None]
# Runs a short command in a temporary container of an image: exit code and output.
Ask = Callable[[str, tuple[str, ...]], tuple[int, str]]


class Images:
    """The images of one host."""

    def __init__(self, api: EngineApi, ask: Ask) -> None:
        self._api, self._ask = api, ask
        self._archs: dict[str, tuple[str, ...] | None] = {}
        self._pulling: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def ensure(self, image: str, on_progress: OnProgress) -> None:
        """Pull an image by its digest if the host does not have it."""
        with self._lock:
            pulling = self._pulling.setdefault(image, threading.Lock())
        # A second request for the same image waits for the first.
        with pulling:
            if self._api.image(image) is None:
                self._pull(image, on_progress)

    def _pull(self, image: str, on_progress: OnProgress) -> None:
        host = self._api.host
        if BY_ID.fullmatch(image):
            raise EngineError(f"{host} has no image {image}: send it there with `rung image send IMAGE {host}`")
        progress = Progress(f"{host} is pulling {image.partition('@')[0]}", on_progress)
        try:
            for status in self._api.pull(image):
                progress.update(status)
        except EngineError as error:
            advice = (
                f"can {host} reach its registry, and does it need a login (rung_registries in the list of hosts)? "
                f"`rung image send IMAGE {host}` needs neither"
            )
            raise EngineError(f"{error}; {advice}") from None
        if self._api.image(image) is None:
            raise EngineError(f"{host}: {image} was pulled and is not there")

    def send(self, archive: Iterable[bytes], image_id: str) -> None:
        """Send an image from its archive over the connection, and check that its id is the same there."""
        if self._api.image(image_id) is not None:
            return
        statuses = self._api.load(archive)
        if self._api.image(image_id) is None:
            output = clean(" ".join(str(one.get("stream", "")) for one in statuses)).strip()[:200]
            raise EngineError(
                f"{self._api.host}: the image was sent and has another id there than {image_id}: {output}"
            )

    def pin(self, tag: str) -> str:
        """Return the digest of a tag, from its registry as the host sees it, or else from the host itself."""
        try:
            return f"{repository(tag)}@{self._checked_digest(tag, self._api.digest(tag))}"
        except EngineError as error:
            found = self._api.image(tag)
            if found is None:
                raise EngineError(f"{error}; and {self._api.host} itself has no image of this name") from None
        pinned = [name for name in _texts(found.get("RepoDigests")) if is_pinned(name)]
        same = [name for name in pinned if repository(name) == repository(tag)]
        return same[0] if same else self._checked_digest(tag, found.get("Id"))

    def _checked_digest(self, tag: str, digest: object) -> str:
        """Return a digest that a host names, if it is one: it goes into the lock file and on the terminal."""
        if isinstance(digest, str) and BY_ID.fullmatch(digest):
            return digest
        shown = clean(str(digest)[:200])[:80]
        raise EngineError(f"{self._api.host}: image {tag}: what it names is no digest: {shown!r}")

    def incompatibility(self, image: str, gpu: Gpu) -> str | None:
        """Return why an image cannot run on a GPU; None when it can, or when its architectures are not known."""
        archs = self._archs_of(image)
        if archs is None or kernels_for(gpu.capability, archs):
            return None
        sm = f"sm_{gpu.capability[0]}{gpu.capability[1]}"
        has = f"has kernels only for {' '.join(archs)}" if archs else "has no CUDA kernels at all"
        advice = f"a build that still has {sm}" if gpu.capability < (7, 0) else f"a build for {sm}"
        such = ", such as a cu126 one" if gpu.capability < (7, 0) else ""
        return (
            f"{gpu.type} ({sm}) needs {advice}{such}; image {image} {has}: name another one, or a map by GPU, "
            "in the job file"
        )

    def _archs_of(self, image: str) -> tuple[str, ...] | None:
        with self._lock:
            if image in self._archs:
                return self._archs[image]
        found = self._api.image(image)
        if found is None:
            raise EngineError(f"{self._api.host} has no image {image}")
        archs = labelled_archs(found)
        if archs is None:
            archs = self._ask_torch(image)
        with self._lock:
            self._archs[image] = archs
        return archs

    def _ask_torch(self, image: str) -> tuple[str, ...] | None:
        """Ask the torch in an image for its architectures; None when there is no torch."""
        for python in ("python", "python3"):
            code, output = self._ask(image, (python, "-c", ASK_TORCH))
            if code == 0 and (found := re.search(rf"^{ARCHS_LABEL}(.*)$", output, re.MULTILINE)):
                return tuple(ARCH.findall(found[1]))
        return None


def labelled_archs(image: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the arch list from the label of an image; None without the label."""
    config = image.get("Config")
    labels = config.get("Labels") if isinstance(config, dict) else None
    label = labels.get(ARCHS_LABEL) if isinstance(labels, dict) else None
    return tuple(ARCH.findall(label)) if isinstance(label, str) else None


def _texts(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


class Progress:
    """Sums up the progress of a pull over its layers, and reports it about once a second."""

    def __init__(self, what: str, on_progress: OnProgress, now: Callable[[], float] = time.monotonic) -> None:
        self._what, self._on_progress, self._now = what, on_progress, now
        self._layers: dict[str, tuple[int, int]] = {}
        self._reported_at = 0.0
        on_progress(what)

    def update(self, status: Mapping[str, Any]) -> None:
        detail = status.get("progressDetail")
        if not isinstance(detail, dict) or status.get("status") != "Downloading":
            return
        current, total = _size(detail.get("current")), _size(detail.get("total"))
        # An engine that reports more layers than any image has is not trusted.
        if total and len(self._layers) < MOST_LAYERS:
            self._layers[str(status.get("id"))[:80]] = (current, total)
        if self._layers and self._now() - self._reported_at >= PROGRESS_SECONDS:
            self._reported_at = self._now()
            current, total = (sum(pair[side] for pair in self._layers.values()) for side in (0, 1))
            self._on_progress(f"{self._what}: {size_text(current)} of {size_text(total)}")


def _size(value: object) -> int:
    """Return a number of bytes that an engine reports; 0 for anything else."""
    return value if isinstance(value, int) and 0 <= value < 1 << 60 else 0


def archive_id(manifest: bytes) -> str:
    """Return the id of the one image in a saved archive, from its manifest."""
    try:
        (only,) = json.loads(manifest)
        found = re.search(r"[0-9a-f]{64}", only["Config"])
    except (ValueError, TypeError, KeyError, RecursionError):
        found = None
    if found is None:
        raise EngineError("the archive does not hold exactly one image: write it with `docker save IMAGE`")
    return f"sha256:{found[0]}"
