"""Tests native FP16: it works with Adam's eps, learns like FP32, and does not lose small updates."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rung_inside
import torch
from rung_inside.attach.native_fp16 import NativeFp16
from rung_inside.numerics import fp16_master_weights
from rung_inside.numerics.fp16_master_weights import master, set_master

Ask = Callable[..., None]
# Predicting the mean of these targets gives 0.43.
LEARNED = 0.1


def held_out_after(trained: Any, ask: Ask, precision: str) -> float:
    ask(precision=precision, lr=3e-3)
    made = trained(eps=1e-8)
    run = rung_inside.attach(made.model, made.optimizer, made.scheduler)
    made.steps(run, 0, 300)
    return float(made.held_out(run))


def test_plain_fp16_adamw_is_nan_after_one_step() -> None:
    weight = torch.nn.Parameter(torch.ones(4, dtype=torch.float16))
    optimizer = torch.optim.AdamW([weight], lr=1e-3, eps=1e-8)
    weight.grad = torch.tensor([1e-4, 0, 0, 0], dtype=torch.float16)
    optimizer.step()
    assert not torch.isfinite(weight).all()


def test_adamw_with_a_tiny_eps_learns_as_well_as_in_fp32(trained: Any, ask: Ask) -> None:
    in_fp32 = held_out_after(trained, ask, "fp32")
    in_fp16 = held_out_after(trained, ask, "native_fp16")
    assert in_fp32 < LEARNED
    assert in_fp16 == pytest.approx(in_fp32, rel=0.05)


def test_updates_far_below_an_fp16_step_add_up() -> None:
    weight = torch.nn.Parameter(torch.ones(3, dtype=torch.float16))
    optimizer = torch.optim.SGD([weight], lr=1e-5)
    NativeFp16(torch.nn.ParameterList([weight]), optimizer)
    for _ in range(200):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
    assert master(weight).tolist() == pytest.approx([1 - 200e-5] * 3, abs=1e-5)
    assert weight.dtype == torch.float16


@pytest.mark.parametrize("value", [1e-3, 0.1, 1.0, 333.33, 60000.0])
def test_a_weight_and_its_residual_hold_22_bits(value: float) -> None:
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float16))
    set_master(weight, torch.tensor([value]))
    assert float(master(weight)) == pytest.approx(value, rel=2**-21)


@pytest.mark.parametrize("made_by", [torch.optim.SGD, torch.optim.Adagrad, torch.optim.RMSprop, torch.optim.NAdam])
def test_any_optimizer_keeps_its_state_in_fp32(made_by: Any, trained: Any, ask: Ask) -> None:
    ask(precision="native_fp16", lr=1e-3)
    options = {"momentum": 0.9} if made_by is torch.optim.SGD else {}
    made = trained(optimizer=made_by, **options)
    run = rung_inside.attach(made.model, made.optimizer, made.scheduler)
    made.steps(run, 0, 5)
    tensors = [v for state in made.optimizer.state.values() for v in state.values() if isinstance(v, torch.Tensor)]
    assert tensors and {tensor.dtype for tensor in tensors} == {torch.float32}
    assert all(bool(tensor.isfinite().all()) for tensor in tensors)


def test_the_fp32_copies_take_no_memory_between_steps(trained: Any, ask: Ask) -> None:
    ask(precision="native_fp16")
    made = trained()
    run = rung_inside.attach(made.model, made.optimizer, made.scheduler)
    made.steps(run, 0, 1)
    weights = list(made.model.parameters())
    assert [fp16_master_weights._masters[id(weight)].fp32_shadow.numel() for weight in weights] == [0] * 4
    held = [weight for group in made.optimizer.param_groups for weight in group["params"]]
    assert list(map(id, held)) == list(map(id, weights))


def test_a_script_with_its_own_loop_gets_the_fp32_copies_too(trained: Any, ask: Ask) -> None:
    ask(precision="native_fp16", lr=1e-1)
    made = trained()
    rung_inside.attach(made.model, made.optimizer)
    losses = []
    for step in range(60):
        inputs, targets = made.batch(100 + step)
        made.optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(made.model(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        made.optimizer.step()
        losses.append(loss.item())
    assert all(math.isfinite(loss) for loss in losses)
    assert losses[-1] < losses[0] / 2


def test_a_schedule_made_after_attach_still_steps_the_wrapped_optimizer(trained: Any, ask: Ask) -> None:
    ask(precision="native_fp16")
    made = trained()
    run = rung_inside.attach(made.model, made.optimizer)
    scheduler = torch.optim.lr_scheduler.StepLR(made.optimizer, 1)
    before = run.state(0)["model"]
    made.steps(run, 0, 1)
    scheduler.step()
    assert any(not torch.equal(before[name], value) for name, value in run.state(1)["model"].items())


def test_loading_weights_replaces_the_residuals_of_the_old_ones(trained: Any, ask: Ask) -> None:
    ask(precision="native_fp16")
    made = trained()
    run = rung_inside.attach(made.model, made.optimizer, made.scheduler)
    made.steps(run, 0, 5)
    fresh = {name: torch.full_like(value, 0.3) for name, value in run.state(5)["model"].items()}
    made.model.load_state_dict(fresh)
    for value in run.state(5)["model"].values():
        assert torch.allclose(value, torch.full_like(value, 0.3), rtol=2**-21)


def earlier_state(model: torch.nn.Module, second_moment: float) -> dict[str, Any]:
    """Return a native FP16 checkpoint of an older Rung, whose optimizer always held the FP32 copies."""
    weights = {name: torch.full(value.shape, 1 / 3) for name, value in model.state_dict().items()}
    moments = {
        index: {
            "step": torch.tensor(7.0),
            "exp_avg": torch.zeros(value.shape),
            "exp_avg_sq": torch.full(value.shape, second_moment),
        }
        for index, value in enumerate(weights.values())
    }
    options = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01, "amsgrad": False}
    flags = {"foreach": None, "maximize": False, "capturable": False, "differentiable": False, "fused": None}
    group = {**options, **flags, "initial_lr": 1e-2, "params": [0, 1, 2, 3]}
    optimizer = {"state": moments, "param_groups": [group]}
    return {"step": 7, "model": weights, "optimizer": optimizer, "scaler": {}, "scheduler": {}, "rng": {}}


def test_a_checkpoint_of_an_earlier_version_loads(trained: Any, ask: Ask, tmp_path: Path) -> None:
    made = trained()
    # FP16 would round this second moment to zero.
    torch.save(earlier_state(made.model, 1e-9), tmp_path / "step_7.pt")
    ask(str(tmp_path / "step_7.pt"), precision="native_fp16")
    run = rung_inside.attach(made.model, made.optimizer, made.scheduler)
    assert run.resume() == 7
    for value in run.state(7)["model"].values():
        assert torch.allclose(value, torch.full_like(value, 1 / 3), rtol=2**-21)
    for weight in made.model.parameters():
        moment = made.optimizer.state[weight]["exp_avg_sq"]
        assert moment.dtype == torch.float32 and torch.equal(moment, torch.full_like(moment, 1e-9))
    made.steps(run, 7, 9)
    saved = run.state(9)["optimizer"]
    assert list(saved["state"]) == [0, 1, 2, 3] and saved["param_groups"][0]["params"] == [0, 1, 2, 3]


def test_inputs_in_tuples_and_dicts_become_fp16_and_outputs_fp32(ask: Ask) -> None:
    class Reads(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))

        def forward(self, pair: Any, table: Any) -> Any:
            self.seen = [pair[0].dtype, pair[1].dtype, table["x"].dtype]
            return {"sum": (pair[0] + table["x"]) * self.weight}

    ask(precision="native_fp16")
    model = Reads()
    rung_inside.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
    output = model((torch.ones(2), torch.tensor([3])), {"x": torch.ones(2)})
    assert model.seen == [torch.float16, torch.int64, torch.float16]
    assert output["sum"].dtype == torch.float32


def test_amp_makes_trainable_fp16_parameters_fp32_and_leaves_frozen_ones(ask: Ask) -> None:
    ask(precision="amp_fp16")
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)).half()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
    run = rung_inside.attach(model, optimizer)
    with run.autocast():
        loss = model(torch.ones(2, 4)).float().mean()
    run.step(loss, 0)
    assert model[0].weight.dtype == torch.float16 and model[1].weight.dtype == torch.float32
    assert run.effective()["precision"] == "amp_fp16"
