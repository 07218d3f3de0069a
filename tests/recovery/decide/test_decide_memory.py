"""Tests decide where memory is short: a smaller batch in whole splits, and FP32 that does not fit is not tried."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rung.jobs.model.fault import FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import RungName
from rung.recovery.decide.decide import Relaunch, Stop, decide
from tests.support.jobs_in_trouble import a_fault, a_job, an_attempt, carried_out

F = FaultKind
P100, A100 = Gpu("Tesla P100", (6, 0)), Gpu("NVIDIA A100", (8, 0))
TOO_LARGE = "FP32 as a whole does not fit the GPU's memory: the replay of step 40 "
RAN_OUT = {"step": "40", "weights": "finite", "inputs": "finite", "fp32": "oom"}
FITS_NOT = {**RAN_OUT, "fp32": "finite", "fits": "no", "needs": "30.0GiB", "limit": "24.0GiB"}


@pytest.mark.parametrize(
    ("replay", "reason"),
    [
        (RAN_OUT, f"{TOO_LARGE}ran out of it"),
        (FITS_NOT, f"{TOO_LARGE}shows that it needs 30.0GiB or more of 24.0GiB"),
    ],
)
def test_fp32_is_skipped_where_it_does_not_fit_the_memory(replay, reason):
    job = a_job(recovery={"ladder": ["fp32", "bf16"]})
    fault = a_fault(F.SCALE_COLLAPSE, 40, replay=replay)
    decision = decide(job, [an_attempt(1, job.knobs, fault)], [], A100)
    assert isinstance(decision, Relaunch) and decision.rung is RungName.BF16
    assert decision.skipped == (("fp32", reason),)
    assert decide(job, [an_attempt(1, job.knobs, replace(fault, replay={**FITS_NOT, "fits": "yes"}))], [], P100) == (
        decide(job, [an_attempt(1, job.knobs, replace(fault, replay={**RAN_OUT, "fp32": "finite"}))], [], P100)
    )


def test_a_job_whose_last_rung_is_fp32_ends_with_that_reason():
    job = a_job(recovery={"ladder": ["fp32"]})
    end = decide(job, [an_attempt(1, job.knobs, a_fault(F.SCALE_COLLAPSE, 40, replay=RAN_OUT))], [], A100)
    assert isinstance(end, Stop)
    assert f"no rung is left; {TOO_LARGE}ran out of it. What to do" in end.diagnosis
    assert end.skipped == (("fp32", f"{TOO_LARGE}ran out of it"),)
    without = a_job(recovery={"ladder": ["native_fp16"]})
    end = decide(without, [an_attempt(1, job.knobs, a_fault(F.SCALE_COLLAPSE, 40, replay=RAN_OUT))], [], A100)
    assert isinstance(end, Stop) and "no rung is left. What to do" in end.diagnosis


def test_what_did_not_fit_is_remembered_until_the_gpu_is_larger_or_the_batch_smaller():
    job = a_job(recovery={"ladder": ["raise_clip", "fp32"]}, knobs={"batch": 8})
    small, large = replace(A100, memory=24 * 2**30), replace(A100, memory=80 * 2**30)
    one = an_attempt(1, job.knobs, a_fault(F.NAN_LOSS, 100, replay=RAN_OUT), gpus=(small,))
    two = an_attempt(2, job.knobs.but(clip=1.0), a_fault(F.NAN_LOSS, 100), rung="raise_clip", gpus=(small,))
    assert isinstance(decide(job, [one, two], [], small), Stop)
    elsewhere = decide(job, [one, two], [], large)
    assert isinstance(elsewhere, Relaunch) and elsewhere.rung is RungName.FP32
    halved = decide(job, [replace(one, asked=job.knobs.but(batch=16)), two], [], small)
    assert isinstance(halved, Relaunch) and halved.rung is RungName.FP32


def test_out_of_memory_lowers_the_batch_and_keeps_its_product_with_the_accumulation():
    job = a_job(knobs={"batch": 32})
    decision = decide(job, [an_attempt(1, job.knobs, a_fault(F.OOM))], [], None)
    assert isinstance(decision, Relaunch) and decision.rung is RungName.LOWER_BATCH
    assert (decision.knobs.batch, decision.knobs.accumulation) == (16, 2)
    assert "lower_batch (batch 32 -> 16, accumulation not set -> 2)" in decision.because
    stuck = decide(a_job(), [an_attempt(1, a_job().knobs, a_fault(F.OOM))], [], None)
    assert isinstance(stuck, Stop) and "knobs.batch" in stuck.diagnosis


@pytest.mark.parametrize(
    ("knobs", "batches"),
    [
        ({"batch": 32}, [16, 8, 4, 2, 1]),
        ({"batch": 24}, [12, 8, 6, 3, 1]),
        ({"batch": 12, "accumulation": 2}, [8, 6, 4, 2, 1]),
        ({"batch": 9}, [3, 1]),
        ({"batch": 720}, [360, 240, 180, 90, 45, 20, 10]),
    ],
)
def test_out_of_memory_again_takes_the_next_split_and_keeps_the_smaller_batch(knobs, batches):
    job = a_job(knobs=knobs)
    total = knobs["batch"] * knobs.get("accumulation", 1)
    attempts = [an_attempt(1, job.knobs, a_fault(F.OOM, None))]
    for wanted in batches:
        decision = decide(job, attempts, [], None)
        assert isinstance(decision, Relaunch) and decision.knobs.batch == wanted and not decision.undone
        assert decision.knobs.batch * decision.knobs.accumulation == total
        attempts.append(carried_out(len(attempts) + 1, decision, a_fault(F.OOM, None)))
    assert isinstance(decide(job, attempts, [], None), Stop)


NEEDS_20_OF_10 = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 10.00 GiB."


@pytest.mark.parametrize(
    ("knobs", "evidence", "memory", "split"),
    [
        ({"batch": 24}, NEEDS_20_OF_10, None, (8, 3)),
        ({"batch": 24}, "CUDA out of memory.", None, (12, 2)),
        ({"batch": 12, "accumulation": 2}, NEEDS_20_OF_10, None, (4, 6)),
        # The only split there is: it may fit after all, where the share of a sample is not what was asked for.
        ({"batch": 2}, NEEDS_20_OF_10, None, (1, 2)),
        (
            {"batch": 24},
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4294967296 bytes",
            "1g",
            (4, 6),
        ),
        (
            {"batch": 24},
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4294967296 bytes",
            None,
            (12, 2),
        ),
    ],
)
def test_splits_that_cannot_fit_by_the_figures_of_the_message_are_left_out(knobs, evidence, memory, split):
    job = a_job(knobs=knobs, resources={"memory": memory})
    fault = replace(a_fault(F.OOM), evidence=evidence)
    decision = decide(job, [an_attempt(1, job.knobs, fault)], [], None)
    assert isinstance(decision, Relaunch) and (decision.knobs.batch, decision.knobs.accumulation) == split
    assert ("cannot fit" in decision.because) is (split in ((8, 3), (4, 6)))


def test_the_decision_says_which_split_cannot_fit():
    job = a_job(knobs={"batch": 24})
    fault = replace(a_fault(F.OOM), evidence=NEEDS_20_OF_10)
    because = decide(job, [an_attempt(1, job.knobs, fault)], [], None).because
    assert "a batch of 24 needs 20.00 GiB or more of 10.00 GiB, so one of 12 cannot fit" in because
