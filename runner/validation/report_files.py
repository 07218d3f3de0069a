"""Writes, reads and copies the files of a validation's report."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rung.jobs.model.errors import StoreError
from rung.recovery.validation.explanations import gpu_of
from rung.recovery.validation.verdict import Run
from rung.runner.state.codec import finite_or_text
from rung.runner.validation.near_table import near_facts
from rung.runner.validation.report import Findings, html, markdown, plots, rows, verdict_line

FACTS = "report.json"


def write_report(folder: Path, found: Findings) -> None:
    """Write the report in all its forms, over the remains of an earlier try."""
    texts = {"report.md": markdown(found), "report.html": html(found), **plots(found)}
    texts[FACTS] = json.dumps(facts(found), indent=2, allow_nan=False)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        draft = folder / f".{name}.{os.getpid()}"
        draft.write_text(text, encoding="utf-8")
        draft.rename(folder / name)


def facts(found: Findings) -> dict[str, Any]:
    """Return the report as data, which `rung validate --json` prints."""
    runs = {"baseline": found.baseline, "candidate": found.candidate}
    data: dict[str, Any] = {
        "id": found.id,
        "name": found.name,
        "verdict": found.judgement.verdict,
        "because": found.judgement.because,
        "line": verdict_line(found),
        "metric": found.rule.metric,
        "difference_percent": found.judgement.difference,
        "pass_below": found.rule.pass_below,
        "marginal_below": found.rule.marginal_below,
        "runs": {role: _run_facts(run, found.rule.metric) for role, run in runs.items() if run is not None},
        "table": [asdict(row) for row in rows(found)],
        "answers": [asdict(answer) for answer in found.answers],
        "near_limit": near_facts(found.candidate),
        "at": found.at,
    }
    plain: dict[str, Any] = finite_or_text(data)
    return plain


def _run_facts(run: Run, metric: str) -> dict[str, Any]:
    figures = run.figures
    return {
        "job": run.job_id,
        "precision": run.name,
        "finished": run.finished,
        "fault": run.fault.to_dict() if run.fault else None,
        "metric": run.value(metric),
        "losses": figures.losses,
        "losses_not_finite": figures.bad_losses,
        "skipped": figures.skipped,
        "grad_norm_median": figures.median_norm,
        "grad_norm_largest": figures.largest_norm,
        "usage": asdict(figures.usage) if figures.usage else None,
        "host": run.host,
        "device": gpu_of(run),
    }


def read_facts(folder: Path) -> dict[str, Any] | None:
    """Return a report as data; None if it is missing."""
    try:
        data = json.loads((folder / FACTS).read_bytes())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def copy_report(folder: Path, target: Path) -> None:
    try:
        target.mkdir(parents=True, exist_ok=True)
        for path in sorted(folder.glob("[!.]*")):
            shutil.copyfile(path, target / path.name)
    except OSError as error:
        raise StoreError(f"{target}: the report cannot be copied there: {error.strerror}") from None
