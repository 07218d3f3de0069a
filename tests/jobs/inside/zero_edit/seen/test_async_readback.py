"""Tests the copy of numbers from a GPU, with tensors of the CPU in their place."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rung_inside.zero_edit.telemetry import async_readback
from rung_inside.zero_edit.telemetry.async_readback import AsyncReadback, Numbers


class Readback(AsyncReadback):
    """Copies at once, and arrives when it is told to."""

    def _copy(self, numbers: Any) -> None:
        self._buffer = numbers.float()
        self._event = SimpleNamespace(query=lambda: True, synchronize=lambda: None)


@pytest.fixture
def readback(monkeypatch: pytest.MonkeyPatch) -> Readback:
    monkeypatch.setattr(async_readback, "GPU", "cpu")
    return Readback()


def test_every_number_comes_back_with_its_own_update(readback: Readback) -> None:
    number = torch.tensor
    readback.add(Numbers(1, "a", number(1.5), 0.1, None, None, False))
    readback.add(Numbers(2, "b", number(2.5, dtype=torch.float16), None, number([3.0]), number(1024.0), number(1.0)))
    readback.add(Numbers(3, "a", number(float("nan")), 0.2, number([1.0, 2.0]), None, None))
    readback.send()
    assert readback.arrived() and readback.is_pending
    first, second, third = readback.take()
    assert first == Numbers(1, "a", 1.5, 0.1, None, None, False)
    assert second == Numbers(2, "b", 2.5, None, 3.0, 1024.0, True)
    assert third.loss != third.loss
    assert replace(third, loss=0.0) == Numbers(3, "a", 0.0, 0.2, None, None, None)
    assert not readback.is_pending and readback.take() == []


def test_a_copy_waits_for_the_one_before_it(readback: Readback) -> None:
    for step in range(1, async_readback.EVERY + 1):
        assert readback.add(Numbers(step, "a", torch.tensor(1.0), None, None, None, None)) == step
    readback.send()
    readback.add(Numbers(9, "a", torch.tensor(1.0), None, None, None, None))
    readback.send()
    assert [each.step for each in readback.take()] == list(range(1, 9))
    readback.send()
    assert [each.step for each in readback.take()] == [9]
