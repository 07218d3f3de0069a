"""Tests the short cuts that each update takes: they find what the long way finds, also where a script is unusual."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.hooks import backward, forward, grad_scaler
from rung_inside.zero_edit.knobs import autocast
from rung_inside.zero_edit.telemetry import step_numbers, step_records

NUMBERS = (0.1, 2.0, -0.0, 1e6, 1234567.0, 1.5e-5, 4.94066e-324, 1e20, 0.00012345678, math.inf, math.nan)


@pytest.mark.parametrize("value", NUMBERS)
def test_a_number_in_a_record_is_written_as_python_writes_it(value: float) -> None:
    rounded = repr(float(f"{value:.6g}"))
    text = step_numbers.text_of([(7, None, value, value, value, 8.0, False)])
    assert text == f"rung| step step=7 loss={rounded} lr={rounded} grad_norm={rounded} scale=8.0 skipped=0\n"


def test_each_record_has_its_own_lr_and_scale() -> None:
    values = [(0.1, 8.0), (0.2, 8.0), (None, None), (0.2, 16.0)]
    text = step_numbers.text_of([(1, None, None, lr, None, scale, None) for lr, scale in values])
    ends = [" lr=0.1 scale=8.0", " lr=0.2 scale=8.0", "", " lr=0.2 scale=16.0"]
    assert text == "".join(f"rung| step step=1{end}\n" for end in ends)


def test_the_scale_is_that_of_the_scaler_in_use_and_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    for scale in (8.0, 32.0):
        scaler = SimpleNamespace(_enabled=True, _scale=torch.tensor(scale))
        monkeypatch.setattr(step_numbers, "_scalers", SimpleNamespace(references=[lambda scaler=scaler: scaler]))
        for _ in range(3):
            assert step_numbers.norm_and_scale()[1] == scaler._scale.item()
            scaler._scale.mul_(2.0)


@pytest.mark.parametrize(
    ("norm", "read"), [(None, None), (torch.tensor(2.0), 2.0), (3.0, 3.0), (torch.tensor([1.0, 2.0]), None)]
)
def test_a_norm_of_any_kind_is_read_beside_the_scale(norm: Any, read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scaler = SimpleNamespace(_enabled=True, _scale=torch.tensor(8.0))
    monkeypatch.setattr(step_numbers, "_scalers", SimpleNamespace(references=[lambda: scaler]))
    monkeypatch.setattr(step_numbers, "_gradients", SimpleNamespace(norm=norm))
    for _ in range(2):
        assert step_numbers.norm_and_scale() == (read, 8.0)


def test_autocast_is_known_also_of_a_script_that_uses_both_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, fresh in (("_only_kind", [None]), ("_kinds", set()), ("_seen", set()), ("live", [None])):
        monkeypatch.setattr(autocast, name, fresh)
    enter = autocast._entering(torch.autocast.__enter__)

    def live(kind: str, dtype: torch.dtype) -> Any:
        context = torch.autocast(kind, dtype=dtype)
        enter(context)
        try:
            autocast.read_live()
        finally:
            context.__exit__(None, None, None)
        return autocast.live[0]

    assert live("cpu", torch.bfloat16) == (None, torch.bfloat16)
    autocast.read_live()
    assert autocast.live[0] == (None, None)
    assert live("cpu", torch.float16) == (None, torch.float16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        monkeypatch.setattr(autocast, "_is_on", lambda kind="cuda": True)
        autocast._add_kind("cuda")
        autocast.read_live()
        assert autocast.live[0] == (torch.get_autocast_dtype("cuda"), torch.bfloat16)


class Base(torch.nn.Module):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return "base", super().__call__(*args, **kwargs)

    def forward(self, x: Any, by: float = 1.0) -> Any:
        return x * by


class Derived(Base):
    pass


class Plain(torch.nn.Module):
    forward = Base.forward


@pytest.mark.parametrize("given", [((2.0,), {}), ((2.0, 3.0), {}), ((2.0,), {"by": 3.0}), ((), {"x": 2.0})])
@pytest.mark.parametrize("base", [Derived, Plain])
def test_a_root_is_called_as_its_class_would(base: type, given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    own = type(base.__name__, (base,), {})
    # A class that is derived from the one that is watched, too.
    further = type("Further", (own,), {})
    expected = [cls()(*given[0], **given[1]) for cls in (own, further)]
    monkeypatch.setattr(forward, "_patched", set())
    forward._patch_class(own)
    for model, result in zip((own(), further()), expected, strict=True):
        for newest in (lambda: None, lambda model=model: model):
            monkeypatch.setattr(forward, "_newest", [newest])
            assert model(*given[0], **given[1]) == result
    assert not run_state.in_root


def test_a_tracer_is_asked_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    own = type("Own", (Plain,), {})
    monkeypatch.setattr(forward, "_patched", set())
    forward._patch_class(own)
    model = own()
    monkeypatch.setattr(forward, "_newest", [lambda: model])
    monkeypatch.setattr(torch.nn.Module, "__call__", lambda *_: "traced")
    assert model(1.0) == "traced"


@pytest.mark.parametrize("as_torch", [True, False])
def test_a_backward_function_of_any_kind_gets_what_it_was_given(
    as_torch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, seen = [], []

    def of_torch(tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None):  # type: ignore[no-untyped-def]
        given.append((tensors, inputs))

    def of_another(tensors, inputs=None, more=0):  # type: ignore[no-untyped-def]
        given.append((tensors, inputs))

    monkeypatch.setattr(backward, "_to_call", {"backward": seen.append})
    replaced = backward._publishing(of_torch if as_torch else of_another)
    loss = torch.tensor(2.0)
    replaced(loss, inputs=[1])
    replaced(tensors=[loss])
    replaced(torch.ones(3))
    assert given[0] == (loss, [1]) and given[1] == ([loss], None) and len(given) == 3
    assert seen == [loss, loss]


def test_only_one_number_that_was_scaled_is_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(backward, "_to_call", {"backward": seen.append})
    monkeypatch.setattr(backward, "_scaled", [lambda: None, None])
    scale = backward._remembering(lambda _scaler, outputs: outputs * 8)
    replaced = backward._publishing(lambda *_, **__: None)
    for loss in (torch.tensor(2.0), torch.tensor([3.0]), torch.ones(3)):
        scaled = scale(None, loss)
        replaced(scaled)
    assert seen == [2.0, 3.0]


def test_a_scaled_loss_that_cannot_be_read_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(backward, "_to_call", {"backward": seen.append})
    monkeypatch.setattr(backward, "_scaled", [lambda: None, None])
    monkeypatch.setattr(torch.Tensor, "item", lambda _: torch.ones(2).tolist()[2:].index(1.0))
    scaled = backward._remembering(lambda _scaler, outputs: outputs * 8)(None, torch.tensor(2.0))
    backward._publishing(lambda *_, **__: None)(scaled)
    assert not seen


def test_an_update_that_is_not_due_is_reported_if_its_norm_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    monkeypatch.setattr(run_state.count, "first", 0)
    monkeypatch.setattr(run_state.count, "updates", 20_000)
    monkeypatch.setattr(step_numbers.records, "emit_lines", written.append)
    recorder = step_records.StepRecorder()
    for step, norm in ((20_001, 1.0), (20_002, 1.0), (20_003, math.inf)):
        run_state.count.updates = step
        recorder.backward(0.5)
        run_state.gradients.norm = torch.tensor(norm)
        recorder.before_update(optimizer)
        recorder.updated(optimizer, False)
        # From the second one on none is due.
        recorder.courses.start = 0
    assert [text.split()[2] for text in written] == ["step=20001", "step=20003"]
    assert recorder._plain() is None and "grad_norm=inf" in written[1]


UNSCALED, READY = object(), object()
UNUSUAL = (
    *("none", "another optimizer", "a knob", "an argument", "a keyword", "disabled", "not unscaled", "no lr yet"),
    *("a rehearsal", "unscales itself"),
)


@pytest.mark.parametrize("unusual", UNUSUAL)
def test_only_the_usual_step_of_a_scaler_takes_the_short_way(unusual: str, monkeypatch: pytest.MonkeyPatch) -> None:
    way: list[str] = []
    optimizer = SimpleNamespace(_step_supports_amp_scaling=unusual == "unscales itself")
    newest = object() if unusual == "another optimizer" else optimizer
    stage = READY if unusual == "not unscaled" else UNSCALED
    scaler = SimpleNamespace(_enabled=unusual != "disabled", _per_optimizer_states={id(optimizer): {"stage": stage}})
    monkeypatch.setattr(grad_scaler, "_count", SimpleNamespace(only=lambda: newest, updates=4))
    monkeypatch.setattr(grad_scaler, "_asked", {"lr": 0.1} if unusual == "a knob" else {})
    monkeypatch.setattr(grad_scaler, "script_lr", [] if unusual == "no lr yet" else [0.1])
    monkeypatch.setattr(grad_scaler, "_rehearsal", SimpleNamespace(is_on=unusual == "a rehearsal"))
    monkeypatch.setattr(grad_scaler, "_unscaled_stage", [UNSCALED])
    monkeypatch.setattr(grad_scaler, "_step", lambda *_: way.append("long"))
    monkeypatch.setattr(
        grad_scaler,
        "_to_call",
        {
            "before_update": lambda _: way.append("before"),
            "updated": lambda _, skipped: way.append(f"skipped={skipped}"),
        },
    )
    step = grad_scaler._counting(lambda *_: way.append("step"))
    step(scaler, optimizer, *([1] if unusual == "an argument" else []), **({"a": 1} if unusual == "a keyword" else {}))
    assert way == (["before", "step", "skipped=True"] if unusual == "none" else ["long"])
