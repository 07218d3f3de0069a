"""Tests that a replay finds out whether FP32 fits the memory, and leaves the run as it is where it does not."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rung_inside.zero_edit.replay import memory

RUNS_OUT = ("runs_out", "graph_too_large", "graph_beside_gradients")
CASES: dict[str, Any] = {
    **{name: (name, {}) for name in ("without_a_gpu", "fits", "too_large", *RUNS_OUT)},
    "alone": ("without_a_gpu", None),
}


@pytest.fixture(scope="module")
def replayed(train: Callable[..., Any], once: Callable[..., Any]) -> Any:
    return once("memory", lambda: train(CASES, "memory_replays"))


@pytest.mark.parametrize("name", CASES)
def test_the_run_goes_on_bit_for_bit_the_same(replayed: Any, name: str) -> None:
    assert not replayed[name].error and not replayed[name].records("note")
    # As text: NaN is not equal to itself.
    assert str(replayed[name].result) == str(replayed["alone"].result)


def test_a_replay_that_runs_out_of_memory_in_fp32_says_so(replayed: Any) -> None:
    first = replayed["runs_out"].records("replay")[0]
    assert (first["fp32"], first["weights"], first["where"]) == ("oom", "finite", "last")
    assert "cure" not in first and "fits" not in first


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("without_a_gpu", (None, None, None)),
        ("fits", ("yes", "30.0GiB", "40.0GiB")),
        ("too_large", ("no", "30.0GiB", "24.0GiB")),
        ("graph_too_large", ("no", "30.0GiB", "24.0GiB")),
        # The replay had less room than a step of the training has.
        ("graph_beside_gradients", (None, None, None)),
    ],
)
def test_what_fp32_needs_is_the_peak_with_the_activations_of_fp32(replayed: Any, name: str, fields: Any) -> None:
    found = replayed[name].records("replay")
    assert {each["fp32"] for each in found} == {"finite"}
    assert {(each.get("fits"), each.get("needs"), each.get("limit")) for each in found} == {fields}


def test_the_memory_that_a_run_can_get_is_what_is_free_and_what_it_has_reserved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = SimpleNamespace(
        max_memory_allocated=lambda _: 20, memory_allocated=lambda _: 4, memory_reserved=lambda _: 21,
        mem_get_info=lambda _: (3, 80),
    )  # fmt: skip
    monkeypatch.setattr(torch, "cuda", cuda)
    assert memory.read(torch.device("cuda")) == memory.Memory(peak=20, used=4, limit=24)
    assert memory.read(torch.device("cpu")) is None


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (torch.OutOfMemoryError("anything"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    ],
)
def test_out_of_memory_is_told_from_other_errors(error: Exception, answer: bool) -> None:
    assert memory.ran_out(error) is answer
