"""Tests the validation gate on a field report's model: degraded FP16 fails, the safe settings pass.

Both are whole trainings in Lightning: the one keeps its weights in FP16, the other computes in mixed precision.
"""

import json
from pathlib import Path

import pytest

CATALOG = Path(__file__).parents[2] / "jobs" / "catalog" / "dbnet-ocr"


@pytest.mark.long
@pytest.mark.parametrize(
    ("file", "verdict", "code", "apart"),
    [pytest.param("degraded", "FAIL", 1, (2.0, 50.0), marks=pytest.mark.sample), ("safe", "PASS", 0, (0.0, 1.0))],
)
def test_dbnet(lab, monkeypatch, file, verdict, code, apart):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = json.loads(lab.rung("validate", str(CATALOG / f"{file}.yaml"), "--json", expect=code))
    assert found["verdict"] == verdict, found["line"]
    assert apart[0] <= abs(found["difference_percent"]) <= apart[1]
    # Neither shows a fault: only the metric differs.
    for run in found["runs"].values():
        assert run["finished"] and run["fault"] is None and run["losses_not_finite"] == 0
        assert run["usage"]["updates"] > 100 and run["grad_norm_median"] > 0
    assert found["runs"]["baseline"]["metric"] > 0.8
    report = Path(found["report"]["html"]).read_text()
    assert verdict in report and report.count("<svg ") == 1
