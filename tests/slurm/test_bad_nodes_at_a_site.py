"""Tests a node where a job dies of its GPU: its next attempt goes elsewhere, and `rung hosts` shows it."""

from __future__ import annotations

import pytest

from rung.jobs.model.state import JobState
from tests.slurm.cluster import NODES
from tests.slurm.site import SiteLab

# The GPU of the first node is broken, whichever it is.
DIES_ONCE = """
echo step 1 loss 0.5
if [ "$RUNG_ATTEMPT" = 1 ]; then echo "RuntimeError: CUDA error: uncorrectable ECC error encountered"; exit 1; fi
echo step 2 loss 0.4
"""


@pytest.mark.long
def test_a_node_where_a_job_dies_of_its_gpu_is_excluded_for_that_job_and_shown(lab: SiteLab) -> None:
    job = lab.submit("dies", run=["sh", "-c", DIES_ONCE], resources={})
    lab.control()
    assert lab.ended(job).state is JobState.SUCCEEDED, lab.job(job).reason
    first, second = lab.attempts(job)
    assert first.fault is not None and first.fault.kind == "cuda_fault" and second.rung is None
    assert first.node and second.node and first.node != second.node
    shown = " ".join(lab.rung("hosts").split())
    assert f"{first.node} of lab is avoided after cuda_fault: by {job} until" in shown, shown
    # It is excluded for this job alone: another one may still get it.
    (kind,) = (node.gpu for node in NODES if node.name == first.node)
    words = ["sh", "-c", "echo step 1 loss 0.5"]
    other = lab.submit("other", run=words, resources={"gpu": [f"{kind.upper()}:1"]})
    assert lab.ended(other).state is JobState.SUCCEEDED, lab.job(other).reason
    assert lab.attempts(other)[0].node == first.node
