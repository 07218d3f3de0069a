"""Tests the knobs that keep a run in FP16 with `rung_inside.attach`, and why a module cannot be a place."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import rung_inside
import torch
from rung_inside.places import find, fp16_places, saturation
from torch import nn


@pytest.fixture(autouse=True)
def _nothing_asked_afterwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(saturation, "_counter", saturation._Counter())
    yield
    fp16_places.start(None, None)


class Norm(nn.Module):
    """A norm by hand whose squares are beyond FP16."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, x: Any) -> Any:
        x = x * 300.0 + 300.0
        mean = x.mean(1, keepdim=True)
        variance = (x * x).mean(1, keepdim=True) - mean * mean
        self.dtype = str(x.dtype)
        return (x - mean) / torch.sqrt(variance + 1e-5) * self.weight


def train(precision: str, steps: int = 40) -> tuple[list[float], nn.Module]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), Norm(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    run = rung_inside.attach(model, optimizer, defaults={"precision": precision, "init_scale": 1024.0})
    losses = []
    for step in range(steps):
        x = torch.randn(32, 8, generator=torch.Generator().manual_seed(step))
        with run.autocast():
            loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        run.step(loss, step)
        losses.append(float(loss.detach()))
    return losses, model


@pytest.mark.parametrize("precision", ["amp_fp16", "native_fp16"])
@pytest.mark.parametrize("places", ["1", "1,loss", "1.*,Sequential"])
def test_an_attached_run_stays_in_fp16_with_the_place_that_overflows_in_fp32(
    ask: Callable[..., None], records_of: Any, precision: str, places: str
) -> None:
    ask(precision="fp32")
    wide, _ = train("fp32")
    ask(precision=precision, fp32_modules=places)
    losses, model = train(precision)
    assert model[1].dtype == "torch.float32" and all(map(math.isfinite, losses))
    assert sum(losses[-10:]) == pytest.approx(sum(wide[-10:]), rel=0.02)
    knobs = records_of("knobs")[-1]
    assert (knobs["precision"], knobs["fp32_modules"].strip('"')) == (precision, places)
    assert records_of("places")[-1]["updates"] == "32"


def test_without_the_place_the_attached_run_overflows(ask: Callable[..., None]) -> None:
    ask(precision="amp_fp16")
    losses, _ = train("amp_fp16", steps=3)
    assert not all(map(math.isfinite, losses))


def test_an_attached_model_is_halved_again_where_no_place_is_asked(ask: Callable[..., None], trained: Any) -> None:
    ask(precision="native_fp16")
    made = trained()
    run = rung_inside.attach(made.model, made.optimizer)
    made.steps(run, 0, 3)
    assert made.model[0].weight.dtype == torch.float16 and not fp16_places.effective()


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.Linear(2, 2), nn.Tanh())

    def forward(self, x: Any) -> Any:
        return self.head(x)


def reason(root: Any, name: str) -> str:
    return find.why_not(root, find.find_module(root, name), is_whole=name.endswith(find.WHOLE))


def test_modules_are_found_by_name_and_the_model_by_its_class() -> None:
    model = Nested()
    assert find.find_module(model, "head.0") is model.head[0] and find.find_module(model, "head.*") is model.head
    assert find.find_module(model, "Nested") is model and find.find_module(model, "Nested.*") is model
    assert find.find_module(model, "nothing") is None and reason(model, "head.0") == ""


def test_what_is_compiled_is_no_place_but_what_is_around_it_is() -> None:
    compiled = torch.compile(Nested(), backend="eager")
    assert find.find_module(compiled, "head.0") is compiled._orig_mod.head[0]
    assert reason(compiled, "head") == reason(compiled, "head.*") == "it is compiled by torch.compile"
    model = Nested()
    model.head.compile(backend="eager")
    assert reason(model, "head") == reason(model, "head.0") == "it is compiled by torch.compile"
    assert reason(model, "Nested") == "" and reason(model, "head.*") == ""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_modules_and_data_parallel_are_no_places() -> None:
    model = Nested()
    model.head[0] = torch.jit.script(nn.Linear(2, 2))
    assert reason(model, "head.0") == "it is compiled by TorchScript"
    assert "copies the modules" in reason(nn.DataParallel(Nested()), "head")


def test_infinity_is_handed_over_as_it_is_and_large_numbers_are_not() -> None:
    counted = saturation.saturated(torch.tensor([1e6, -1e6, 1.0]))
    assert counted.tolist() == [65504.0, -65504.0, 1.0]
    saturation.end_update()
    assert saturation.count() == 1
    infinite = saturation.saturated({"mask": torch.tensor([-float("inf"), 1.0])}, torch.float16)
    assert infinite["mask"].tolist() == [-float("inf"), 1.0] and infinite["mask"].dtype == torch.float16
    saturation.end_update()
    assert saturation.count() == 1
    assert math.isnan(saturation.saturated(torch.tensor([math.nan, 1e6]))[0].item())


def test_gradients_pass_a_saturated_number() -> None:
    value = torch.tensor([1e6, 2.0], requires_grad=True)
    saturation.saturated(value, torch.float16).float().mul(3.0).sum().backward()
    assert value.grad is not None and value.grad.tolist() == [3.0, 3.0]


def test_saturated_numbers_are_reported_at_doubling_updates_and_at_least_every_1024th(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fp16_places.start(None, "loss")
    for _ in range(3100):
        saturation.saturated(torch.tensor([1e6]))
        fp16_places.end_update()
    updates = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3072]
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("rung| places")]
    assert [line.split("ran=")[0].split()[-1] for line in lines] == [f"updates={each}" for each in updates]
    assert lines[-1].endswith(" saturated=3072")
