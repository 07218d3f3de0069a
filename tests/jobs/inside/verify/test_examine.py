"""Tests the verdicts on checkpoint files: every kind of bad file has its own verdict, and no file runs code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy
import pytest
import rung_inside
import torch
from rung_inside.verify import examine, torch_file
from rung_inside.verify.stored.mapped_file import map_file

from tests import pace

INSIDE = Path(rung_inside.__file__).parents[1]
Saved = dict[str, Any]


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.path),))


def saved(path: Path, state: Any, **options: Any) -> str:
    torch.save(state, path, **options)
    return str(path)


def healthy_state(step: int = 5) -> Saved:
    return {"step": step, "model": {"weight": torch.randn(64, 64)}, "optimizer": {"state": {0: {"m": torch.ones(3)}}}}


def test_a_sound_checkpoint_is_healthy(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.pt", healthy_state())
    expected = {"path": path, "verdict": "healthy", "step": 5, "detail": ""}
    assert examine.examine(path) == {**expected, "kind": "torch", "look": "full"}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.bfloat16, torch.float64])
def test_one_number_that_is_not_finite_makes_a_checkpoint_poisoned_and_is_named(
    tmp_path: Path, value: float, dtype: torch.dtype
) -> None:
    state = healthy_state()
    state["model"]["deep"] = [torch.ones(2), torch.ones(300, dtype=dtype)]
    state["model"]["deep"][1][123] = value
    result = examine.examine(saved(tmp_path / "a.pt", state))
    assert (result["verdict"], result["step"]) == ("poisoned", 5)
    assert result["detail"] == "model.deep.1 is not finite"


def test_infinities_of_both_signs_do_not_cancel_out(tmp_path: Path) -> None:
    state = {"step": 1, "w": torch.tensor([float("inf"), float("-inf"), 1.0])}
    assert examine.examine(saved(tmp_path / "a.pt", state))["verdict"] == "poisoned"


def test_a_finite_tensor_whose_sum_overflows_is_healthy(tmp_path: Path) -> None:
    state = {"step": 1, "half": torch.full((100,), 60000.0).half(), "single": torch.full((10,), 3e38)}
    assert examine.examine(saved(tmp_path / "a.pt", state))["verdict"] == "healthy"


def test_a_mask_of_zeros_and_minus_infinity_is_not_poisoned(tmp_path: Path) -> None:
    mask = torch.full((4, 4), float("-inf")).triu(1)
    assert examine.examine(saved(tmp_path / "a.pt", {"step": 1, "mask": mask}))["verdict"] == "healthy"


@pytest.mark.parametrize("kept", [0, 3, 100, 0.5, 0.999])
@pytest.mark.parametrize("zipped", [True, False])
def test_a_truncated_file_is_truncated(tmp_path: Path, kept: float, zipped: bool) -> None:
    path = tmp_path / "a.pt"
    saved(path, healthy_state(), _use_new_zipfile_serialization=zipped)
    whole = path.read_bytes()
    path.write_bytes(whole[: kept if isinstance(kept, int) else int(len(whole) * kept)])
    assert examine.examine(str(path))["verdict"] in ({"truncated"} if zipped else {"truncated", "unreadable"})


def test_a_flipped_bit_that_torch_load_accepts_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    saved(path, healthy_state())
    with zipfile.ZipFile(path) as archive:
        entry = max(archive.infolist(), key=lambda each: each.file_size)
    raw = bytearray(path.read_bytes())
    raw[entry.header_offset + entry.file_size // 2] ^= 0x01
    path.write_bytes(raw)
    assert torch.load(path, weights_only=True)["step"] == 5
    result = examine.examine(str(path))
    assert result["verdict"] == "corrupt" and entry.filename in result["detail"]


def test_a_file_written_without_checksums_is_judged_by_its_content(tmp_path: Path) -> None:
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        path = saved(tmp_path / "a.pt", healthy_state())
    finally:
        torch.serialization.set_crc32_options(before)
    assert examine.examine(path)["verdict"] == "healthy"


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_bomb_is_refused_and_does_not_run(tmp_path: Path, zipped: bool) -> None:
    trace = tmp_path / "went off"
    path = saved(tmp_path / "a.pt", {"step": 1, "x": Bomb(trace)}, _use_new_zipfile_serialization=zipped)
    result = examine.examine(path)
    assert result["verdict"] == "refused" and "would run" in result["detail"] and "mkdir" in result["detail"]
    assert not trace.exists()


def test_a_numpy_scalar_needs_the_allow_list(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.pt", {"step": 1, "best": numpy.float64(1.5)})
    result = examine.examine(path)
    assert result["verdict"] == "needs_allow_list" and "numpy._core.multiarray.scalar" in result["detail"]


@pytest.mark.parametrize("raw", [b"no checkpoint at all", b"\x80\x02junk", b"PK\x03\x04" + b"junk" * 50, b"\x00" * 999])
def test_a_file_of_junk_is_not_healthy_and_raises_nothing(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "step_1.pt"
    path.write_bytes(raw)
    assert examine.examine(str(path))["verdict"] in {"unreadable", "truncated"}


def test_a_path_that_is_not_a_regular_file_is_unreadable(tmp_path: Path) -> None:
    pipe = tmp_path / "step_1.pt"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path / "missing.pt"):
        assert examine.examine(str(path))["verdict"] == "unreadable"


@pytest.mark.parametrize(
    ("content", "name", "step"),
    [
        ({"step": 5}, "step_9.pt", 5),
        ({"global_step": torch.tensor(6)}, "a.pt", 6),
        ({"iteration": 7.0}, "a.pt", 7),
        ({"iter_num": 8}, "a.pt", 8),
        ({"iter": 9}, "a.pt", 9),
        ({"step": True}, "step_9.pt", 9),
        ({"step": -1}, "a.pt", None),
        ({"step": float("nan")}, "a.pt", None),
        ({"step": float("inf")}, "a.pt", None),
        ({}, "ckpt-1200.pt", 1200),
        ({}, "epoch=3-step=500.ckpt", 500),
        ({}, "epoch_3.pt", None),
        ({"epoch": 3}, "model.pt", None),
        ({}, "model_fp16.pt", None),
    ],
)
def test_the_step_comes_from_the_content_or_else_from_the_name(content: Any, name: str, step: int | None) -> None:
    assert examine.step_of(content, f"/some/step_77/{name}") == step


def test_a_sound_file_without_a_step_has_the_verdict_no_step(tmp_path: Path) -> None:
    result = examine.examine(saved(tmp_path / "model.pt", {"weight": torch.ones(2)}))
    assert (result["verdict"], result["step"]) == ("no_step", None)


def test_a_checkpoint_that_contains_itself_is_examined_in_finite_time(tmp_path: Path) -> None:
    state: Saved = {"step": 1, "w": torch.ones(1)}
    state["again"] = [state]
    loaded = torch_file.load(map_file(saved(tmp_path / "a.pt", state)), True)
    assert [name for name, _ in examine.tensors_in(loaded.state)] == ["w"]


def run_command(*arguments: str, options: tuple[str, ...] = ("-W", "ignore")) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-m", "rung_inside.verify", *arguments]
    return pace.run(
        command, env={**os.environ, "PYTHONPATH": str(INSIDE)}, capture_output=True, text=True, check=False, usual=60
    )


def test_the_command_prints_one_line_per_file_in_order_and_can_stop_at_the_first_healthy_one(tmp_path: Path) -> None:
    poisoned = saved(tmp_path / "step_3.pt", {"step": 3, "w": torch.tensor([float("nan")])})
    healthy = [saved(tmp_path / f"step_{step}.pt", healthy_state(step)) for step in (2, 1)]
    done = run_command("--first-healthy", poisoned, *healthy)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["path"], line["verdict"], line["step"]) for line in lines] == [
        (poisoned, "poisoned", 3),
        (healthy[0], "healthy", 2),
    ]
    assert done.returncode == 0


def test_the_command_without_a_path_is_a_usage_error() -> None:
    assert run_command().returncode == 2


def test_the_command_without_torch_prints_one_line_about_it() -> None:
    done = run_command("some.pt", options=("-S",))
    assert done.returncode == 3
    assert "has no torch" in done.stderr and len(done.stderr.splitlines()) == 1 and done.stdout == ""
