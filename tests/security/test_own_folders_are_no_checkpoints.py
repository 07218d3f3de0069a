"""Tests that Rung's own folders are never taken for checkpoints of a job, whatever the job file names.

In 0.1.0 `checkpoint: {dir: ".", pattern: "*"}` set the attempts of the job aside, with their logs and records.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Rung = Callable[..., Any]
SAVES_AND_IS_KILLED = """
import os, pathlib, sys
folder, began = pathlib.Path(os.environ["RUNG_CHECKPOINT_DIR"]), pathlib.Path(sys.argv[1])
print("step 1 loss 2.0", flush=True)
first = not began.exists()
began.touch()
(folder / "step_1.pt").write_bytes(b"no checkpoint at all")
if first:
    os.kill(os.getpid(), 9)
"""


def test_the_attempts_of_a_job_stay_where_they_are(home: Path, tmp_path: Path, rung: Rung) -> None:
    (tmp_path / "train.py").write_text(SAVES_AND_IS_KILLED, encoding="utf-8")
    run = ["python", "train.py", str(tmp_path / "began")]
    spec = {"name": "own", "run": run, "checkpoint": {"dir": ".", "pattern": "*"}}
    (tmp_path / "job.yaml").write_text(json.dumps(spec), encoding="utf-8")
    rung("launch", "-f", tmp_path / "job.yaml")
    history = json.loads(rung("history", "own", "--json").out)
    assert len(history["attempts"]) == 2, "it was relaunched"
    named = {name for event in history["events"] if event["kind"] == "set_aside" for name in event["data"]["files"]}
    assert "step_1.pt" in named and not named & {"attempts", "mirror", ".set-aside"}
    (job,) = (home / "jobs").iterdir()
    for number in ("1", "2"):
        assert (job / "attempts" / number / "log").read_text().startswith("step 1 loss 2.0")
        assert json.loads((job / "attempts" / number / "done.json").read_bytes())
