"""Owns images on a host: pulled by digest, sent over the connection, pinned, and held against a GPU."""

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
from rung.jobs.spec.image import BY_ID, repository
from rung.runner.engines.docker.api import EngineApi
from rung.runner.files.tree import size_text

ARCHS_LABEL = "rung.cuda.archs"
# get_arch_list() is empty without a GPU; the flags of its build are not.
ASK_TORCH = "import torch; print('rung.cuda.archs', getattr(torch._C, '_cuda_getArchFlags', str)() or '')"
ARCH = re.compile(r"(?:sm|compute)_[0-9]{2,3}[a-z]?")
PROGRESS_SECONDS = 1.0

OnProgress = Callable[[str], None]
# Runs a short command in a throw-away container of an image: exit code and output.
Ask = Callable[[str, tuple[str, ...]], tuple[int, str]]


class Images:
    """The images of one host."""

    def __init__(self, api: EngineApi, ask: Ask) -> None:
        self._api, self._ask = api, ask
        self._archs: dict[str, tuple[str, ...] | None] = {}
        self._pulling: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def ensure(self, image: str, on_progress: OnProgress) -> None:
        """Have an image on the host, pulling it by its digest when it is not there."""
        with self._lock:
            pulling = self._pulling.setdefault(image, threading.Lock())
        # Who wants the same image waits for whoever pulls it.
        with pulling:
            if self._api.image(image) is None:
                self._pull(image, on_progress)

    def _pull(self, image: str, on_progress: OnProgress) -> None:
        host = self._api.host
        if BY_ID.fullmatch(image):
            raise EngineError(f"{host} has no image {image}: send it there with `rung image send IMAGE {host}`")
        progress = Progress(f"{host} is pulling {image.partition('@')[0]}", on_progress)
        try:
            for said in self._api.pull(image):
                progress.update(said)
        except EngineError as error:
            advice = f"is its registry within reach of {host}? `rung image send IMAGE {host}` needs none"
            raise EngineError(f"{error}; {advice}") from None
        if self._api.image(image) is None:
            raise EngineError(f"{host}: {image} was pulled and is not there")

    def send(self, archive: Iterable[bytes], image_id: str) -> None:
        """Bring an image over the connection from its archive, and check that it arrived as what it was."""
        if self._api.image(image_id) is not None:
            return
        said = self._api.load(archive)
        if self._api.image(image_id) is None:
            told = clean(" ".join(str(one.get("stream", "")) for one in said)).strip()[:200]
            raise EngineError(f"{self._api.host}: the image was sent and has another id there than {image_id}: {told}")

    def pin(self, tag: str) -> str:
        """Return what a tag means now, asked of its registry by the host; else what it means on the host itself."""
        try:
            return f"{repository(tag)}@{self._api.digest(tag)}"
        except EngineError as error:
            found = self._api.image(tag)
            if found is None:
                raise EngineError(f"{error}; and {self._api.host} itself has no image of this name") from None
        digests = [name for name in found.get("RepoDigests") or () if repository(name) == repository(tag)]
        return str(digests[0] if digests else found["Id"])

    def incompatibility(self, image: str, gpu: Gpu) -> str | None:
        """Say why an image has nothing to run on a GPU, or None when it has, or when nobody can tell."""
        archs = self._archs_of(image)
        if archs is None or kernels_for(gpu.capability, archs):
            return None
        sm = f"sm_{gpu.capability[0]}{gpu.capability[1]}"
        has = f"has kernels for {' '.join(archs)} alone" if archs else "has no CUDA kernels at all"
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
        """Ask the torch in an image; None when there is none to ask."""
        for python in ("python", "python3"):
            code, output = self._ask(image, (python, "-c", ASK_TORCH))
            if code == 0 and (found := re.search(rf"^{ARCHS_LABEL}(.*)$", output, re.MULTILINE)):
                return tuple(ARCH.findall(found[1]))
        return None


def labelled_archs(image: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the arch list that an image's label gives; None without the label."""
    label = ((image.get("Config") or {}).get("Labels") or {}).get(ARCHS_LABEL)
    return tuple(ARCH.findall(label)) if isinstance(label, str) else None


class Progress:
    """Sums up what an engine tells of a pull, layer by layer, about once a second."""

    def __init__(self, what: str, on_progress: OnProgress, now: Callable[[], float] = time.monotonic) -> None:
        self._what, self._on_progress, self._now = what, on_progress, now
        self._layers: dict[str, tuple[int, int]] = {}
        self._reported_at = 0.0
        on_progress(what)

    def update(self, said: Mapping[str, Any]) -> None:
        detail = said.get("progressDetail")
        if not isinstance(detail, dict) or not detail.get("total") or said.get("status") != "Downloading":
            return
        # An engine that tells of more layers than any image has is not believed, and not remembered.
        if len(self._layers) < 1000:
            self._layers[str(said.get("id"))[:80]] = (int(detail.get("current", 0)), int(detail["total"]))
        if self._now() - self._reported_at >= PROGRESS_SECONDS:
            self._reported_at = self._now()
            current, total = (sum(pair[side] for pair in self._layers.values()) for side in (0, 1))
            self._on_progress(f"{self._what}: {size_text(current)} of {size_text(total)}")


def archive_id(manifest: bytes) -> str:
    """Return the id of the one image in a saved archive, from the archive's own list."""
    try:
        (only,) = json.loads(manifest)
        found = re.search(r"[0-9a-f]{64}", only["Config"])
    except (ValueError, TypeError, KeyError):
        found = None
    if found is None:
        raise EngineError("the archive is not that of one image: write it with `docker save IMAGE`")
    return f"sha256:{found[0]}"
