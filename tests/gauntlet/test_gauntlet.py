"""Tests the gauntlet: how it judges and counts, that no case uses Rung, and one case with the real command."""

from __future__ import annotations

import ast
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from rung.jobs.spec.load import parse_spec
from tests.gauntlet import table
from tests.gauntlet.catalog import CASES, CATALOG, SHARED, Case, chosen
from tests.gauntlet.judging import REFERENCE, Result, Verdict, judge, read_results, value_in
from tests.gauntlet.regimens import Trial, default, from_history

CURABLE = Case("mask_constant", "a mask")
HOPELESS = Case("sqrt_at_zero", "a root", diagnosis=("bug in the model",))
RESULT = Result(
    case="mask_constant",
    regimen="default",
    times=1,
    ended_well=True,
    val_loss=0.5,
    launches=2,
    steps_lost=10,
    seconds=4.0,
    steps=400,
    half_steps=100,
)


def verdict(of: Case = CURABLE, reference: float | None = 0.5, **changes: object) -> Verdict:
    return Verdict(replace(RESULT, case=of.name, **changes), of, reference)  # type: ignore[arg-type]


# The cases


def test_the_catalog_has_thirty_cases_of_four_frameworks_and_five_without_a_cure() -> None:
    assert set(CASES.glob("*.py")) == {SHARED, *(case.script for case in CATALOG)}
    assert len(CATALOG) >= 30
    assert {case.framework for case in CATALOG} == {"torch", "HF Trainer", "Lightning", "Accelerate"}
    assert sum(not case.curable for case in CATALOG) >= 5


@pytest.mark.parametrize("script", [SHARED, *(case.script for case in CATALOG)], ids=lambda script: script.stem)
def test_a_case_does_not_use_rung_and_does_not_set_a_loss_to_nan(script: Path) -> None:
    text = script.read_text()
    nodes = [*ast.walk(ast.parse(text))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules = {(node.module or "").partition(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
    assert "rung" not in text.lower()
    assert names <= {"argparse", "glob", "lightning", "math", "os", "torch"}
    assert modules <= {"accelerate", "case", "lightning", "torch", "transformers"}
    assert "loss = float(" not in text


@pytest.mark.parametrize("case", CATALOG, ids=lambda case: case.name)
def test_the_job_file_of_a_case_is_valid_and_zero_edit(case: Case) -> None:
    assert parse_spec(json.dumps(case.job(1)).encode()).knobs.mode == "zero-edit"


def test_an_unknown_case_is_refused_by_name() -> None:
    assert chosen(("double_unscale",))[0].wrong == "unscales twice"
    with pytest.raises(KeyError, match="no_such"):
        chosen(("no_such",))


# Judging


@pytest.mark.parametrize(
    ("value", "well", "recovered"),
    [
        (0.5, True, True),
        (0.504, True, True),
        (0.1, True, True),
        (0.506, True, False),
        (0.5, False, False),
        (math.nan, True, False),
        (None, True, False),
    ],
)
def test_a_case_is_recovered_within_one_per_cent_of_the_healthy_run_or_better(
    value: float | None, well: bool, recovered: bool
) -> None:
    assert verdict(val_loss=value, ended_well=well).recovered is recovered


def test_a_case_without_a_reference_is_not_recovered() -> None:
    assert not verdict(reference=None).recovered


def test_a_case_without_a_cure_is_right_only_if_it_fails_soon_with_the_right_diagnosis() -> None:
    named = {"said": "NaN in FP32 too: a bug in the model or the data", "ended_well": False}
    assert verdict(HOPELESS, launches=4, **named).right
    assert not verdict(HOPELESS, launches=5, **named).right
    assert not verdict(HOPELESS, **named | {"said": "no rung is left"}).right
    assert not verdict(HOPELESS, **named | {"ended_well": True}).right


def test_the_held_out_loss_is_the_last_one_printed() -> None:
    assert value_in("val_loss 3.0\nstep 4\nval_loss 2.5\n") == 2.5
    assert math.isnan(value_in("val_loss nan") or 0.0)
    assert value_in("val_loss oops") is None
    assert value_in("loss 1") is None


def test_results_are_stored_as_lines_the_newest_counts_and_references_get_no_verdict(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    healthy = replace(RESULT, regimen=REFERENCE, val_loss=0.4)
    lines = [RESULT, healthy, replace(RESULT, val_loss=0.41)]
    assert read_results(file) == []
    file.write_text("".join(each.to_json() + "\n" for each in lines))
    (only,) = judge(read_results(file), CATALOG)
    assert (only.result.val_loss, only.reference, only.recovered) == (0.41, 0.4, False)


# Counting


def attempt(number: int, **fields: object) -> dict[str, object]:
    plain = {"resumed_step": None, "planned_step": None, "furthest_step": 0, "steps_lost": 0, "fault": None}
    more = {"outcome": "succeeded", "rung": None, "because": "", "changed": {}, "asked": {"precision": None}}
    return {"number": number, **plain, **more, **fields}


def test_a_history_gives_the_number_of_launches_and_the_steps_in_each_precision(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("val_loss 0.5\n")
    attempts = [
        attempt(1, furthest_step=60, steps_lost=10, log=str(log)),
        attempt(2, planned_step=50, furthest_step=400, asked={"precision": "fp32"}, log=str(log)),
    ]
    history = {"job": {"state": "SUCCEEDED", "reason": "finished"}, "attempts": attempts}
    result = from_history(Trial(CURABLE, 1, tmp_path), "default", history, 4.0)
    assert (result.launches, result.steps_lost, result.steps, result.half_steps) == (2, 10, 410, 60)
    assert result.ended_well and result.val_loss == 0.5


def test_the_tables_show_what_failed() -> None:
    verdicts = [
        verdict(),
        verdict(replace(CURABLE, name="other"), val_loss=0.6, launches=4),
        verdict(HOPELESS, ended_well=False, said="bug in the model"),
    ]
    assert "| default | x1 | 1 of 2 | 1 of 1 | 2.00 (3) | 10 | 4 | 25% |" in table.summary(verdicts)
    shown = table.cases(verdicts)
    assert "+0.0% after 1 |" in shown and "**+20.0%** after 3 |" in shown and "named after 1" in shown
    assert "WRONG" in table.line(verdicts[1])


def test_the_docs_show_the_tables_of_the_stored_results() -> None:
    page = (CASES.parents[2] / "docs" / "ladder.md").read_text(encoding="utf-8")
    verdicts = judge(read_results(CASES.parent / "results.jsonl"), CATALOG)
    assert table.summary(verdicts) in page
    assert table.cases(verdicts) in page


# One case with the real command


def test_rung_recovers_a_case_that_fails_without_it(tmp_path: Path) -> None:
    case = replace(chosen(("half_params_with_scaler",))[0], steps=60)
    result = default(Trial(case, 1, tmp_path))
    assert result.ended_well, result
    assert result.relaunches == 1 and result.val_loss is not None and result.val_loss < 1.0
