"""Tests that numbers which a 16-bit tensor cannot hold become its limit, in every function that is replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from rung_inside.places import constants, counting
from torch.nn import functional

HALF, LOW = torch.float16, -65504.0
MASK, FIRST = torch.tensor([True, False]), torch.tensor([0])
OWNERS = (torch.Tensor, torch, functional)


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replace the functions for one test; torch has its own again after it."""
    names = (*constants.FILLING, *constants.COMPARING, *constants.ADDING, *constants.MULTIPLYING)
    for owner in OWNERS:
        for name in (*names, "pad", "threshold", "full"):
            if hasattr(owner, name):
                monkeypatch.setattr(owner, name, getattr(owner, name))
    monkeypatch.setattr(constants, "_clamped", [0])
    monkeypatch.setattr(constants, "_noted", set())
    constants.install()
    yield
    monkeypatch.undo()
    assert not hasattr(torch.Tensor.masked_fill, "_rung_constants")


def ones(dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.ones(2, dtype=dtype)


def set_item(tensor: torch.Tensor, index: Any, value: float) -> torch.Tensor:
    tensor[index] = value
    return tensor


FILLED: dict[str, Callable[[float], torch.Tensor]] = {
    "masked_fill": lambda value: ones().masked_fill(MASK, value),
    "torch.masked_fill": lambda value: torch.masked_fill(ones(), MASK, value),
    "masked_fill by name": lambda value: ones().masked_fill(mask=MASK, value=value),
    "masked_fill with a tensor": lambda value: ones().masked_fill(MASK, torch.tensor(value)),
    "masked_fill_": lambda value: ones().masked_fill_(MASK, value),
    "where": lambda value: torch.where(MASK, value, ones()),
    "where with a tensor": lambda value: torch.where(MASK, torch.tensor(value), ones()),
    "Tensor.where": lambda value: ones().where(~MASK, value),
    "full_like": lambda value: torch.full_like(ones(), value),
    "full_like in another dtype": lambda value: torch.full_like(ones(torch.float32), value, dtype=HALF),
    "full": lambda value: torch.full((2,), value, dtype=HALF),
    "new_full": lambda value: ones().new_full((2,), value),
    "fill_": lambda value: ones().fill_(value),
    "fill_diagonal_": lambda value: torch.ones(2, 2, dtype=HALF).fill_diagonal_(value)[0],
    "index_fill": lambda value: ones().index_fill(0, FIRST, value),
    "index_fill_": lambda value: ones().index_fill_(0, FIRST, value),
    "scatter": lambda value: ones().scatter(0, FIRST, value),
    "scatter_": lambda value: ones().scatter_(0, FIRST, value),
    "pad": lambda value: functional.pad(ones(), (1, 0), value=value),
    "threshold": lambda value: functional.threshold(ones(), 2.0, value),
    "clamp": lambda value: ones().mul(-60000.0).mul(2.0).clamp(min=value),
    "clamp_min": lambda value: ones().mul(-60000.0).mul(2.0).clamp_min(value),
    "nan_to_num": lambda value: torch.nan_to_num(ones() / 0, posinf=value),
    "setitem": lambda value: set_item(ones(), MASK, value),
    "setitem of one": lambda value: set_item(ones(), 0, value),
    "+": lambda value: ones() * 0 + value,
    "+ from the right": lambda value: value + ones() * 0,
    "add": lambda value: torch.add(ones() * 0, value),
    "-": lambda value: ones() * 0 - -value,
    "- from the right": lambda value: value - ones() * 0,
}


@pytest.mark.parametrize("name", FILLED)
def test_a_number_that_does_not_fit_becomes_the_limit(name: str) -> None:
    filled = FILLED[name](-1e9)
    assert filled.dtype == HALF and filled[0].item() == LOW
    assert constants.count() == 1


@pytest.mark.parametrize("name", FILLED)
def test_a_number_that_fits_and_infinity_stay(name: str) -> None:
    assert FILLED[name](-65504.0)[0].item() == LOW
    assert FILLED[name](-float("inf"))[0].item() == -float("inf")
    assert constants.count() == 0


def test_a_product_is_changed_only_by_the_limit_of_a_wider_dtype() -> None:
    small = ones() * 0.001
    assert (small * 1e6)[0].item() == pytest.approx(1000, rel=1e-2)
    assert (ones() * torch.finfo(torch.float32).min)[0].item() == LOW
    assert torch.finfo(torch.float64).min * ones() is not None and constants.count() == 2


def test_a_mask_is_found_again_by_the_number_that_it_was_made_with() -> None:
    scores = ones().masked_fill(MASK, -1e9)
    assert (scores == -1e9).tolist() == [True, False] and (scores > -1e9).tolist() == [False, True]
    assert torch.eq(scores, -1e9).tolist() == [True, False] and scores.ne(-1e9).tolist() == [False, True]


def test_a_wider_tensor_keeps_its_number() -> None:
    assert ones(torch.float32).masked_fill(MASK, -1e9)[0].item() == -1e9
    assert torch.where(MASK, ones(), torch.full((2,), -1e9, dtype=torch.float32))[1].item() == -1e9
    assert (torch.tensor(1.0, dtype=HALF) + torch.tensor(-1e9)).item() == -1e9
    assert set_item(torch.zeros(70000, dtype=HALF), 69999, 1.0)[69999].item() == 1.0
    assert constants.count() == 0


def test_the_lowest_number_of_fp32_does_not_fit_bf16_either() -> None:
    lowest = torch.finfo(torch.float32).min
    filled = ones(torch.bfloat16).masked_fill(MASK, lowest)
    assert filled[0].item() == torch.finfo(torch.bfloat16).min
    assert ones(torch.bfloat16).masked_fill(MASK, -1e9)[0].item() == pytest.approx(-1e9, rel=1e-2)


def test_a_number_is_clamped_to_what_autocast_has_made_of_a_tensor() -> None:
    layer = torch.nn.Linear(2, 2)
    with torch.autocast("cpu", dtype=HALF):
        scores = layer(ones(torch.float32)).masked_fill(MASK, -1e9)
    scores.float().sum().backward()
    assert scores[0].item() == LOW and layer.weight.grad is not None


def test_each_line_of_the_script_is_reported_once_and_a_replay_does_not_count(records_of: Any) -> None:
    for _ in range(3):
        ones().masked_fill(MASK, -1e9)
    with counting.paused():
        ones().masked_fill(MASK, -1e9)
    [record] = records_of("constant")
    assert (record["value"], record["function"]) == ("-1000000000.0", "masked_fill")
    assert record["file"].endswith("test_constants.py") and constants.count() == 3


def test_installing_twice_replaces_nothing_twice() -> None:
    before = torch.Tensor.masked_fill
    constants.install()
    assert torch.Tensor.masked_fill is before
