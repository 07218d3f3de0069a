"""Tests jobs of two ranks under torchrun (gloo): a fault in either rank is seen once, and cured once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.flow.conftest import Lab
from tests.support.stand_in_gpus import stand_in_gpus

SCRIPT = Path(__file__).parent / "trainings" / "two_ranks.py"
RANK = [pytest.param(rank, marks=pytest.mark.long) for rank in (0, 1)]


def seen(history: dict[str, Any]) -> list[tuple[int, str]]:
    """Return the attempt and kind of each fault in the events of a job."""
    return [(each["attempt"], each["data"]["kind"]) for each in history["events"] if each["kind"] == "fault"]


@pytest.mark.parametrize("rank", RANK)
def test_an_exception_in_one_rank_of_a_script_with_flags(lab: Lab, rank: int) -> None:
    run = f"python {SCRIPT.name} --by-hand --flaw mask --bad-rank {rank} --precision {{precision}}"
    spec = {"name": "flags", "run": f"{run} --dir {{checkpoint_dir}} --resume {{checkpoint}}", "ranks": 2}
    spec |= {"recovery": {"ladder": ["fp32"], "trials": "off"}}
    history = lab.run(lab.write(spec, SCRIPT))
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    first, second = history["attempts"]
    assert first["fault"]["kind"] == "fp16_overflow"
    assert first["fault"]["evidence"].startswith(f"[rank{rank}]: RuntimeError: value cannot be converted"), first
    assert seen(history) == [(1, "fp16_overflow")]
    assert (second["rung"], second["resumed_step"], second["furthest_step"]) == ("fp32", 10, 24)
    # What both ranks print is in the one log, in whole lines; the curve is that of the first.
    lines = lab.log(history["job"]["id"], 2).splitlines()
    for each in (0, 1):
        steps = [line.partition(" loss=")[0] for line in lines if line.startswith(f"[rank{each}]: step=")]
        assert steps == [f"[rank{each}]: step={step}" for step in range(11, 25)]


@pytest.mark.parametrize("rank", RANK)
def test_a_bad_number_in_one_rank_of_a_script_that_nobody_edited(
    lab: Lab, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As many ranks as GPUs are leased; the training itself does not use them.
    monkeypatch.setenv("PATH", f"{lab.folder}/bin:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    stand_in_gpus(lab.folder / "bin", 2, card="40960, 580.95.05, 8.0, NVIDIA A100-SXM4-40GB")
    spec = {"name": "unedited", "run": f"python {SCRIPT.name} --flaw range --bad-rank {rank}"}
    spec |= {"ranks": "gpus", "resources": {"gpu": "A100:2"}, "knobs": {"mode": "zero-edit"}}
    spec |= {"checkpoint": {"by": "rung", "every": 5}, "recovery": {"trials": "off"}}
    history = lab.run(lab.write(spec, SCRIPT))
    assert history["job"]["state"] == "SUCCEEDED", history["job"]["reason"]
    first, second = history["attempts"]
    assert first["fault"]["kind"] == "nan_loss" and seen(history) == [(1, "nan_loss")]
    # The rank with the sample knows what it was; in the other one only the weights are bad, an update later.
    assert first["fault"]["replay"]["where"] == "head" and first["fault"]["replay"].get("rank", "0") == str(rank)
    assert second["rung"] == "fp32_modules"
    assert second["asked"]["fp32_modules"] == second["effective"]["fp32_modules"] == "head"
    # The first rank saved, and both went on from there.
    assert (second["resumed_from"], second["resumed_step"]) == ("rung-step-10.pt", 10)
    assert (second["first_step"], second["furthest_step"]) == (11, 24)
    log = lab.log(history["job"]["id"], 2)
    assert log.count("rung| knobs ") == 1 and log.count("rung| resumed ") == 1
    assert log.count("rung| saved step=15 ") == 1
