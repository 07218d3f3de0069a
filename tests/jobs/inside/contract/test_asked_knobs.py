"""Tests that asked knobs are set on the live objects, stay after a load, and are reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import rung_inside
import torch
from rung_inside.contract import asked_knobs

RecordsOf = Callable[[str], list[dict[str, str]]]
Ask = Callable[..., None]


def states_after_training(trained: Any, **options: Any) -> tuple[Any, Any]:
    """Return a network trained for a while with lr 1e-2, and its run, as an earlier attempt leaves them."""
    made = trained(lr=1e-2, **options)
    run = rung_inside.attach(made.model, made.optimizer, made.scheduler, defaults={"precision": "amp_fp16"})
    made.steps(run, 0, 15)
    return made, run


def test_without_knobs_the_script_keeps_its_own_values(trained: Any, records_of: RecordsOf) -> None:
    made = trained(lr=0.02)
    rung_inside.attach(made.model, made.optimizer, made.scheduler, defaults={"precision": "amp_fp16", "clip": 3.0})
    assert records_of("knobs") == [{"lr": "0.02", "clip": "3.0", "growth_interval": "2000", "precision": "amp_fp16"}]
    assert rung_inside.knobs() == {}


def test_asked_knobs_replace_the_scripts_values_and_no_clip_means_off(
    trained: Any, ask: Ask, records_of: RecordsOf
) -> None:
    ask(lr=0.5, clip=None, growth_interval=50, precision="fp32")
    made = trained(lr=0.02)
    rung_inside.attach(made.model, made.optimizer, made.scheduler, defaults={"precision": "amp_fp16", "clip": 3.0})
    assert records_of("knobs") == [{"lr": "0.5", "clip": "off", "precision": "fp32"}]


@pytest.mark.parametrize("text", ["{", "[1]", '{"precision": "fp8"}'])
def test_knobs_that_cannot_be_read_raise_one_clear_error(
    text: str, trained: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNG_KNOBS", text)
    made = trained()
    with pytest.raises(ValueError, match=r"RUNG_KNOBS|unknown precision"):
        rung_inside.attach(made.model, made.optimizer)


def test_other_groups_keep_their_ratio_to_the_first(ask: Ask) -> None:
    ask(lr=1e-3)
    weights = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": weights[:1], "lr": 0.1}, {"params": weights[1:], "lr": 0.4}])
    rung_inside.attach(torch.nn.ParameterList(weights), optimizer)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([1e-3, 4e-3])


@pytest.mark.parametrize("order", [("optimizer", "scheduler"), ("scheduler", "optimizer")])
def test_lr_and_base_lr_survive_a_load_in_either_order(order: tuple[str, str], trained: Any, ask: Ask) -> None:
    asked = 1e-3
    before, _ = states_after_training(trained)
    ask(lr=asked, precision="amp_fp16")
    after = trained(lr=1e-2)
    run = rung_inside.attach(after.model, after.optimizer, after.scheduler)
    for name in order:
        getattr(after, name).load_state_dict(getattr(before, name).state_dict())
    assert run.effective()["lr"] == asked
    assert after.scheduler.base_lrs == [asked]
    after.steps(run, 15, 17)
    assert after.optimizer.param_groups[0]["lr"] == pytest.approx(asked)


def test_the_schedule_keeps_its_shape_under_a_new_base(trained: Any, ask: Ask) -> None:
    before = trained(lr=1e-2)
    run = rung_inside.attach(before.model, before.optimizer, before.scheduler)
    before.steps(run, 0, 4)
    assert before.optimizer.param_groups[0]["lr"] == pytest.approx(0.5e-2)
    ask(lr=1e-3)
    after = trained(lr=1e-2)
    rung_inside.attach(after.model, after.optimizer, after.scheduler)
    after.optimizer.load_state_dict(before.optimizer.state_dict())
    after.scheduler.load_state_dict(before.scheduler.state_dict())
    assert after.optimizer.param_groups[0]["lr"] == pytest.approx(0.5e-3)


def test_a_one_cycle_schedule_peaks_at_the_asked_lr(ask: Ask) -> None:
    ask(lr=0.004)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.25, total_steps=10)
    rung_inside.attach(torch.nn.ParameterList([weight]), optimizer, scheduler)
    rates = []
    for _ in range(9):
        optimizer.step()
        scheduler.step()
        rates.append(optimizer.param_groups[0]["lr"])
    # OneCycleLR starts at a 25th of its peak and calls that the initial lr.
    assert max(rates) == pytest.approx(0.1)


def test_growth_interval_survives_a_load_of_the_scaler(trained: Any, ask: Ask) -> None:
    asked = 8000
    _, before = states_after_training(trained)
    ask(growth_interval=asked, precision="amp_fp16")
    made = trained()
    run = rung_inside.attach(made.model, made.optimizer)
    run.scaler.load_state_dict(before.scaler.state_dict())
    assert run.scaler.get_growth_interval() == asked
    assert run.effective()["growth_interval"] == asked


def test_an_empty_scaler_state_loads_without_an_error_in_amp(trained: Any, ask: Ask) -> None:
    asked = 8000
    ask(growth_interval=asked, precision="amp_fp16")
    made = trained()
    run = rung_inside.attach(made.model, made.optimizer)
    run.scaler.load_state_dict({})
    assert run.scaler.is_enabled() and run.scaler.get_growth_interval() == asked


@pytest.mark.parametrize(("loaded", "kept"), [(0.0, 65536.0), (0.5, 65536.0), (1.0, 1.0), (512.0, 512.0)])
def test_a_collapsed_scale_is_not_used_again(loaded: float, kept: float, trained: Any, ask: Ask) -> None:
    _, before = states_after_training(trained)
    ask(precision="amp_fp16")
    made = trained()
    run = rung_inside.attach(made.model, made.optimizer)
    run.scaler.load_state_dict({**before.scaler.state_dict(), "scale": loaded})
    assert run.scaler.get_scale() == kept


def test_a_load_keeps_the_eps_of_the_script(trained: Any, ask: Ask) -> None:
    eps = 1e-4
    before, _ = states_after_training(trained, eps=1e-8)
    ask(precision="fp32")
    after = trained(eps=eps)
    rung_inside.attach(after.model, after.optimizer)
    after.optimizer.load_state_dict(before.optimizer.state_dict())
    assert after.optimizer.param_groups[0]["eps"] == eps


def test_the_state_of_a_scheduler_contains_nothing_from_rung(trained: Any) -> None:
    plain = trained().scheduler.state_dict()
    made, _ = states_after_training(trained)
    assert set(made.scheduler.state_dict()) == set(plain)


def test_a_loaded_object_keeps_its_class(trained: Any) -> None:
    made, _ = states_after_training(trained)
    assert isinstance(made.optimizer, torch.optim.AdamW) and type(made.optimizer).__name__ == "AdamW"


def test_the_record_shows_an_lr_that_the_script_overwrites(trained: Any, ask: Ask, records_of: RecordsOf) -> None:
    ask(lr=1e-3)
    made = trained()
    optimizer = torch.optim.SGD(made.model.parameters(), lr=1e-3)
    run = rung_inside.attach(made.model, optimizer)
    optimizer.param_groups[0]["lr"] = 0.05
    made.steps(run, 0, 1)
    assert [record["lr"] for record in records_of("knobs")] == ["0.001", "0.05"]


def test_the_record_shows_an_lr_that_the_script_overwrites_despite_a_schedule(trained: Any, ask: Ask) -> None:
    asked, overwritten = 1e-3, 0.05
    ask(lr=asked)
    made = trained()
    run = rung_inside.attach(made.model, made.optimizer, made.scheduler)
    assert run.effective()["lr"] == asked
    made.optimizer.param_groups[0]["lr"] = overwritten
    assert run.effective()["lr"] == overwritten


def test_a_script_with_its_own_autocast_is_not_reported_as_fp32(trained: Any, ask: Ask, records_of: RecordsOf) -> None:
    ask(precision="fp32")
    made = trained()
    run = rung_inside.attach(made.model, made.optimizer)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made.model(made.batch(0)[0])
    run.step(made.model(made.batch(0)[0]).sum(), 0)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = made.model(made.batch(0)[0]).float().sum()
    run.step(loss, 1)
    assert [record["precision"] for record in records_of("knobs")] == [
        "fp32",
        "float32_parameters_autocast_float16_no_scaler",
    ]


def test_unknown_defaults_are_refused(trained: Any) -> None:
    made = trained()
    with pytest.raises(ValueError, match="unknown knob 'clipp'"):
        rung_inside.attach(made.model, made.optimizer, defaults={"clipp": 1.0})


def test_asked_returns_only_what_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNG_KNOBS", '{"batch": 16, "clip": null, "other": 1}')
    assert asked_knobs.knobs() == {"clip": None, "batch": 16}
