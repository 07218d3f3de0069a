"""Tests decide: the right rung first, rungs that cannot help skipped with a reason, rungs that did not help undone."""

from __future__ import annotations

import pytest

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


def test_not_learning_is_treated_as_the_first_fault_and_resumes_before_it():
    job = a_job()
    one = an_attempt(1, job.knobs, a_fault(F.NAN_LOSS, 100))
    two = carried_out(2, decide(job, [one], [], None), a_fault(F.NOT_LEARNING, 800, onset=100))
    checkpoints = [a_checkpoint(90, written_at=110.0), a_checkpoint(700, written_at=230.0)]
    decision = decide(job, [one, two], checkpoints, None)
    assert isinstance(decision, Relaunch) and decision.rung is RungName.LOWER_LR
    assert decision.knobs.clip == 5.0
    assert decision.checkpoint == checkpoints[0]


def test_a_script_without_a_word_for_native_fp16_does_not_get_it():
    words = {"amp_fp16": "float16", "fp32": "float32"}
    job = a_job(run="python train.py {precision}", knobs={"mode": "flags", "precision_text": words})
    decision = decide(job, [an_attempt(1, job.knobs, a_fault(F.UNSCALE_ERROR))], [], None)
    assert isinstance(decision, Relaunch) and decision.rung is RungName.FP32
    assert dict(decision.skipped)["native_fp16"].endswith("knobs.precision_text has no name for it")


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
