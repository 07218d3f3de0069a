"""Tests that one controller runs many jobs at once and records the result of each."""

import json

import pytest


@pytest.mark.long
def test_twenty_jobs_run_at_the_same_time_and_all_end(lab, monkeypatch):
    monkeypatch.setenv("RUNG_MAX_PARALLEL", "20")
    # Each waits for all the others: run one after another, the first would never end.
    wait = "touch here_$RUNG_JOB; while [ $(ls here_* | wc -l) -lt 20 ]; do sleep 0.05; done; echo step 1 loss 0.5"
    for number in range(20):
        ending = f"{wait}; exit {3 if number % 5 == 0 else 0}"
        path = lab.folder / f"job {number}.yaml"
        path.write_text(json.dumps({"name": f"job {number}", "run": ["sh", "-c", ending]}))
        lab.submit(path)
    lab.rung("controller", "--until-idle")
    rows = json.loads(lab.rung("queue", "--json"))
    assert [row["state"] for row in rows] == ["FAILED" if n % 5 == 0 else "SUCCEEDED" for n in range(20)]
    assert [row["recoveries"] for row in rows] == [1 if n % 5 == 0 else 0 for n in range(20)]
