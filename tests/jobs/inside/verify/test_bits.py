"""Tests that a check without torch comes to the verdict of one with torch, and loads torch only where it must."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import rung_inside
import torch
from hypothesis import given
from hypothesis import strategies as st
from rung_inside.verify import examine
from rung_inside.verify.pickles.permissions import PLAIN
from rung_inside.verify.stored.bits import EXPONENTS, FORMATS, Bits, NeedsTorch
from rung_inside.verify.stored.tensor import ITEM_BYTES
from torch._weights_only_unpickler import _get_allowed_globals

from tests import pace

INSIDE = Path(rung_inside.__file__).parents[1]
# Halves of floats that are at the limit, and any others.
EDGES = [
    b"\x00\x00",
    b"\xff\xff",
    b"\x80\x7f",
    b"\x7f\x7f",
    b"\x00\x7c",
    b"\xff\x7b",
    b"\xf0\x7f",
    b"\xef\x7f",
    b"\x00\xfc",
]
PARTS = {"complex64": "float32", "complex128": "float64"}
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("dtype", EXPONENTS)
@given(data=st.data())
def test_numbers_are_finite_by_their_bits_if_torch_says_so(dtype: str, data: st.DataObject) -> None:
    halves = st.sampled_from(EDGES) | st.binary(min_size=2, max_size=2)
    size = ITEM_BYTES[dtype]
    many = b"".join(data.draw(st.lists(halves, min_size=size // 2 * 3, max_size=size // 2 * 3)))
    numbers = torch.frombuffer(bytearray(many), dtype=getattr(torch, dtype))
    for count in (1, 2, 3):
        assert Bits(b"xx" + many, dtype, 2, count, size).all_finite() == bool(torch.isfinite(numbers[:count]).all())


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_number_by_its_bits_is_that_of_torch(dtype: str) -> None:
    numbers = torch.tensor([3, 70], dtype=getattr(torch, dtype))
    raw = numbers.numpy().tobytes()
    assert Bits(raw, dtype, len(raw) // 2, 1, len(raw) // 2).item() == numbers[1].item()


@pytest.mark.parametrize("dtype", EXPONENTS)
@pytest.mark.parametrize(
    ("numbers", "found"),
    [([0.0, -INF], True), ([-0.0, -INF], True), ([-INF], False), ([0.0], True), ([0.0, INF], None), ([NAN], None)],
)
def test_a_mask_has_zeros_and_minus_infinity_only(dtype: str, numbers: list[float], found: bool | None) -> None:
    raw = torch.tensor(numbers).to(getattr(torch, PARTS.get(dtype, dtype))).view(torch.uint8)
    bits = Bits(bytes(raw.tolist()), dtype, 0, len(numbers), EXPONENTS[dtype].size)
    assert bits.has_zeros_beside_minus_infinity() is found


def test_what_bits_cannot_tell_needs_torch() -> None:
    bits = Bits(b"\0" * 8, "float8_e5m2", 0, 8, 1)
    for asked in (bits.all_finite, bits.item, lambda: bits.is_complex(), lambda: bits[0]):
        with pytest.raises(NeedsTorch):
            asked()


def test_every_name_that_is_known_as_plain_is_one_for_torch() -> None:
    assert {str(name) for name in PLAIN} <= set(_get_allowed_globals())


def state(**more: Any) -> dict[str, Any]:
    moments = {0: {"step": torch.tensor(7.0), "exp_avg": torch.zeros(3)}}
    return {"model": OrderedDict(weight=torch.randn(8, 8).t()), "optimizer": {"state": moments}, **more}


def poisoned(dtype: torch.dtype, value: float) -> dict[str, Any]:
    return state(bad=torch.tensor([1.0, value, 2.0]).to(dtype))


# What is checked without torch, each with its verdict.
PLAIN_STATES = {
    "healthy": ("healthy", state()),
    "whole numbers": ("healthy", state(count=torch.arange(9), flags=torch.tensor([True]))),
    "halves": ("healthy", state(a=torch.full((9,), 65504.0).half(), b=torch.full((9,), 3e38).bfloat16())),
    "masks": ("healthy", state(a=torch.full((9, 9), -INF).triu(1), b=torch.full((300, 300), -INF).bfloat16().tril(-1))),
    "minus infinity alone": ("poisoned", state(a=torch.full((4, 4), -INF))),
    "a mask and a one": ("poisoned", state(a=torch.tensor([0.0] * 99_999 + [-INF, 1.0]))),
    **{
        f"{value} in {dtype}": ("poisoned", poisoned(dtype, value))
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64)
        for value in (NAN, INF, -INF)
    },
}
# A cheap look takes some of its numbers only.
VIEW = {"every fourth number of a tensor": ("healthy", state(part=torch.arange(100.0)[3:90:4]))}
# And what it must be loaded for.
OTHERS = {
    "a type that Python does not know": ("healthy", state(small=torch.ones(4).to(torch.float8_e5m2))),
    "a name that not every torch takes": ("needs_allow_list", state(kind=Path("a"))),
    "coordinates": ("healthy", state(sparse=torch.eye(3).to_sparse())),
    "NaN in a part that is not kept": ("healthy", state(part=torch.tensor([1.0, NAN, 2.0, NAN])[::2])),
}


def written(folder: Path, states: dict[str, tuple[str, Any]]) -> dict[str, str]:
    """Write the checkpoints in both formats of torch; return the verdicts by path."""
    found = {}
    for number, (verdict, content) in enumerate(states.values()):
        for zipped in (True, False):
            path = folder / f"{number}-{zipped}.pt"
            torch.save(content, path, _use_new_zipfile_serialization=zipped)
            found[str(path)] = verdict
    return found


def run_command(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-m", "rung_inside.verify", *words]
    path = os.pathsep.join([*([more["first"]] if more else []), str(INSIDE)])
    env = {**os.environ, "PYTHONPATH": path}
    return pace.run(command, env=env, capture_output=True, text=True, check=False, usual=60)


@pytest.fixture
def no_loading(tmp_path: Path) -> str:
    """Return a folder with a torch that is there and cannot be loaded."""
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "torch.py").write_text("raise ImportError('it is loaded')\n")
    return str(tmp_path / "first")


@pytest.mark.parametrize("options", [(), ("--sampled",)])
def test_a_usual_checkpoint_is_checked_without_loading_torch(
    options: tuple[str, ...], tmp_path: Path, no_loading: str
) -> None:
    verdicts = written(tmp_path, PLAIN_STATES if options else PLAIN_STATES | VIEW)
    done = run_command(*options, *verdicts, first=no_loading)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["path"]: line["verdict"] for line in lines} == verdicts
    assert lines == [examine.examine(path, full=not options) for path in verdicts]


def test_where_torch_is_needed_it_is_loaded_once_for_all_that_follow(tmp_path: Path) -> None:
    verdicts = written(tmp_path, OTHERS)
    done = run_command(*verdicts)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["path"]: line["verdict"] for line in lines} == verdicts
    assert lines == [examine.examine(path) for path in verdicts]


def test_a_torch_that_cannot_be_loaded_is_told_where_it_is_needed(tmp_path: Path, no_loading: str) -> None:
    (path, _), *_ = written(tmp_path, {"": OTHERS["coordinates"]}).items()
    done = run_command(path, first=no_loading)
    assert (done.returncode, done.stdout) == (3, "")
    assert "has no torch (it is loaded)" in done.stderr and len(done.stderr.splitlines()) == 1
