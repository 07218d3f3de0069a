"""Tests that what honest programs keep in checkpoints is read: all kinds of tensors, optimizers and plain data."""

from __future__ import annotations

import argparse
import collections
import datetime
import functools
import random
import uuid
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from rung_inside.verify.examine import examine
from rung_inside.verify.pickles.objects import Name
from rung_inside.verify.pickles.permissions import REFUSED, TABLE, permission
from torch.optim import lr_scheduler


def trained() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2), torch.nn.Dropout())
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def with_attributes() -> torch.Tensor:
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.shared = True  # type: ignore[attr-defined]
    return parameter


def tensors() -> dict[str, Any]:
    base = torch.randn(6, 8)
    return {
        "a view": base[1:3, ::2], "transposed": base.t(), "expanded": torch.ones(1).expand(10, 10),
        "a window": torch.arange(9.0).unfold(0, 4, 1), "empty": torch.ones(0, 3), "scalar": torch.tensor(3.0),
        "sparse": torch.eye(3).to_sparse(), "csr": torch.eye(3).to_sparse_csr(), "meta": torch.ones(2, device="meta"),
        "complex": torch.ones(2, dtype=torch.complex64), "float8": torch.ones(4).to(torch.float8_e4m3fn),
        "uint16": torch.ones(3, dtype=torch.uint16), "bool": torch.ones(3, dtype=torch.bool),
        "quantized": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
        "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "by channel": torch.quantize_per_channel(torch.ones(2, 3), torch.ones(2), torch.zeros(2), 0, torch.qint8),
        "with attributes": with_attributes(), "conjugated": torch.ones(2, dtype=torch.complex64).conj(),
        "a parameter": torch.nn.Parameter(torch.ones(3)), "a buffer": torch.nn.Buffer(torch.ones(2)),
    }  # fmt: skip


def normed() -> torch.nn.Module:
    return torch.nn.utils.weight_norm(torch.nn.Linear(3, 2))


def objects() -> dict[str, Any]:
    model, optimizer = trained()
    return {
        "weights": model.state_dict(), "state of an optimizer": optimizer.state_dict(), "a model": model,
        "an optimizer": optimizer, "a scaler": torch.amp.GradScaler("cpu"),
        "state of a scaler": torch.amp.GradScaler("cpu").state_dict(),
        "one cycle": lr_scheduler.OneCycleLR(optimizer, 1e-3, 10).state_dict(),
        "milestones": lr_scheduler.MultiStepLR(optimizer, [3, 4]).state_dict(),
        "a whole schedule": lr_scheduler.CosineAnnealingLR(optimizer, 5),
        "an optimizer of Hydra": functools.partial(torch.optim.Adam, lr=1e-3),
        "NumPy's generator": numpy.random.default_rng(1), "NumPy's random state": numpy.random.RandomState(1),
        "NumPy's state": numpy.random.get_state(), "an array": numpy.zeros(5), "a number of NumPy": numpy.float64(1.5),
        "a layer with a function": torch.nn.TransformerEncoderLayer(4, 2, 8), "an activation": torch.nn.GELU,
        "an array of dates": numpy.zeros(2, "M8[s]"), "a table": numpy.zeros(2, [("a", "f4"), ("b", "i8", (2,))]),
        "an array of texts": numpy.array(["a", "bc"]), "a weight norm": normed(),
        "defaults": (collections.defaultdict(int), collections.defaultdict(set)),
        "an array of objects": numpy.array([None, 1], dtype=object), "a large array": numpy.zeros(100_000),
        "torch's generator": torch.Generator(), "Python's generator": random.Random(1), "its state": random.getstate(),
        "device, type, size": (torch.device("cpu"), torch.float16, torch.Size([1, 2])), "version": torch.__version__,
        "dates": (datetime.datetime.now(datetime.UTC), datetime.timedelta(1)), "path": Path("x"),
        "collections": (collections.defaultdict(list, {1: [2]}), collections.deque([1], 5), collections.Counter("aab")),
        "sets": ({1, 2}, frozenset([3])), "long texts": ("x" * 100_000, b"y" * 200_000, bytearray(b"z")),
        "numbers": (1 << 200, -5, 1e300, 2 + 3j, True, None, Decimal("1.5"), uuid.UUID(int=5)),
        "keys": {(1, 2): 3, 2.5: 4, None: 5, b"x": 6}, "arguments": argparse.Namespace(lr=0.1),
    }  # fmt: skip


def values() -> dict[str, Any]:
    """Return everything by name. Some kinds of tensors warn that they are new."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {**tensors(), **objects()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", values())
def test_what_honest_programs_keep_is_taken_in_every_format(tmp_path: Path, name: str) -> None:
    value = values()[name]
    for zipped in (True, False):
        for protocol in (2, 4, 5):
            torch.save(
                {"step": 3, "x": value},
                tmp_path / "a.pt",
                _use_new_zipfile_serialization=zipped,
                pickle_protocol=protocol,
            )
            result = examine(str(tmp_path / "a.pt"))
            assert (result["verdict"] in ("healthy", "needs_allow_list"), result["step"]) == (True, 3), result


def poisoned() -> dict[str, Any]:
    bad = torch.full((6, 8), float("nan"))
    return {
        "a view": bad[1:3, ::2], "transposed": bad.t(), "expanded": bad[:1].expand(6, 8), "half": bad.half(),
        "a window": bad[0].unfold(0, 4, 1), "scalar": torch.tensor(float("inf")), "sparse": bad.to_sparse(),
        "csr": bad.to_sparse_csr(), "complex": bad.to(torch.complex64), "float8": bad.to(torch.float8_e4m3fn),
        "nested": torch.nested.nested_tensor([bad[0], bad[1, :3]]), "a parameter": torch.nn.Parameter(bad),
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", poisoned())
def test_a_number_that_is_not_finite_is_found_in_every_kind_of_tensor(tmp_path: Path, name: str) -> None:
    torch.save({"step": 3, "x": poisoned()[name]}, tmp_path / "a.pt")
    for full in (True, False):
        assert examine(str(tmp_path / "a.pt"), full)["verdict"] == "poisoned"


def test_numbers_of_a_storage_that_no_tensor_uses_do_not_matter(tmp_path: Path) -> None:
    base = torch.zeros(300, 40_000)
    base[:, 1::2] = float("nan")
    torch.save({"step": 3, "even": base[:, ::2], "some": base[5:7, 4:9:2]}, tmp_path / "a.pt")
    for full in (True, False):
        assert examine(str(tmp_path / "a.pt"), full)["verdict"] == "healthy"
    torch.save({"step": 3, "even": base[:, ::2], "odd": base[200:, 31:99:2]}, tmp_path / "a.pt")
    assert examine(str(tmp_path / "a.pt"))["detail"] == "odd is not finite"


def test_the_exact_list_names_no_module_that_runs_programs_or_code() -> None:
    dangerous = {"os", "posix", "nt", "subprocess", "sys", "shutil", "importlib", "runpy", "code", "pickle", "ctypes"}
    assert not {name.module.partition(".")[0] for name in TABLE} & dangerous
    assert Name("torch.storage", "_load_from_bytes") not in TABLE
    for name in TABLE:
        assert "." not in name.name and not name.name.startswith("_load")
        assert permission(Name(name.module, f"{name.name}.os.system")) == REFUSED
