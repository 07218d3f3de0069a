"""Tests the copy of numbers from a GPU, with tensors of the CPU in their place."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rung_inside.zero_edit.telemetry import async_readback
from rung_inside.zero_edit.telemetry.async_readback import AS_NEXT, AsyncReadback, Numbers


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
    readback.held.append(Numbers(1, "a", number(1.5), 0.1, None, None, False))
    readback.held.append(
        Numbers(2, "b", number(2.5, dtype=torch.float16), None, number([3.0]), number(1024.0), number(1.0))
    )
    readback.held.append(Numbers(3, "a", number(float("nan")), 0.2, number([1.0, 2.0]), None, None))
    readback.send()
    assert readback.arrived() and readback.is_pending
    first, second, third = readback.take()
    assert first == Numbers(1, "a", 1.5, 0.1, None, None, False)
    assert second == Numbers(2, "b", 2.5, None, 3.0, 1024.0, True)
    assert third.loss != third.loss
    assert replace(third, loss=0.0) == Numbers(3, "a", 0.0, 0.2, None, None, None)
    assert not readback.is_pending and readback.take() == []


def test_updates_have_the_loss_scale_of_the_next_one_that_knows_it(readback: Readback) -> None:
    loss, own = torch.tensor(1.0), torch.tensor(1024.0)
    scales = (AS_NEXT, own, None, AS_NEXT, None)
    readback.held = [Numbers(step, "a", loss, None, None, scale, None) for step, scale in enumerate(scales, 1)]
    readback.wants_scale = True
    readback.send(torch.tensor(512.0))
    assert [each.scale for each in readback.take()] == [1024.0, 1024.0, None, 512.0, 512.0]
    readback.held = [Numbers(6, "a", loss, None, None, AS_NEXT, None), Numbers(7, "a", loss, None, None, None, None)]
    readback.wants_scale = True
    readback.send()
    assert [each.scale for each in readback.take()] == [None, None]


def test_a_copy_waits_for_the_one_before_it(readback: Readback) -> None:
    for step in range(1, async_readback.EVERY + 1):
        readback.held.append(Numbers(step, "a", torch.tensor(1.0), None, None, None, None))
    readback.send()
    readback.held.append(Numbers(9, "a", torch.tensor(1.0), None, None, None, None))
    readback.send()
    assert [each.step for each in readback.take()] == list(range(1, 9))
    readback.send()
    assert [each.step for each in readback.take()] == [9]
