"""Tests the verdict on a field report's job: failed and recovered as reported, or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.field import usage
from tests.field.jobfile import changed
from tests.field.reports import REPORTS, Report
from tests.field.rows import Row, judge, markdown

REPORT = REPORTS["mmgcn"]
LEVEL_REPORT = Report("mmgcn", ("divergence", "level"), "step 1", 0.1, "fixed", may_be_lower=True)
FAULT = {"kind": "nan_loss", "evidence": "step 1 loss inf"}


def attempt(fault: dict[str, str] | None, value: float | None, rung: str | None = None) -> dict[str, Any]:
    metrics = {} if value is None else {"val_auc": value}
    times = {"started_at": 100.0, "ended_at": 160.0, "host": "here"}
    return {"number": 1, "fault": fault, "metrics": metrics, "rung": rung, "steps_lost": 20 if fault else 0, **times}


def history(*attempts: dict[str, Any], state: str = "SUCCEEDED") -> dict[str, Any]:
    job = {"name": "mmgcn", "state": state, "reason": "why", "success": {"metric": "val_auc", "above": 0.8}}
    return {"job": job, "attempts": list(attempts), "events": []}


GOOD = history(attempt(FAULT, None), attempt(None, 0.905, "fp32"))
REFERENCE = history(attempt(None, 0.9))


def judged(
    folder: Path, ran: dict[str, Any], reference: dict[str, Any], said: str = REPORT.words, report: Report = REPORT
) -> Row:
    (folder / "log").write_text(f"step 1\nValueError: {said}\n")
    first = {**ran["attempts"][0], "log": str(folder / "log")}
    logged = {**ran, "attempts": [first, *ran["attempts"][1:]]}
    return judge(report, logged, reference, "fp32", ("here", "cpu"))


def test_a_job_that_fails_as_reported_and_comes_near_its_reference_has_no_troubles(tmp_path: Path) -> None:
    row = judged(tmp_path, GOOD, REFERENCE)
    assert row.troubles == ()
    assert (row.attempts, row.faults, row.rungs, row.steps_lost, row.minutes) == (2, ("nan_loss",), ("fp32",), 20, 1.0)
    assert row.difference == pytest.approx(0.00556, abs=1e-4)
    expected = "| mmgcn | 2 | nan_loss | fp32 | val_auc | 0.9050 | 0.9000 (fp32) | +0.56 % | 20 | 1.0 | ok |"
    assert expected in markdown([row])
    assert Row.from_dict(row.to_dict()) == row


@pytest.mark.parametrize(
    ("ran", "reference", "said"),
    [
        (history(attempt(FAULT, None), attempt(None, 0.91, "fp32")), REFERENCE, "not within 1 %"),
        (history(attempt(FAULT, None), attempt(None, 0.89, "fp32")), REFERENCE, "not within 1 %"),
        (history(attempt(None, 0.9)), REFERENCE, "failed first with no fault, not with nan_loss"),
        (history(attempt({**FAULT, "kind": "oom"}, None), attempt(None, 0.9)), REFERENCE, "failed first with oom"),
        (GOOD, history(attempt(FAULT, None), attempt(None, 0.9, "fp32")), "its reference (fp32) fails too"),
        (history(attempt(FAULT, None), state="FAILED"), REFERENCE, "mmgcn is FAILED: why"),
        (history(attempt(FAULT, None), attempt(None, None)), REFERENCE, "no val_auc to compare"),
    ],
)
def test_every_difference_from_the_report_is_a_trouble(
    tmp_path: Path, ran: dict[str, Any], reference: dict[str, Any], said: str
) -> None:
    assert said in "; ".join(judged(tmp_path, ran, reference).troubles)


def test_what_jobs_measured_of_themselves_stands_beside_the_reference(tmp_path: Path) -> None:
    def measured(history: dict[str, Any], name: str, seconds: str, updates: int) -> dict[str, Any]:
        gpu = "gpu_bytes=1610612736 gpu=H200"
        (tmp_path / name).write_text(f"rung| usage updates={updates} seconds_per_step={seconds} {gpu}\n")
        last = {**history["attempts"][-1], "log": str(tmp_path / name), "steps_made": 100}
        return {**history, "attempts": [*history["attempts"][:-1], last]}

    # Two optimizers take turns in one of them: its step has two updates.
    row = judged(tmp_path, measured(GOOD, "ours", "0.011", 200), measured(REFERENCE, "theirs", "0.02", 100))
    assert "| mmgcn | fp32 | 22.0 | 20.0 | 1.10 | 1.50 | 1.50 |" in usage.markdown([row])
    assert Row.from_dict(row.to_dict()) == row
    assert len(usage.markdown([judged(tmp_path, GOOD, REFERENCE)]).splitlines()) == 2


def test_a_first_log_without_the_words_of_the_report_is_a_trouble(tmp_path: Path) -> None:
    expected = ("its first log does not say what the report's did: Training loss is nan",)
    assert judged(tmp_path, GOOD, REFERENCE, "loss went away").troubles == expected


@pytest.mark.parametrize(("value", "troubles"), [(0.98, ()), (0.7, ()), (1.0, ("not within 10 % of its reference",))])
def test_a_first_attempt_that_was_only_seen_to_be_level_counts_where_the_report_says_so(
    tmp_path: Path, value: float, troubles: tuple[str, ...]
) -> None:
    ran = history(attempt(None, None), {**attempt(None, value, "lower_lr"), "number": 2})
    level = {"kind": "level", "attempt": 1, "data": {}}
    assert judged(tmp_path, {**ran, "events": [level]}, REFERENCE, report=LEVEL_REPORT).troubles == troubles


@pytest.mark.parametrize("events", [[], [{"kind": "level", "attempt": 2, "data": {}}]])
def test_a_first_attempt_without_a_fault_that_was_not_level_is_a_trouble(tmp_path: Path, events: list[Any]) -> None:
    ran = history(attempt(None, None), {**attempt(None, 0.9, "lower_lr"), "number": 2})
    expected = ("failed first with no fault, not with divergence or level",)
    assert judged(tmp_path, {**ran, "events": events}, REFERENCE, report=LEVEL_REPORT).troubles == expected


SPEC = {"name": "a", "run": "python train.py --size cpu --lr {lr}", "knobs": {"mode": "zero-edit"}, "envs": {"A": "1"}}


def test_a_job_file_changes_with_the_size_the_place_and_the_variant() -> None:
    made = changed(SPEC, "gpu", "fp32", {"envs": {"B": "2"}, "image": "sha256:0"})
    assert made["run"] == "python train.py --size gpu --lr {lr}"
    assert made["knobs"] == {"mode": "zero-edit", "precision": "fp32"}
    assert (made["envs"], made["image"]) == ({"A": "1", "B": "2"}, "sha256:0")
    assert (
        changed({**SPEC, "run": "python train.py size=cpu"}, "gpu", "fixed", {})["run"]
        == "python train.py size=gpu --fixed"
    )


def test_a_job_that_does_not_name_its_size_once_is_refused() -> None:
    with pytest.raises(ValueError, match="should name the size once"):
        changed({**SPEC, "run": "python train.py"}, "gpu", None, {})
