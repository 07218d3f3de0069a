"""Tests that the trackers of a job know its attempts as one: names, tags, the run of MLflow, links in the history."""

from __future__ import annotations

import json
from typing import Any

from tests.flow.conftest import Lab

RUN = "0123456789abcdef0123456789abcdef"
# Killed in its first attempt, NaN in its second one, which only a lower lr cures.
SCRIPT = """
import os, signal
attempt, lr = os.environ["RUNG_ATTEMPT"], float(os.environ["LR"])
names = ("WANDB_NAME", "WANDB_TAGS", "MLFLOW_RUN_ID", "MLFLOW_RUN_CONTEXT")
with open(f"variables{attempt}", "w") as file:
    print(*(os.environ.get(name) for name in names), sep="|", file=file)
print(f"wandb: View run at https://wandb.ai/me/p/runs/r{attempt}?apiKey=hidden", flush=True)
run = os.environ.get("MLFLOW_RUN_ID") or "RUN"
print(f"View run a-fox at: http://127.0.0.1:5000/#/experiments/0/runs/{run}", flush=True)
for step in range(1, 61):
    if attempt == "1" and step == 10:
        os.kill(os.getpid(), signal.SIGKILL)
    print(f"step {step} loss", "nan" if lr > 0.01 and step >= 30 else 2 * 0.99**step, flush=True)
""".replace('RUN"', f'{RUN}"')


def run(lab: Lab, **fields: Any) -> tuple[dict[str, Any], list[list[str]]]:
    """Run the job; return its history, and the variables of each attempt."""
    recovery = {"trials": "off", "ladder": ["lower_lr"], "infra_retries": 2}
    spec = {"name": "a", "run": "python train.py", "envs": {"LR": "{lr}", **fields.pop("envs", {})}}
    script = lab.folder / "source.py"
    script.write_text(SCRIPT)
    script.rename(lab.folder / "train.py")
    file = lab.folder / "job.yaml"
    file.write_text(json.dumps({**spec, "knobs": {"lr": 0.1}, "recovery": recovery, **fields}))
    history = lab.run(file)
    told = [(lab.folder / f"variables{n['number']}").read_text().strip().split("|") for n in history["attempts"]]
    return history, told


def test_each_attempt_is_named_and_its_links_are_in_the_history(lab: Lab) -> None:
    history, told = run(lab)
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    assert [words[:2] for words in told] == [
        ["a-1 attempt 1", "None"],
        ["a-1 attempt 2", "infra_fault"],
        ["a-1 attempt 3", "nan_loss,lower_lr"],
    ]
    # With the same knobs the run goes on; with another lr MLflow would refuse the parameters of the script.
    assert [words[2] for words in told] == ["None", RUN, "None"]
    assert json.loads(told[2][3]) == {
        "rung.job": "a-1", "rung.attempt": "3", "rung.fault": "nan_loss", "rung.rung": "lower_lr",
    }  # fmt: skip
    link = f"http://127.0.0.1:5000/#/experiments/0/runs/{RUN}"
    assert [attempt["links"] for attempt in history["attempts"]] == [
        [f"https://wandb.ai/me/p/runs/r{number}", link] for number in (1, 2, 3)
    ]
    text = lab.rung("history", "a-1")
    assert "tracked     https://wandb.ai/me/p/runs/r3\n" in text and "hidden" not in text


def test_off_leaves_the_trackers_alone(lab: Lab) -> None:
    history, told = run(lab, trackers="off")
    assert told == [["None"] * 4] * 3
    assert [attempt["links"] for attempt in history["attempts"]] == [[], [], []]
