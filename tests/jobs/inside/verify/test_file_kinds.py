"""Tests the verdicts on single checkpoint files: safetensors, Lightning, foreign classes, sampled checks."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime
import os
import random
import struct
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from rung_inside.verify import examine, torch_file
from rung_inside.verify.pickles.objects import Name
from rung_inside.verify.pickles.permissions import REFUSED, permission
from rung_inside.verify.step_number import step_of
from rung_inside.verify.stored.mapped_file import map_file
from safetensors.torch import save_file


def examined(path: Path, full: bool = True) -> tuple[str, int | None, str]:
    result = examine.examine(str(path), full)
    return result["verdict"], result["step"], result["kind"]


def weights() -> dict[str, torch.Tensor]:
    return {"a": torch.randn(40, 3), "b": torch.ones(5, dtype=torch.bfloat16), "n": torch.arange(7), "z": torch.ones(0)}


def test_safetensors_are_read_as_the_package_wrote_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "step_30.safetensors"
    save_file(weights(), path, metadata={"format": "pt"})
    monkeypatch.setitem(sys.modules, "safetensors", None)  # as in an image without the package
    assert examined(path) == ("healthy", 30, "safetensors")
    save_file({**weights(), "bad": torch.tensor([1.0, float("nan")]).half()}, path)
    assert examined(path)[0] == "poisoned"
    save_file(weights(), path, metadata={"step": "44"})
    assert examined(path)[1] == 44


def test_safetensors_that_are_cut_or_damaged_are_recognized(tmp_path: Path) -> None:
    path = tmp_path / "step_30.safetensors"
    save_file(weights(), path)
    whole = path.read_bytes()
    for kept in (0, 5, 60, len(whole) - 1):
        path.write_bytes(whole[:kept])
        assert examined(path)[0] == "truncated", kept
    for raw in (
        b"\xff" * 8 + whole[8:],
        whole[:8] + b"x" + whole[9:],
        struct.pack("<Q", 2) + b"[]",
        b"\2" + b"\0" * 7 + b"{}",
    ):
        path.write_bytes(raw)
        assert examined(path)[0] in ("corrupt", "healthy") and (examined(path)[0] == "healthy") is (raw[8:] == b"{}")
    path.write_bytes(whole.replace(b'"shape":[40,3]', b'"shape":[40,9]'))
    assert examined(path)[0] == "corrupt"


def lightning(step: int = 120) -> dict[str, Any]:
    """Return a checkpoint as Lightning's Trainer writes it."""
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return {
        "epoch": 3, "global_step": step, "pytorch-lightning_version": "2.5.0", "state_dict": model.state_dict(),
        "loops": {"fit_loop": {"state_dict": {}}}, "callbacks": {}, "optimizer_states": [optimizer.state_dict()],
        "lr_schedulers": [], "MixedPrecision": {"scale": 65536.0},
    }  # fmt: skip


def test_a_lightning_checkpoint_is_recognized_and_its_optimizer_is_checked(tmp_path: Path) -> None:
    path, state = tmp_path / "epoch=3-step=120.ckpt", lightning()
    torch.save(state, path)
    assert examined(path) == ("healthy", 120, "lightning")
    state["optimizer_states"][0]["state"][0]["exp_avg_sq"][1, 1] = float("inf")
    torch.save(state, path)
    result = examine.examine(str(path))
    assert result["verdict"] == "poisoned" and "optimizer_states.0.state.0.exp_avg_sq" in result["detail"]


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("poison", [False, True])
def test_a_harmless_class_is_named_and_the_numbers_are_still_checked(
    tmp_path: Path, zipped: bool, poison: bool
) -> None:
    model = torch.nn.Linear(3, 2).state_dict()  # with its _metadata
    state = {"step": torch.tensor(9), "args": argparse.Namespace(lr=0.1), "model": model, **weights()}
    state["w"] = torch.nn.Parameter(torch.full((4, 4), float("nan") if poison else 1.0).t())
    path = tmp_path / "a.pt"
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    verdict, step, kind = examined(path)
    assert (verdict, step, kind) == ("poisoned" if poison else "needs_allow_list", 9, "torch")
    assert poison or "argparse.Namespace" in examine.examine(str(path))["detail"]


@dataclasses.dataclass
class Config:
    lr: float = 0.1


def test_python_objects_in_a_checkpoint_do_not_make_it_bad(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2)
    kept = {
        "config": Config(), "path": Path("x"), "many": collections.defaultdict(list, {1: [2]}), "dtype": torch.float16,
        "numpy": numpy.float64(1.5), "generator": numpy.random.get_state(), "model": model,
        "optimizer": torch.optim.Adam(model.parameters()), "when": datetime.datetime.now(), "random": random.getstate(),
    }  # fmt: skip
    Config.__module__ = "__main__"  # as in a script
    setattr(sys.modules["__main__"], "Config", Config)  # noqa: B010 - mypy knows of no such attribute
    for name, value in kept.items():
        for zipped in (True, False):
            state = {"step": 1, "state_dict": model.state_dict(), "best_loss": torch.tensor(float("inf")), "x": value}
            torch.save(state, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
            assert examined(tmp_path / "a.pt")[:2] in (("healthy", 1), ("needs_allow_list", 1)), (name, zipped)


@pytest.mark.parametrize(
    ("name", "harmless"),
    [
        ("my_models.config.GPTConfig", True),  # is in the folder of the script
        ("nowhere_to_be_found.Config", True),
        ("builtins.eval", False),
        ("__builtin__.eval", False),
        ("commands.getoutput", False),
        ("posix.system", False),
        ("subprocess.Popen", False),
        ("numpy.testing._private.utils.runstring", False),
        ("torch.hub.load", False),
        ("pytest.main", False),
        ("", False),
    ],
)
def test_classes_of_the_job_are_harmless_and_installed_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, harmless: bool
) -> None:
    (tmp_path / "my_models").mkdir()
    (tmp_path / "my_models" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    module, _, last = name.rpartition(".")
    assert (permission(Name(module, last)) > REFUSED) is harmless


class Bomb:
    def __init__(self, call: Any, *args: Any) -> None:
        self.call, self.args = call, args

    def __reduce__(self) -> Any:
        return self.call, self.args


@pytest.mark.parametrize("zipped", [True, False])
def test_no_pickle_bomb_runs_in_a_torch_without_weights_only(
    tmp_path: Path, zipped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, path = tmp_path / "went off", tmp_path / "a.pt"
    # The signature that torch.load has in an old torch.
    monkeypatch.setattr(torch, "load", lambda f, map_location=None: pytest.fail("this runs code"))
    bombs = [
        Bomb(os.mkdir, str(trace)),
        Bomb(eval, f"__import__('os').mkdir({str(trace)!r})"),
        Bomb(getattr, "x", "upper"),
    ]
    for bomb in bombs:
        torch.save({"step": 1, "x": bomb}, path, _use_new_zipfile_serialization=zipped)
        assert examined(path)[0] == "refused"
    assert not trace.exists()
    torch.save({"step": 4, **weights()}, path, _use_new_zipfile_serialization=zipped)
    assert examined(path) == ("healthy", 4, "torch")


def test_the_plain_reader_and_torch_read_the_same_numbers(tmp_path: Path) -> None:
    base = torch.randn(6, 8)
    state = {
        "view": base[1:3, ::2],
        "t": base.t(),
        "p": torch.nn.Parameter(base),
        "h": base.half(),
        "s": torch.tensor(3),
    }
    for zipped in (True, False):
        torch.save(state, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
        plain = torch_file.load(map_file(str(tmp_path / "a.pt")), True).state
        for name, value in state.items():
            numbers = torch.cat([chunk.reshape(-1) for chunk in plain[name].chunks()])
            assert torch.equal(numbers.sort().values, value.detach().reshape(-1).sort().values), name


def test_a_sampled_check_reads_samples_without_checksums_and_a_full_one_reads_everything(tmp_path: Path) -> None:
    path, large = tmp_path / "step_1.pt", torch.zeros(1 << 20)
    large[300_000] = float("nan")
    torch.save({"step": 1, "w": large}, path)
    assert (examined(path, full=False)[0], examined(path)[0]) == ("healthy", "poisoned")
    large[300_000], large[-1] = 0.0, float("inf")
    torch.save({"step": 1, "w": large}, path)
    assert examined(path, full=False)[0] == "poisoned"
    large[-1] = 1.0
    torch.save({"step": 1, "w": large}, path)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    assert (examined(path, full=False)[0], examined(path)[0]) == ("healthy", "corrupt")
    assert examine.examine(str(path), full=False)["look"] == "sampled"


@pytest.mark.parametrize(
    ("content", "name", "step"),
    [
        ({"meta": {"iter": 70, "epoch": 2}}, "epoch_2.pth", 70),
        ({"optimizer": {"state": {0: {"step": torch.tensor(500.0)}}}}, "epoch_3.pt", 500),
        ({"optimizer": {"state": {0: {"step": 500}}}}, "ckpt_3.pt", 500),  # 3 is an epoch
        ({"optimizer": {"state": {0: {"step": 495}}}}, "ckpt_500.pt", 500),  # five updates were skipped
        ({"optimizer": {"state": {0: {"step": 495}}}}, "step_9.pt", 9),
        ({"optimizer_states": [{"state": {0: {"step": 8}}}]}, "last.ckpt", 8),
        ({}, "checkpoint-100", 100),
        ({}, "run.step=40.v2.pt", 40),
    ],
)
def test_the_step_is_found_where_frameworks_keep_it(content: Any, name: str, step: int) -> None:
    assert step_of(content, f"/x/{name}") == step
