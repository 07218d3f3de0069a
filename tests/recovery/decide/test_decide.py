"""Tests decide: the right rung first, rungs that cannot help skipped with a reason, rungs that did not help undone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Precision, RungName
from rung.recovery.decide.decide import Relaunch, Stop, decide
from rung.recovery.decide.diagnose import LONG_PROGRESS
from tests.support.jobs_in_trouble import a_checkpoint, a_fault, a_job, an_attempt, carried_out

F = FaultKind
P100, A100 = Gpu("Tesla P100", (6, 0)), Gpu("NVIDIA A100", (8, 0))


def first_rung(kind: FaultKind, step: int = 100, gpu: Gpu | None = None, shape: str | None = None) -> RungName | None:
    job = a_job()
    fault = a_fault(kind, step, shape=shape)
    decision = decide(job, [an_attempt(1, job.knobs, fault)], [], gpu)
    assert isinstance(decision, Relaunch)
    return decision.rung


@pytest.mark.parametrize(
    ("kind", "step", "shape", "rung"),
    [
        (F.NAN_LOSS, 100, None, "raise_clip"),
        (F.NAN_LOSS, 100, "spike", "raise_clip"),
        (F.NAN_LOSS, 100, "drift", "lower_lr"),
        (F.DIVERGENCE, 100, None, "raise_clip"),
        (F.FP16_OVERFLOW, 100, None, "clamp_constants"),
        (F.FP16_OVERFLOW, LONG_PROGRESS, None, "raise_clip"),
        (F.UNSCALE_ERROR, 0, None, "native_fp16"),
        (F.SCALE_COLLAPSE, 40, None, "bf16"),
        (F.SCALE_COLLAPSE, 5000, None, "raise_clip"),
        (F.SCALE_THRASH, 500, None, "increase_growth_interval"),
    ],
)
def test_the_fault_decides_the_first_rung(kind, step, shape, rung):
    job = a_job(knobs={"growth_interval": 1})
    decision = decide(job, [an_attempt(1, job.knobs, a_fault(kind, step, shape=shape))], [], None)
    assert isinstance(decision, Relaunch) and decision.rung == rung


def test_a_gpu_without_tensor_cores_goes_to_fp32_early():
    assert first_rung(F.FP16_OVERFLOW, gpu=P100) is RungName.FP32
    assert first_rung(F.FP16_OVERFLOW, gpu=A100) is RungName.CLAMP_CONSTANTS


@pytest.mark.parametrize(
    ("gpu", "asked", "change"),
    [
        (A100, "tf32", "precision amp_fp16 -> fp32, matmuls in TF32)"),
        (A100, "strict", "precision amp_fp16 -> fp32, matmuls strictly in FP32)"),
        (P100, "tf32", "precision amp_fp16 -> fp32)"),
        (None, "strict", "precision amp_fp16 -> fp32)"),
    ],
)
def test_the_sentence_says_what_matmuls_of_fp32_compute_in(gpu, asked, change):
    job = a_job(recovery={"fp32": asked, "ladder": ["raise_clip", "fp32"]})
    decision = decide(job, [an_attempt(1, job.knobs, a_fault(F.SCALE_COLLAPSE, 40))], [], gpu)
    assert isinstance(decision, Relaunch) and decision.rung is RungName.FP32
    assert change in decision.because


def test_fp32_that_helped_is_kept_where_its_matmuls_are_not_in_tf32():
    job = a_job(recovery={"ladder": ["raise_clip", "fp32"]})
    one = an_attempt(1, job.knobs, a_fault(F.SCALE_COLLAPSE, 40))
    wider = decide(job, [one], [], A100)
    live = {"precision": "fp32", "matmul": "strict"}
    decision = decide(job, [one, carried_out(2, wider, a_fault(F.NAN_LOSS, 900), effective=live)], [], A100)
    assert isinstance(decision, Relaunch) and decision.undone == ()
    assert (decision.knobs.precision, decision.knobs.matmul) == (Precision.FP32, "tf32")


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


def test_rungs_below_the_chosen_one_are_skipped_with_reasons():
    job = a_job()
    decision = decide(job, [an_attempt(1, job.knobs, a_fault(F.UNSCALE_ERROR, 0))], [], None)
    assert isinstance(decision, Relaunch)
    assert [rung for rung, _ in decision.skipped] == ["raise_clip", "lower_lr", "increase_growth_interval"]
    assert all(reason.startswith("cannot cure unscale_error: ") for _, reason in decision.skipped)


def test_a_rung_the_job_cannot_receive_is_skipped_with_that_reason():
    job = a_job(run="python train.py --lr {lr}", knobs={"mode": "flags"})
    decision = decide(job, [an_attempt(1, job.knobs, a_fault(F.NAN_LOSS))], [], None)
    assert isinstance(decision, Relaunch) and decision.rung is RungName.LOWER_LR
    assert "the job cannot receive clip" in dict(decision.skipped)["raise_clip"]


def test_a_fault_at_the_same_step_undoes_the_rung_and_takes_the_next():
    job = a_job()
    one = an_attempt(1, job.knobs, a_fault(F.NAN_LOSS))
    clip = decide(job, [one], [], None)
    two = carried_out(2, clip, a_fault(F.NAN_LOSS))
    lower = decide(job, [one, two], [], None)
    assert isinstance(lower, Relaunch) and lower.rung is RungName.LOWER_LR
    assert lower.knobs == job.knobs.but(lr=1e-4)
    assert lower.undone == (("raise_clip", "made no difference: nan_loss at step 100 in attempt 2"),)
    three = carried_out(3, lower, a_fault(F.NAN_LOSS, 102))
    fp32 = decide(job, [one, two, three], [], None)
    assert isinstance(fp32, Relaunch) and fp32.knobs == job.knobs.but(precision=Precision.FP32)


def test_a_fault_at_a_later_step_keeps_the_rung_and_starts_the_ladder_again():
    job = a_job()
    one = an_attempt(1, job.knobs, a_fault(F.NAN_LOSS))
    two = carried_out(2, decide(job, [one], [], None), a_fault(F.NAN_LOSS, 400))
    decision = decide(job, [one, two], [], None)
    assert isinstance(decision, Relaunch) and decision.rung is RungName.RAISE_CLIP
    assert two.asked.clip == 1.0 and decision.knobs.clip == 0.5 and decision.undone == ()


@pytest.mark.parametrize(("effective", "shown"), [(5.0, "5.0"), (None, "off")])
def test_a_rung_that_did_not_take_is_named_and_not_tried_again(effective, shown):
    job = a_job()
    one = an_attempt(1, job.knobs, a_fault(F.NAN_LOSS))
    clip = decide(job, [one], [], None)
    two = carried_out(2, clip, a_fault(F.NAN_LOSS), effective={"clip": effective})
    decision = decide(job, [one, two], [], None)
    assert isinstance(decision, Relaunch) and decision.rung is RungName.LOWER_LR
    assert decision.undone == (("raise_clip", f"did not take in attempt 2: clip asked 1.0, effective {shown}"),)


def test_a_rung_that_breaks_the_job_is_undone_and_not_tried_again():
    job = a_job()
    one = an_attempt(1, job.knobs, a_fault(F.FP16_OVERFLOW))
    two = carried_out(2, decide(job, [one], [], None), a_fault(F.UNKNOWN_EXIT, None))
    decision = decide(job, [one, two], [], None)
    assert isinstance(decision, Relaunch) and decision.rung is RungName.NATIVE_FP16
    assert decision.undone[0][0] == "clamp_constants"
    three = carried_out(3, decision, a_fault(F.UNKNOWN_EXIT, None))
    decision = decide(job, [one, two, three], [], None)
    assert isinstance(decision, Relaunch) and decision.rung is RungName.FP32
    assert decision.undone[0][0] == "native_fp16"


def test_a_checkpoint_that_cannot_be_loaded_does_not_count_against_the_rung():
    job = a_job()
    found = [a_checkpoint(60), a_checkpoint(80)]
    one = an_attempt(1, job.knobs, a_fault(F.NAN_LOSS))
    clip = decide(job, [one], found, None)
    assert isinstance(clip, Relaunch) and clip.checkpoint == found[1]
    torn = replace(
        a_fault(F.UNKNOWN_EXIT, None), evidence="RuntimeError: PytorchStreamReader failed reading zip archive"
    )
    two = carried_out(2, clip, torn)
    again = decide(job, [one, two], found, None)
    assert isinstance(again, Relaunch) and again.rung is None and again.knobs == clip.knobs
    assert again.checkpoint == found[0]
    three = carried_out(3, again, a_fault(F.NAN_LOSS))
    lower = decide(job, [one, two, three], found, None)
    assert isinstance(lower, Relaunch) and lower.undone[0][0] == "raise_clip" and lower.rung is RungName.LOWER_LR


def test_not_learning_is_treated_as_the_first_fault_and_resumes_before_it():
    job = a_job()
    one = an_attempt(1, job.knobs, a_fault(F.NAN_LOSS, 100))
    two = carried_out(2, decide(job, [one], [], None), a_fault(F.NOT_LEARNING, 800, onset=100))
    checkpoints = [a_checkpoint(90, written_at=110.0), a_checkpoint(700, written_at=230.0)]
    decision = decide(job, [one, two], checkpoints, None)
    assert isinstance(decision, Relaunch) and decision.rung is RungName.LOWER_LR
    assert decision.knobs.clip == 5.0
    assert decision.checkpoint == checkpoints[0]


def test_an_infra_fault_keeps_the_knobs_and_doubles_the_delay():
    job = a_job(recovery={"infra_retries": 3})
    attempts, delays = [an_attempt(1, job.knobs, a_fault(F.INFRA_FAULT))], []
    while isinstance(decision := decide(job, attempts, [], None), Relaunch):
        assert decision.rung is None and decision.knobs == job.knobs
        delays.append(decision.delay)
        attempts.append(carried_out(len(attempts) + 1, decision, a_fault(F.CUDA_FAULT)))
    assert delays == [5.0, 10.0, 20.0]


def test_an_infra_fault_does_not_decide_about_a_rung():
    job = a_job()
    one = an_attempt(1, job.knobs, a_fault(F.NAN_LOSS))
    two = carried_out(2, decide(job, [one], [], None), a_fault(F.INFRA_FAULT, 50))
    again = decide(job, [one, two], [], None)
    assert isinstance(again, Relaunch) and again.knobs.clip == 1.0
    three = carried_out(3, again, a_fault(F.NAN_LOSS, 100))
    decision = decide(job, [one, two, three], [], None)
    assert isinstance(decision, Relaunch) and decision.undone[0][0] == "raise_clip" and decision.knobs.clip == 5.0


def test_an_unknown_exit_is_tried_once_more():
    job = a_job()
    attempts = [an_attempt(1, job.knobs, a_fault(F.UNKNOWN_EXIT, None))]
    again = decide(job, attempts, [], None)
    assert isinstance(again, Relaunch) and again.rung is None and again.knobs == job.knobs
    attempts.append(carried_out(2, again, a_fault(F.UNKNOWN_EXIT, None)))
    assert isinstance(decide(job, attempts, [], None), Stop)
    assert attempts[-1].fault.evidence in decide(job, attempts, [], None).diagnosis


def test_an_unknown_exit_after_progress_is_tried_again_up_to_max_attempts():
    job = a_job(recovery={"max_attempts": 4})
    attempts = [an_attempt(1, job.knobs, a_fault(F.UNKNOWN_EXIT, 100))]
    for step in (5000, 9000, 20_000):
        again = decide(job, attempts, [], None)
        assert isinstance(again, Relaunch) and again.rung is None
        attempts.append(carried_out(len(attempts) + 1, again, a_fault(F.UNKNOWN_EXIT, step)))
    end = decide(job, attempts, [], None)
    assert isinstance(end, Stop) and "4 attempts" in end.diagnosis


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


def test_a_script_without_a_word_for_native_fp16_does_not_get_it():
    words = {"amp_fp16": "float16", "fp32": "float32"}
    job = a_job(run="python train.py {precision}", knobs={"mode": "flags", "precision_text": words})
    decision = decide(job, [an_attempt(1, job.knobs, a_fault(F.UNSCALE_ERROR))], [], None)
    assert isinstance(decision, Relaunch) and decision.rung is RungName.FP32
    assert dict(decision.skipped)["native_fp16"].endswith("knobs.precision_text has no name for it")


def test_an_image_without_kernels_for_the_gpu_stops_at_once():
    job = a_job()
    decision = decide(job, [an_attempt(1, job.knobs, a_fault(F.IMAGE_ARCH))], [], A100)
    assert isinstance(decision, Stop) and "architecture" in decision.diagnosis


def climbed(job, *, steps):
    """Return the decision at the end of a ladder whose attempts fail at these steps."""
    attempts = [an_attempt(1, job.knobs, a_fault(F.NAN_LOSS, steps[0]))]
    for step in steps[1:]:
        decision = decide(job, attempts, [], None)
        assert isinstance(decision, Relaunch)
        attempts.append(carried_out(len(attempts) + 1, decision, a_fault(F.NAN_LOSS, step)))
    return decide(job, attempts, [], None)


def test_nan_in_fp32_at_the_same_step_stops_and_names_the_model_or_the_data():
    end = climbed(a_job(), steps=[100, 100, 100, 100])
    assert isinstance(end, Stop)
    assert "NaN in FP32 too, at step 100" in end.diagnosis and "the model or the data" in end.diagnosis
    assert dict(end.skipped)["native_fp16"].startswith("cannot cure nan_loss")


def test_rungs_that_only_delay_the_fault_are_named_as_such():
    end = climbed(a_job(recovery={"ladder": ["lower_lr"]}), steps=[100, 200, 300, 400])
    assert isinstance(end, Stop)
    assert "every rung only delayed it (steps 100, 200, 300, 400)" in end.diagnosis


def test_max_attempts_stops_the_job_even_with_progress():
    job = a_job(recovery={"max_attempts": 2})
    one = an_attempt(1, job.knobs, a_fault(F.NAN_LOSS))
    two = carried_out(2, decide(job, [one], [], None), a_fault(F.NAN_LOSS, 900))
    end = decide(job, [one, two], [], None)
    assert isinstance(end, Stop) and "2 attempts" in end.diagnosis


def test_the_order_of_a_ladder_in_the_job_file_is_kept_if_there_is_no_diagnosis():
    job = a_job(recovery={"ladder": ["fp32", {"raise_clip": [10.0]}]})
    one = an_attempt(1, job.knobs, a_fault(F.NAN_LOSS))
    fp32 = decide(job, [one], [], None)
    assert isinstance(fp32, Relaunch) and fp32.rung is RungName.FP32
    two = carried_out(2, fp32, a_fault(F.NAN_LOSS))
    clip = decide(job, [one, two], [], None)
    assert isinstance(clip, Relaunch) and clip.knobs.clip == 10.0


def on_host(number: int, host: str, kind: F = F.INFRA_FAULT, **fields: Any) -> Attempt:
    return replace(an_attempt(number, a_job().knobs, a_fault(kind)), host=host, **fields)


def test_a_job_moves_to_another_host_after_two_faults_on_one_host():
    job = a_job()
    once = decide(job, [on_host(1, "a")], [], None, ["b"])
    assert isinstance(once, Relaunch) and (once.avoid, once.delay) == ((), 5.0)
    assert "another host" not in once.because
    twice = decide(job, [on_host(1, "a"), on_host(2, "a")], [], None, ["b"])
    assert isinstance(twice, Relaunch) and twice.avoid == ("a",)
    assert twice.because.endswith("on another host than a") and twice.knobs == job.knobs


def test_the_decision_names_another_host_only_if_there_is_one():
    attempts = [on_host(1, "a"), on_host(2, "a")]
    alone = decide(a_job(), attempts, [], None, [])
    assert isinstance(alone, Relaunch) and alone.avoid == () and "another host" not in alone.because
    # The other host failed as often, so the job cannot move.
    both = [on_host(1, "b"), on_host(2, "b"), on_host(3, "a"), on_host(4, "a")]
    stuck = decide(a_job(recovery={"infra_retries": 9}), both, [], None, ["b"])
    assert isinstance(stuck, Relaunch) and stuck.avoid == ()


def test_a_job_stays_on_its_new_host_after_one_fault_there():
    decision = decide(a_job(), [on_host(1, "a"), on_host(2, "a"), on_host(3, "b")], [], None, ["a", "c"])
    assert isinstance(decision, Relaunch) and decision.avoid == ()


def test_a_job_leaves_a_lost_host_at_once_after_any_fault():
    lost = decide(a_job(), [on_host(1, "a", host_lost=True)], [], None, ["b"])
    assert isinstance(lost, Relaunch) and (lost.avoid, lost.delay) == (("a",), 0.0)
    assert "again after" not in lost.because and "on another host than a" in lost.because
    climbed = decide(a_job(), [on_host(1, "a", F.NAN_LOSS, host_lost=True)], [], None, ["b"])
    assert isinstance(climbed, Relaunch) and climbed.rung is not None and climbed.avoid == ("a",)
