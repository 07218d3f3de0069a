"""Tests with real processes that jobs leave a GPU where they die, and use it again when a person has cleared it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
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


@pytest.fixture
def gpus(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Give this machine two stand-in GPUs, and an empty list of hosts."""
    monkeypatch.setenv("PATH", f"{lab.folder}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("RUNG_HOSTS", str(lab.folder / "hosts.yml"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (lab.folder / "hosts.yml").write_text("all:\n  hosts: {}\n", encoding="utf-8")
    yield stand_in_gpus(lab.folder / "bin", 2)
    (lab.folder / "go").touch()  # whatever still runs ends


def used(lab: Lab, job: str) -> list[str]:
    """Return the GPU of each attempt of a job."""
    return [gpu["uuid"] for attempt in lab.history(job)["attempts"] for gpu in attempt["gpus"]]


def test_a_job_leaves_the_gpu_where_it_died_and_after_two_jobs_nobody_gets_it(
    lab: Lab, gpus: list[str], wait_until: Callable[..., Any]
) -> None:
    spec = {"run": ["sh", "-c", TRAINING], "resources": {"gpu": "TITANRTX"}}

    def submit(name: str) -> str:
        file = lab.folder / f"{name}.yaml"
        file.write_text(json.dumps({"name": name, **spec}), encoding="utf-8")
        return lab.submit(file)

    first = submit("first")
    controller = lab.controller()
    try:
        # It moves to the second GPU, so that the next job gets the first one.
        wait_until(lambda: len(used(lab, first)) == 2)
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
        wait_until(lambda: len(used(lab, second)) == 2)
    finally:
        controller.kill()
        controller.wait()
    assert (used(lab, first), used(lab, second)) == ([gpus[0], gpus[1]], [gpus[0], gpus[0]])
    moved = lab.history(first)["attempts"][1]["because"]
    assert moved.endswith("; on localhost's TITANRTX 1, not where it had the fault")
    notes = (lab.folder / "notes").read_text(encoding="utf-8").splitlines()
    assert notes[0] == f"{first} {gpus[0]}" and f"{second} {gpus[0]}" in notes
