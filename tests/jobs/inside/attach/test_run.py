"""Tests the run: clipping, skipping, reporting, saving and resuming across every precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import rung_inside
import torch
from rung_inside.attach import checkpoint
from rung_inside.numerics import grad_norm, tf32

RecordsOf = Callable[[str], list[dict[str, str]]]
Ask = Callable[..., None]
PRECISIONS = ("amp_fp16", "native_fp16", "fp32", "bf16")


def attach(made: Any) -> Any:
    return rung_inside.attach(made.model, made.optimizer, made.scheduler)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_each_precision_is_set_on_the_live_objects_and_read_back(
    precision: str, trained: Any, ask: Ask, records_of: RecordsOf
) -> None:
    ask(precision=precision, clip=1.0)
    made = trained()
    run = attach(made)
    made.steps(run, 0, 2)
    dtypes = {parameter.dtype for parameter in made.model.parameters()}
    assert dtypes == {torch.float16 if precision == "native_fp16" else torch.float32}
    assert run.scaler.is_enabled() == (precision == "amp_fp16")
    assert [record["precision"] for record in records_of("knobs")] == [precision]
    assert ("scale" in records_of("step")[0]) == (precision == "amp_fp16")


@pytest.fixture
def on_ampere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pretend a GPU with TF32, and put torch's settings back."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    yield
    tf32.start("strict")
    tf32.start(None)
    torch.backends.cudnn.allow_tf32 = True


@pytest.mark.parametrize("asked", ["tf32", "strict"])
def test_fp32_multiplies_as_asked_and_reads_it_back(
    asked: str, trained: Any, ask: Ask, records_of: RecordsOf, on_ampere: None
) -> None:
    ask(precision="fp32", matmul=asked)
    made = trained()
    run = attach(made)
    torch.backends.cudnn.allow_tf32 = asked == "strict"
    made.steps(run, 0, 2)
    assert torch.backends.cuda.matmul.allow_tf32 == torch.backends.cudnn.allow_tf32 == (asked == "tf32")
    assert records_of("knobs")[-1]["matmul"] == asked


def test_a_run_from_scratch_reports_step_0(trained: Any, ask: Ask, records_of: RecordsOf) -> None:
    ask(precision="fp32")
    assert attach(trained()).resume() == 0
    assert records_of("resumed") == [{"step": "0", "file": "none"}]


def test_a_trial_ends_by_itself_after_its_last_step(
    trained: Any, ask: Ask, records_of: RecordsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(precision="fp32")
    monkeypatch.setenv("RUNG_STOP_AT", "3")
    made = trained()
    with pytest.raises(SystemExit) as ended:
        made.steps(attach(made), 0, 5)
    assert ended.value.code == 0
    assert [record["step"] for record in records_of("step")] == ["1", "2", "3"]


def test_step_records_count_the_steps_done(trained: Any, ask: Ask, records_of: RecordsOf) -> None:
    ask(precision="amp_fp16", lr=0.01)
    made = trained()
    made.steps(attach(made), 0, 2)
    first, second = records_of("step")
    assert (first["step"], second["step"]) == ("1", "2")
    assert (first["lr"], second["lr"]) == ("0.001", "0.002")
    assert first["skipped"] == "0" and float(first["grad_norm"]) > 0 and float(first["scale"]) == 65536


@pytest.mark.parametrize("precision", PRECISIONS)
def test_clipping_bounds_the_update_and_reports_the_norm_before(
    precision: str, trained: Any, ask: Ask, records_of: RecordsOf
) -> None:
    # The schedule starts at a tenth, so the first step has an lr of 1.
    ask(precision=precision, clip=0.01, lr=10.0)
    made = trained(optimizer=torch.optim.SGD)
    run = rung_inside.attach(made.model, made.optimizer, defaults={"init_scale": 256.0})
    before = torch.cat([p.detach().float().flatten() for p in made.model.parameters()])
    inputs, targets = made.batch(0)
    with run.autocast():
        predicted = made.model(inputs)
    run.step(((predicted.float() - 50 * targets) ** 2).mean(), 0)
    after = torch.cat([value.flatten() for value in run.state(1)["model"].values()])
    assert float(records_of("step")[0]["grad_norm"]) > 1
    assert float((after - before).norm()) == pytest.approx(0.01, rel=0.02)


@pytest.mark.parametrize("precision", ["amp_fp16", "native_fp16"])
def test_a_gradient_that_is_not_finite_skips_the_step(
    precision: str, trained: Any, ask: Ask, records_of: RecordsOf
) -> None:
    ask(precision=precision, clip=1.0)
    made = trained()
    run = attach(made)
    made.steps(run, 0, 1)
    before = run.state(1)["model"]
    inputs, _ = made.batch(0)
    with run.autocast():
        predicted = made.model(inputs)
    run.step((predicted.float() * math.inf).sum(), 1)
    assert [record["skipped"] for record in records_of("step")] == ["0", "1"]
    after = run.state(2)["model"]
    assert all(torch.equal(before[name], after[name]) for name in before)
    made.steps(run, 2, 3)
    assert records_of("step")[-1]["skipped"] == "0"


def test_gradients_whose_squares_overflow_are_clipped_not_zeroed() -> None:
    huge = [torch.full((4,), 3e30), torch.full((2,), 1.0)]
    norm = grad_norm.norm_of(huge)
    assert norm == pytest.approx(6e30)
    grad_norm.clip(huge, norm, 2.0)
    assert grad_norm.norm_of(huge) == pytest.approx(2.0)


def test_fp16_gradients_beyond_the_range_of_their_norm_have_a_finite_norm() -> None:
    assert grad_norm.norm_of([torch.full((16,), 60000.0, dtype=torch.float16)]) == pytest.approx(240000, rel=1e-2)


def test_one_nan_makes_the_norm_nan() -> None:
    assert math.isnan(grad_norm.norm_of([torch.tensor([1.0, math.nan])]))


def test_micro_batches_add_up_to_one_step(trained: Any, ask: Ask) -> None:
    ask(precision="fp32", lr=0.1)
    whole, parts = trained(optimizer=torch.optim.SGD), trained(optimizer=torch.optim.SGD)
    run = rung_inside.attach(whole.model, whole.optimizer)
    run.step(whole.loss(run, 5) + whole.loss(run, 6), 0)
    run = rung_inside.attach(parts.model, parts.optimizer)
    run.backward(parts.loss(run, 5))
    run.step(parts.loss(run, 6), 0)
    for one, other in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_a_checkpoint_is_due_at_the_interval_asked_or_else_at_the_scripts_own(
    trained: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = attach(trained())
    assert [step for step in range(21) if run.due(step, every=10)] == [10, 20]
    assert not run.due(10)
    monkeypatch.setenv("RUNG_CHECKPOINT_EVERY", "7")
    assert [step for step in range(21) if run.due(step, every=10)] == [7, 14]


def test_a_checkpoint_loads_without_running_code_and_holds_what_a_resume_needs(
    trained: Any, ask: Ask, tmp_path: Path
) -> None:
    ask(precision="native_fp16")
    made = trained()
    run = attach(made)
    made.steps(run, 0, 3)
    path = run.save(3, epoch=1)
    state = torch.load(path, weights_only=True)
    assert path == str(tmp_path / "step_3.pt")
    assert set(state) == {"step", "model", "optimizer", "scaler", "scheduler", "rng", "epoch"}
    tensors = [*state["model"].values(), *(each["exp_avg"] for each in state["optimizer"]["state"].values())]
    assert {tensor.dtype for tensor in tensors} == {torch.float32}


def test_a_resumed_run_computes_exactly_what_the_run_without_a_break_computes(trained: Any, ask: Ask) -> None:
    ask(precision="amp_fp16")
    straight = trained()
    run = attach(straight)
    straight.steps(run, 0, 6)
    path = run.save(6, epoch=2)
    straight.steps(run, 6, 12)
    ask(path, precision="amp_fp16")
    resumed = trained(lr=0.5)
    run = attach(resumed)
    assert run.resume() == 6 and run.extra == {"epoch": 2}
    resumed.steps(run, 6, 12)
    for one, other in zip(straight.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_resume_restores_the_random_numbers(trained: Any, ask: Ask) -> None:
    ask(precision="fp32")
    path = attach(trained()).save(1)
    expected = torch.rand(3)
    ask(path, precision="fp32")
    run = attach(trained())
    run.resume()
    assert torch.equal(torch.rand(3), expected)


def test_a_resume_applies_the_knobs_again_and_then_reports_its_step(
    trained: Any, ask: Ask, records_of: RecordsOf
) -> None:
    ask(lr=1e-2, growth_interval=2000, precision="amp_fp16")
    made = trained()
    run = attach(made)
    made.steps(run, 0, 12)
    path = run.save(12)
    ask(path, lr=1e-3, growth_interval=5000, clip=1.0, precision="amp_fp16")
    made = trained(lr=1e-2)
    run = attach(made)
    run.resume()
    made.steps(run, 12, 14)
    assert records_of("resumed") == [{"step": "12", "file": "step_12.pt"}]
    assert records_of("knobs")[1:] == [
        {"lr": "0.001", "clip": "1.0", "growth_interval": "5000", "precision": "amp_fp16"}
    ]
    assert records_of("step")[-1]["lr"] == "0.001"


def test_any_precision_resumes_from_any_other(trained: Any, ask: Ask, records_of: RecordsOf) -> None:
    path, losses, step = "", [], 0
    for precision in ("amp_fp16", "native_fp16", "fp32", "amp_fp16", "bf16", "native_fp16", "amp_fp16"):
        ask(path, precision=precision, clip=1.0)
        made = trained()
        run = attach(made)
        assert run.resume() == step
        made.steps(run, step, step + 20)
        step += 20
        path = run.save(step)
        state = torch.load(path, weights_only=True)
        assert state["step"] == step
        assert all(bool(value.isfinite().all()) for value in state["model"].values())
        losses.append(made.held_out(run))
    assert all(after < 1.1 * before for before, after in pairwise(losses))
    assert losses[-1] < losses[0] / 4
    assert all(record["skipped"] == "0" for record in records_of("step"))


def test_saving_in_native_fp16_loses_less_than_an_fp16_rounding(trained: Any, ask: Ask) -> None:
    ask(precision="fp32")
    made = trained()
    run = attach(made)
    made.steps(run, 0, 5)
    exact = run.state(5)["model"]
    ask(run.save(5), precision="native_fp16")
    made = trained()
    run = attach(made)
    run.resume()
    for name, value in run.state(5)["model"].items():
        # 22 bits: 2^-22 of the value, against 2^-11 for a weight that is FP16 alone.
        assert torch.allclose(value, exact[name], rtol=2**-21, atol=1e-9)


def test_a_file_that_is_not_a_checkpoint_of_the_run_raises_one_clear_error(
    trained: Any, ask: Ask, tmp_path: Path
) -> None:
    path = str(tmp_path / "other.pt")
    torch.save({"weights": torch.zeros(1)}, path)
    ask(path, precision="fp32")
    run = attach(trained())
    with pytest.raises(ValueError, match="has no 'step'"):
        run.resume()


def test_checkpoint_names_follow_the_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checkpoint.path_of(5) == "checkpoints/step_5.pt"
    monkeypatch.setenv("RUNG_CHECKPOINT_DIR", "/ckpt")
    monkeypatch.setenv("RUNG_CHECKPOINT_PATTERN", "model-*.bin")
    assert checkpoint.path_of(50) == "/ckpt/model-50.bin"


def test_the_first_attach_reports_that_rung_has_hands(records_of, trained):
    for _ in range(2):
        one = trained()
        rung_inside.attach(one.model, one.optimizer)
    assert [record["torch"] for record in records_of("hands")] == [torch.__version__]
