"""Tests the image without a file: what it consists of, and when a host gets it. The fleet's tests run it."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable
from typing import Any, cast

import pytest

from rung.jobs.model.errors import EngineError
from rung.runner.engines.docker.api import EngineApi
from rung.runner.engines.docker.empty_image import EMPTY_IMAGE, empty_archive, ensure_empty_image


class Engine:
    """An engine that keeps what it is given, or does not."""

    host = "turing"

    def __init__(self, *, keeps: bool = True) -> None:
        self.keeps, self.loads, self.there = keeps, 0, False

    def image(self, name: str) -> dict[str, Any] | None:
        assert name == EMPTY_IMAGE
        return {"Id": "x"} if self.there else None

    def load(self, archive: Iterable[bytes]) -> list[dict[str, Any]]:
        assert b"".join(archive)
        self.loads, self.there = self.loads + 1, self.keeps
        return []


def test_it_is_given_to_a_host_that_does_not_have_it() -> None:
    engine = Engine()
    for _ in range(2):
        ensure_empty_image(cast(EngineApi, engine), "x86_64")
    assert engine.loads == 1
    engine.there = False  # somebody removed the images that no container uses
    ensure_empty_image(cast(EngineApi, engine), "x86_64")
    assert engine.loads == 2


def test_an_engine_that_does_not_take_it_is_an_error() -> None:
    with pytest.raises(EngineError, match="turing: its engine does not take the empty image"):
        ensure_empty_image(cast(EngineApi, Engine(keeps=False)), "x86_64")


@pytest.mark.parametrize(
    ("machine", "architecture"), [("x86_64", "amd64"), ("aarch64", "arm64"), ("riscv64", "riscv64")]
)
def test_it_has_one_empty_layer_and_the_architecture_of_the_host(machine: str, architecture: str) -> None:
    with tarfile.open(fileobj=io.BytesIO(empty_archive(machine))) as archive:
        files = {each.name: cast(Any, archive.extractfile(each)).read() for each in archive}
    (manifest,) = json.loads(files["manifest.json"])
    config = json.loads(files[manifest["Config"]])
    layer = files[manifest["Layers"][0]]
    assert (manifest["RepoTags"], config["architecture"]) == ([EMPTY_IMAGE], architecture)
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as empty:
        assert empty.getnames() == []
