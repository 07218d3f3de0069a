"""Tests that a replay finds out whether FP32 fits the memory, and leaves the run as it is where it does not."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rung_inside.zero_edit.replay import memory
from torch import nn
from torch.utils.checkpoint import checkpoint

CASES: dict[str, Any] = {
    **{name: (name, {}) for name in ("without_a_gpu", "runs_out", "fits", "too_large", "too_large_by_its_peak")},
    "alone": ("without_a_gpu", None),
}
WIDTH, ROWS = 64, 128
ROW_BYTES, WEIGHT_BYTES = WIDTH * ROWS * 4, WIDTH * WIDTH * 4


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
        ("fits", ("yes", "24.0GiB", "24.0GiB")),
        ("too_large", ("no", "24.0GiB", "23.0GiB")),
        # Most of what is used was kept by the pass that failed.
        ("too_large_by_its_peak", ("no", "23.0GiB", "22.0GiB")),
    ],
)
def test_fp32_needs_what_is_always_used_and_what_a_pass_keeps_in_fp32(replayed: Any, name: str, fields: Any) -> None:
    found = replayed[name].records("replay")
    assert {each["fp32"] for each in found} == {"finite"}
    assert {(each.get("fits"), each.get("needs"), each.get("limit")) for each in found} == {fields}


class Model(nn.Module):
    """Keeps its inputs and the result of tanh; the inputs are used by two layers."""

    def __init__(self, checkpointed: bool = False, fails: bool = False) -> None:
        super().__init__()
        self.one, self.two, self.last = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.checkpointed, self.fails = checkpointed, fails

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = (
            x * 2.0
            if not self.checkpointed
            else checkpoint(lambda x: torch.exp(torch.exp(x * 2.0)), x, use_reentrant=False)
        )
        hidden = torch.tanh(self.one(x) + self.two(x))
        if self.fails and hidden.dtype == torch.float16:
            raise RuntimeError("value cannot be converted to type at::Half without overflow")
        return self.last(hidden)  # type: ignore[no-any-return]


def a_call(**options: Any) -> Any:
    inputs = torch.randn(ROWS, WIDTH)
    args = {"args": (inputs,), "kwargs": {}, "autocast": torch.float16, "device": torch.device("cpu")}
    return SimpleNamespace(module=Model(**options), **args)


def test_what_a_pass_keeps_is_counted_once_and_without_the_weights() -> None:
    assert memory.kept(a_call(), wide=True) == 2 * ROW_BYTES
    # Under autocast also the weights in FP16.
    assert memory.kept(a_call(), wide=False) == ROW_BYTES + 3 * WEIGHT_BYTES // 2


def test_what_is_computed_again_in_the_backward_pass_is_not_counted() -> None:
    # Only the result of the part that is computed again, and that of tanh.
    assert memory.kept(a_call(checkpointed=True), wide=True) == 2 * ROW_BYTES


def test_a_pass_that_fails_in_fp16_is_counted_up_to_there() -> None:
    call = a_call(fails=True)
    assert memory.kept(call, wide=False) == ROW_BYTES + 2 * WEIGHT_BYTES // 2
    assert memory.kept(call, wide=True) == 2 * ROW_BYTES


def test_the_memory_that_a_run_can_get_is_what_is_free_and_what_it_has_reserved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = SimpleNamespace(
        max_memory_allocated=lambda _: 2000, memory_allocated=lambda _: 400, memory_reserved=lambda _: 2100,
        mem_get_info=lambda _: (300, 8000),
    )  # fmt: skip
    monkeypatch.setattr(torch, "cuda", cuda)
    module = nn.Linear(8, 1)
    module.weight.grad = torch.zeros(1, 8)
    call = SimpleNamespace(module=module, device=torch.device("cuda"))
    assert memory.read(call) == memory.Memory(peak=2000, used=400 - 8 * 4, limit=2400)
    call.device = torch.device("cpu")
    assert memory.read(call) is None


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
