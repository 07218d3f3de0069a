"""Tests jobs of two ranks at a real Slurm, on two nodes and on two GPUs of one: a fault is seen and cured once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm.site import SiteLab

SCRIPT = Path(__file__).parents[1] / "flow" / "trainings" / "two_ranks.py"


def faults(lab: SiteLab, job: str) -> list[int]:
    """Return the attempt of each fault in the events of a job."""
    events = lab.store(lambda store: store.events(job))
    return [each.attempt for each in events if each.kind == "fault"]


@pytest.mark.long
@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.sample)])
def test_an_exception_on_one_of_two_nodes_of_a_script_with_flags(lab: SiteLab, rank: int) -> None:
    run = f"python train.py --by-hand --flaw mask --bad-rank {rank} --precision {{precision}}"
    job, (first, second) = lab.run(
        "nodes",
        SCRIPT,
        run=f"{run} --dir {{checkpoint_dir}} --resume {{checkpoint}}",
        ranks=1,
        resources={"nodes": 2},
        recovery={"ladder": ["fp32"], "trials": "off"},
    )
    assert first.fault is not None and first.fault.kind == "fp16_overflow"
    assert first.fault.evidence.startswith(f"[rank{rank}]: RuntimeError: value cannot be converted"), first.fault
    assert faults(lab, job) == [1]
    assert (second.rung, second.resumed_step, second.furthest_step) == ("fp32", 10, 24)
    assert second.node is not None and len(second.node.split(",")) == 2
    lines = lab.log(job, 2).splitlines()
    for each in (0, 1):
        steps = [line.partition(" loss=")[0] for line in lines if line.startswith(f"[rank{each}]: step=")]
        assert steps == [f"[rank{each}]: step={step}" for step in range(11, 25)]


@pytest.mark.long
@pytest.mark.parametrize("rank", [0, 1])
def test_a_bad_number_in_one_rank_of_a_script_that_nobody_edited(lab: SiteLab, rank: int) -> None:
    job, (first, second) = lab.run(
        "gpus",
        SCRIPT,
        run=f"python train.py --flaw range --bad-rank {rank}",
        ranks="gpus",
        resources={"gpu": ["A100:2"], "memory": "2g"},
        knobs={"mode": "zero-edit"},
        checkpoint={"by": "rung", "every": 5},
        recovery={"trials": "off"},
    )
    assert first.fault is not None and first.fault.kind == "nan_loss"
    assert first.fault.replay.get("rank", "0") == str(rank)
    assert faults(lab, job) == [1]
    assert second.rung == "fp32_modules" and (second.resumed_step, second.furthest_step) == (10, 24)
    for each in (0, 1):
        assert lab.log(job, 2).count(f"[rank{each}]: step=14 loss=") == 1


@pytest.mark.long
def test_a_bad_number_on_the_second_node_of_a_script_that_nobody_edited(lab: SiteLab) -> None:
    job, (first, second) = lab.run(
        "two-nodes",
        SCRIPT,
        run="python train.py --flaw range --bad-rank 1",
        ranks=1,
        resources={"nodes": 2, "memory": "2g"},
        knobs={"mode": "zero-edit"},
        checkpoint={"by": "rung", "every": 5},
        recovery={"trials": "off"},
    )
    assert first.fault is not None and first.fault.kind == "nan_loss" and first.fault.replay["rank"] == "1"
    assert faults(lab, job) == [1]
    assert second.rung == "fp32_modules" and (second.resumed_step, second.furthest_step) == (10, 24)
    assert second.node is not None and len(second.node.split(",")) == 2
    for rank in (0, 1):
        assert lab.log(job, 2).count(f"[rank{rank}]: step=14 loss=") == 1
