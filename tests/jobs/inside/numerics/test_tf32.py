"""Tests setting TF32 in a torch that has only the old names, and in one that cannot be set."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rung_inside.numerics import tf32


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the settings of an older torch, with its defaults."""
    old = SimpleNamespace(
        cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=False)), cudnn=SimpleNamespace(allow_tf32=True)
    )

    def set_precision(name: str) -> None:
        old.cuda.matmul.allow_tf32 = name != "highest"

    monkeypatch.setattr(torch, "backends", old)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", set_precision)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 6))
    yield old
    tf32.start(None)


def test_an_older_torch_is_set_and_read_by_its_own_names(backends: Any) -> None:
    tf32.start("tf32")
    assert (backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32) == (True, True)
    assert tf32.effective() == {"matmul": "tf32"}
    tf32.start("strict")
    assert (backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32) == (False, False)
    assert tf32.effective() == {"matmul": "strict"}


def test_without_the_knob_nothing_is_set_or_read(backends: Any) -> None:
    tf32.start(None)
    tf32.hold()
    assert (backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32) == (False, True)
    assert tf32.effective() == {}


def test_a_torch_that_cannot_be_set_does_not_end_the_run_and_is_read_back(
    backends: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch, "set_float32_matmul_precision")
    backends.cuda.matmul.allow_tf32 = True
    tf32.start("strict")
    assert tf32.effective() == {"matmul": "tf32"}
