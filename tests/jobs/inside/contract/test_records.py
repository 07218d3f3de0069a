"""Tests the exact lines of the records."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest
import rung_inside
import torch
from hypothesis import given
from hypothesis import strategies as st
from rung_inside.contract import records
from rung_inside.zero_edit.telemetry import step_numbers
from rung_inside.zero_edit.telemetry.async_readback import Numbers

SOME = st.none() | st.floats()
UPDATES = st.builds(
    Numbers, st.integers(0), st.none(), SOME, SOME, SOME, st.none() | st.floats(0, 1e9), st.none() | st.booleans()
)
RecordsOf = Callable[[str], list[dict[str, str]]]


def test_a_record_is_one_line_with_its_mark_and_plain_numbers() -> None:
    line = records.line("step", {"step": 501, "loss": 2.3451, "lr": 1e-5, "skipped": False})
    assert line == "rung| step step=501 loss=2.3451 lr=1e-05 skipped=0"


@pytest.mark.parametrize(("value", "text"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")])
def test_numbers_that_are_not_finite_are_written_as_words(value: float, text: str) -> None:
    assert records.text_of(value) == text
    assert records.text_of(torch.tensor(value)) == text


def test_a_value_of_none_is_left_out() -> None:
    assert records.line("step", {"step": 1, "scale": None}) == "rung| step step=1"


@pytest.mark.parametrize("text", ["two words", 'a "quote"', "a=b", "", "line\nbreak", "\x1b[31mred", "tür"])
def test_text_that_could_be_misread_is_json_quoted_on_one_line(text: str) -> None:
    shown = records.text_of(text)
    assert json.loads(shown) == text
    assert shown.isprintable() and shown.isascii()


def test_plain_file_names_are_not_quoted() -> None:
    assert records.text_of("step_500.pt") == "step_500.pt"


def test_only_the_first_rank_writes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RANK", "3")
    rung_inside.metric(1, val_loss=0.5)
    monkeypatch.setenv("RANK", "0")
    rung_inside.metric(2, val_loss=0.25)
    assert capsys.readouterr().out == "rung| metric step=2 val_loss=0.25\n"


@given(st.lists(UPDATES, min_size=1, max_size=3))
def test_the_records_of_updates_are_those_that_any_record_is_made_by(updates: list[Numbers]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        written: list[str] = []
        patch.setattr(records, "write", written.append)
        step_numbers.emit_all(updates)
        step_numbers.emit(updates[0], optimizer=2)
    names = {"step": "step", "loss": "loss", "lr": "lr", "grad_norm": "norm", "scale": "scale", "skipped": "skipped"}
    lines = [records.line("step", {name: shown(each, kept) for name, kept in names.items()}) for each in updates]
    assert "".join(written) == "".join(line + "\n" for line in [*lines, lines[0] + " optimizer=2"])


def shown(update: Numbers, name: str) -> object:
    """Return a number of an update as it is shown: what was measured with six digits."""
    value = getattr(update, name)
    return records.short(value) if value is not None and name in ("loss", "lr", "norm") else value


def test_the_rank_of_records_that_are_lines_already_is_asked_again_and_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(records, "_speaking", records._Speaking())
    for _ in range(records.ASKED_FIRST):
        records.emit_lines("a\n")
    monkeypatch.setenv("RANK", "3")
    for _ in range(records.ASKED_EVERY + 5):
        records.emit_lines("b\n")
    out = capsys.readouterr().out
    assert out.count("a") == records.ASKED_FIRST and out.count("b") < records.ASKED_EVERY
    monkeypatch.setattr(records, "_speaking", records._Speaking())
    records.emit_lines("c\n")
    assert "c" not in capsys.readouterr().out


def test_knobs_are_reported_once_and_again_when_one_changes(records_of: RecordsOf) -> None:
    for lr in (0.1, 0.1, 0.2):
        records.report_knobs({"lr": lr})
    assert records_of("knobs") == [{"lr": "0.1"}, {"lr": "0.2"}]


def test_report_shows_the_live_lr_of_a_script_that_keeps_its_own_loop(records_of: RecordsOf) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    scaler = torch.amp.GradScaler("cpu", growth_interval=7, init_scale=8.0)
    rung_inside.report(3, loss=torch.tensor(1.5), optimizer=optimizer, scaler=scaler, grad_norm=2.0)
    assert records_of("knobs") == [{"lr": "0.5", "growth_interval": "7"}]
    assert records_of("step") == [{"step": "3", "loss": "1.5", "grad_norm": "2.0", "lr": "0.5", "scale": "8.0"}]


def test_report_shows_the_wrong_lr_of_a_script_that_ignores_what_was_asked(
    records_of: RecordsOf, ask: Callable[..., None]
) -> None:
    ask(lr=1e-4)
    weight = torch.nn.Parameter(torch.zeros(1))
    old = torch.optim.SGD([weight], lr=1e-3).state_dict()
    optimizer = torch.optim.SGD([weight], lr=rung_inside.knobs()["lr"])
    optimizer.load_state_dict(old)
    rung_inside.report(1, loss=1.0, optimizer=optimizer)
    assert records_of("knobs") == [{"lr": "0.001"}]


def test_records_of_a_block_are_written_together_and_in_their_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RUNG_LOG", raising=False)
    with records.together():
        records.emit("step", step=1)
        with records.together():
            records.emit("step", step=2)
        assert capsys.readouterr().out == ""
        records.write_held()
        assert capsys.readouterr().out == "rung| step step=1\nrung| step step=2\n"
        records.emit("step", step=3)
    assert capsys.readouterr().out == "rung| step step=3\n"
    records.emit("step", step=4)
    assert capsys.readouterr().out == "rung| step step=4\n"


def test_an_error_in_a_block_loses_no_record(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RUNG_LOG", raising=False)
    with pytest.raises(ValueError, match="own"), records.together():
        records.emit("step", step=1)
        raise ValueError("own")
    assert capsys.readouterr().out == "rung| step step=1\n"
