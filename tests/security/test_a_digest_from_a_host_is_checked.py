"""Tests that `rung image lock` writes and shows only what is a digest, whatever a host returns.

In 0.1.0 the digest that a host named went into images.lock and on the terminal as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import EngineError
from rung.jobs.model.host import Host
from rung.runner.engines.docker.api import EngineApi
from rung.runner.engines.docker.images import Images
from rung.runner.session import image_ops
from tests.support.lying_engine import LyingEngine, answer, lying_engine

GOOD = "sha256:" + "a" * 64
LIES = [
    "sha256:" + "a" * 63,
    GOOD + '\\n\\"evil\\": \\"x',
    "sha256:\\u001b]0;owned\\u0007" + "a" * 64,
    GOOD.upper(),
    "",
]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LyingEngine]:
    with lying_engine(tmp_path) as server:
        yield server


def images(engine: LyingEngine) -> Images:
    return Images(EngineApi(engine, engine.path), lambda image, argv: (127, ""))  # type: ignore[arg-type]


def refused(engine: LyingEngine) -> str:
    with pytest.raises(EngineError) as raised:
        images(engine).pin("x:1")
    text = str(raised.value)
    assert text.isprintable()
    assert len(text) < 700
    return text


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_the_registry_is_refused(engine: LyingEngine, lie: str) -> None:
    engine.replies["/distribution/x:1/json"] = answer(b'{"Descriptor": {"digest": "%s"}}' % lie.encode())
    assert "what it names is no digest" in refused(engine)


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_an_image_of_the_host_is_refused(engine: LyingEngine, lie: str) -> None:
    engine.replies["/images/x:1/json"] = answer(
        b'{"Id": "%s", "RepoDigests": ["x@%s", 7, "x"]}' % ((lie.encode(),) * 2)
    )
    assert "what it names is no digest" in refused(engine)


@pytest.mark.parametrize("body", [b'{"Id": 7}', b'{"Id": {}, "RepoDigests": {}}', b'{"RepoDigests": 3}', b"{}"])
def test_an_answer_without_a_digest_is_refused(engine: LyingEngine, body: bytes) -> None:
    engine.replies["/images/x:1/json"] = answer(body)
    assert "what it names is no digest" in refused(engine)


def test_the_truth_is_written(engine: LyingEngine) -> None:
    engine.replies["/distribution/x:1/json"] = answer(b'{"Descriptor": {"digest": "%s"}}' % GOOD.encode())
    assert images(engine).pin("x:1") == f"x@{GOOD}"
    del engine.replies["/distribution/x:1/json"]
    engine.replies["/images/x:1/json"] = answer(b'{"Id": "%s", "RepoDigests": ["y@%s"]}' % ((GOOD.encode(),) * 2))
    assert images(engine).pin("x:1") == GOOD


def test_nothing_is_locked_when_the_only_host_lies(
    engine: LyingEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Reach:
        def __init__(self, *arguments: Any) -> None: ...

        def remote(self, name: str) -> LyingEngine:
            return engine

        def close(self) -> None: ...

    engine.replies["/distribution/x:1/json"] = answer(b'{"Descriptor": {"digest": "%s"}}' % LIES[1].encode())
    hosts = [Host("titan1", "titan1", engine_socket=engine.path)]
    monkeypatch.setattr(image_ops, "find_hosts", lambda environ: hosts)
    monkeypatch.setattr(image_ops, "Remotes", Reach)
    (tmp_path / "job.yaml").write_text("name: a\nrun: x\nimage: x:1\n")
    with pytest.raises(EngineError, match=r"x:1 cannot be pinned: titan1: image x:1: what it names is no digest"):
        image_ops.lock(tmp_path / "job.yaml", None, {})
    assert not (tmp_path / "images.lock").exists()
