"""Tests with real processes that jobs leave a GPU where they die, and use it again when a person has cleared it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.flow.conftest import Lab
from tests.support.stand_in_gpus import stand_in_gpus

ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
# Dies on the first GPU as long as nobody has repaired it.
TRAINING = f"""
echo "$RUNG_JOB $CUDA_VISIBLE_DEVICES" >> notes
echo step 1 loss 0.5
case $CUDA_VISIBLE_DEVICES in *0) if [ ! -e repaired ]; then echo "{ECC}" >&2; exit 1; fi ;; esac
while [ ! -e go ]; do sleep 0.02; done
"""


def test_a_job_leaves_the_gpu_where_it_died_and_after_two_jobs_nobody_gets_it(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]
) -> None:
    monkeypatch.setenv("PATH", f"{lab.folder}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("RUNG_HOSTS", str(lab.folder / "hosts.yml"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (lab.folder / "hosts.yml").write_text("all:\n  hosts: {}\n", encoding="utf-8")
    gpus = stand_in_gpus(lab.folder / "bin", 2)
    spec = {"run": ["sh", "-c", TRAINING], "resources": {"gpu": "TITANRTX"}}

    def submit(name: str) -> str:
        file = lab.folder / f"{name}.yaml"
        file.write_text(json.dumps({"name": name, **spec}), encoding="utf-8")
        return lab.submit(file)

    first = submit("first")
    controller = lab.controller()
    try:
        # It moves to the second GPU, so that the next job gets the first one.
        wait_until(lambda: len(lab.history(first)["attempts"]) == 2)
        second = submit("second")
        waits = "waits for a TITANRTX: localhost's TITANRTX 0 is set aside until "
        wait_until(lambda: lab.row(second)["reason"].startswith(waits))
        assert lab.row(second)["state"] == "RECOVERING"
        assert f"localhost's TITANRTX 1 is in use by {first}" in lab.row(second)["reason"]
    finally:
        controller.kill()
        controller.wait()
    assert "localhost's TITANRTX 0 is set aside until " in lab.rung("hosts")
    (lab.folder / "repaired").touch()
    (lab.folder / "go").touch()
    assert "another chance" in lab.rung("hosts", "--clear", "localhost")
    controller = lab.controller()
    try:
        wait_until(lambda: {lab.row(job)["state"] for job in (first, second)} == {"SUCCEEDED"})
    finally:
        controller.kill()
        controller.wait()
    used = [[gpu["uuid"] for gpu in each["gpus"]] for each in lab.history(first)["attempts"]]
    assert used == [[gpus[0]], [gpus[1]]]
    moved = lab.history(first)["attempts"][1]["because"]
    assert moved.endswith("; on localhost's TITANRTX 1, not where it had the fault")
    notes = (lab.folder / "notes").read_text(encoding="utf-8").splitlines()
    assert sorted(notes) == sorted([f"{first} {gpus[0]}", f"{first} {gpus[1]}", *[f"{second} {gpus[0]}"] * 2])
    assert "set aside" not in lab.rung("hosts")
