"""Tests what the faults of a cluster excuse in the evidence, and what they do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.evidence import ENDED_THERE, JobEvidence
from tests.chaos.example import FIRST, LAST, LEDGER, edited, found, job
from tests.chaos.faults import KINDS
from tests.chaos.site_faults import CONTROLLER_FAULTS, SITE_KINDS
from tests.chaos.slurm_jobs import NOT_OF_THE_JOB
from tests.chaos.training import gpus

INFRA = replace(FIRST, fault="infra_fault")


def happened(evidence: JobEvidence, attempt: int, *kinds: str) -> JobEvidence:
    return replace(evidence, injected={**evidence.injected, attempt: frozenset(kinds)})


@pytest.mark.parametrize("kind", ENDED_THERE)
def test_what_ends_a_batch_job_is_a_fault_of_the_machine_and_never_lets_two_run(kind: str) -> None:
    ended = job(LEDGER[:4], (INFRA,), state="FAILED")
    assert found(ended)
    assert found(happened(ended, 1, kind)) == []
    assert "attempt 2 began while attempt 1 still ran" in found(happened(job(edited(6, t=5)), 1, kind))
    # What it printed is in its log all the same, but for the line that it was about to print.
    assert found(happened(job(LEDGER[:4], (replace(INFRA, log=()),), state="FAILED"), 1, kind))


def test_an_attempt_without_a_process_was_ended_there() -> None:
    never = job(LEDGER[:6], (FIRST, replace(LAST, fault="infra_fault", log=(), shown=None)), state="FAILED")
    assert found(never)
    assert found(happened(never, 2, "node_failed")) == []


@pytest.mark.parametrize(
    ("line", "is_of_the_job"),
    [
        (b"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-18T23:41:26 ***\n", False),
        (b"slurmstepd-n1: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-18T23:41:26 DUE TO TIME LIMIT ***\n", False),
        (b"rung: this attempt has been started before; it runs once\n", False),
        (b"step 7/50 loss 0.4\n", True),
        (b"step 7/50 slurmstepd: error: \n", True),
    ],
)
def test_only_lines_of_slurm_and_of_the_wrapper_are_not_of_the_job(line: bytes, is_of_the_job: bool) -> None:
    assert (NOT_OF_THE_JOB.match(line) is None) is is_of_the_job


def test_gpus_of_two_nodes_are_two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert gpus() == "0"
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    assert gpus() == "n1:0"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.delenv("NVIDIA_VISIBLE_DEVICES", raising=False)
    assert gpus() == ""


def test_a_cluster_has_the_faults_of_controllers_and_jobs_too() -> None:
    own = set(SITE_KINDS) - set(KINDS)
    assert set(KINDS) <= set(SITE_KINDS) and set(CONTROLLER_FAULTS) <= own
    page = (Path(__file__).parents[2] / "docs" / "chaos.md").read_text(encoding="utf-8")
    assert "--engine slurm" in page
