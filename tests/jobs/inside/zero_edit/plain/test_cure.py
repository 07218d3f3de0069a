"""Tests that a replay finds the smallest cure of a step that overflows in FP16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

CURES = {
    "norm_by_hand": "fp32_modules:1",
    "without_bf16": "fp32_modules:1",
    "prices_without_bf16": "fp32_modules:1",
    "two_of_them": "fp32_modules:1.1,4",
    "masks": "clamp_constants",
    "large_layer": "fp32_modules:1.*",
    "handed_infinity": "fp32_modules:1.0",
    "after_the_model": "fp32_modules:loss",
    "penalty": "fp32_modules:1",
    "near_the_limit": "fp32_modules:1,2",
    "near_but_dear": "fp32_modules:1",
    "near_in_part": "fp32_modules:1,2.0",
    "far_from_the_limit": "fp32_modules:1",
    "too_many": "bf16",
    "too_many_for_bf16": "fp32",
    "gradient": "bf16",
    "broken": None,
}


@pytest.fixture(scope="module")
def searched(train: Callable[..., Any], once: Callable[..., Any]) -> Any:
    return once("cures", lambda: train({name: (name, {}) for name in CURES}, "cure_searches"))


@pytest.mark.parametrize("name", CURES)
def test_the_smallest_cure_is_found_and_the_run_is_unchanged(searched: Any, name: str) -> None:
    assert not searched[name].error and not searched[name].records("note")
    result = searched[name].result
    assert result["cure"] == CURES[name]
    assert result["unchanged"] and result["after"] == ["torch.float16"]


def test_the_price_is_told_where_places_were_run(searched: Any) -> None:
    assert searched["two_of_them"].result["cost"].endswith("%")
    assert searched["masks"].result["cost"] == "0.0%"
    assert searched["after_the_model"].result["cost"] is None
    assert searched["near_the_limit"].result["cost"] == "28.0%"
    assert searched["too_many"].result["cost"].endswith("%")


def test_fp32_as_a_whole_is_timed_beside_places_where_there_is_no_bf16(searched: Any) -> None:
    assert searched["without_bf16"].result["whole"].endswith("%")
    prices = searched["prices_without_bf16"].result
    assert (prices["cost"], prices["whole"]) == ("25.0%", "30.0%")
    assert [searched[name].result["whole"] for name in ("norm_by_hand", "masks", "too_many_for_bf16")] == [None] * 3
