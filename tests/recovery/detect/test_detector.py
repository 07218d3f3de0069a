"""Tests the detector on numbers: one finding per incident, and no fault for a healthy run."""

import math
import random

from rung.jobs.model.fault import FaultKind
from rung.recovery.detect.log_tail import TAIL_LINES
from rung.recovery.logs.progress import MAX_VALUES
from rung.recovery.monitors.loss_finite import HIDDEN_BY_FREEZE, HIDDEN_BY_ZERO
from tests.recovery.detect.watched_log import at_end, healthy, kinds, now, steps, watch

K = FaultKind


# NaN


def test_a_nan_is_listed_at_once_and_acted_on_if_the_next_loss_is_bad_too():
    first = healthy(20) + "rung| step step=20 loss=nan\n"
    assert kinds(first) == [K.NAN_LOSS] and now(first) is None and at_end(first) is K.NAN_LOSS
    assert now(first + "rung| step step=21 loss=inf\n") is K.NAN_LOSS


def test_one_nan_in_a_healthy_run_is_cleared_by_the_next_loss():
    text = healthy(20) + "rung| step step=20 loss=nan\n" + healthy(1, start=21)
    assert kinds(text) == [K.NAN_LOSS] and at_end(text) is None


def test_a_run_that_goes_on_printing_nan_is_one_finding():
    detector, found = watch("".join(f"iter {n}: loss {'nan' if n > 5 else 2.0}, time 9ms\n" for n in range(400)))
    assert [(fault.kind, fault.line, fault.step) for fault in found] == [(K.NAN_LOSS, 7, 6)]
    assert detector.first_fault(ended=False).evidence == "iter 6: loss nan, time 9ms"


def test_a_finite_loss_of_another_name_does_not_clear_a_nan_at_once():
    text = "step 1 train_loss=nan\nstep 2 aux_loss=1.0\n"
    assert at_end(text) is K.NAN_LOSS
    assert at_end(text + "step 3 aux_loss=1.0\nstep 4 aux_loss=1.0\n") is None


def test_one_exception_about_a_nan_loss_is_enough_to_act():
    assert now("Traceback (most recent call last):\nValueError: Training loss is nan\n") is K.NAN_LOSS


def test_warnings_about_skipped_batches_count_like_nan_losses():
    warning = "[WARNING] NaN loss detected! Skipping batch.\n"
    assert kinds(warning) == [K.NAN_LOSS] and now(warning) is None
    assert now(warning * 2) is K.NAN_LOSS
    assert at_end("step 1 loss 2.0\n" + warning + "step 2 loss 2.0\n" * 3) is None


def test_a_second_loss_of_zero_with_a_nan_gradient_norm_is_a_nan_loss():
    line = "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 0.0001, 'epoch': 0.1}\n"
    assert kinds(line) == [K.GRAD_NONFINITE] and now(line) is None
    assert set(kinds(line * 3)) == {K.NAN_LOSS, K.GRAD_NONFINITE} and now(line * 2) is at_end(line * 2) is K.NAN_LOSS
    fault = watch(line * 2)[0].first_fault(ended=False)
    assert (fault.line, fault.note) == (2, HIDDEN_BY_ZERO)
    assert "logging_nan_inf_filter" in fault.note


def test_a_constant_loss_with_nan_gradient_norms_is_a_nan_loss():
    line = "{'loss': 1.5, 'grad_norm': nan, 'learning_rate': 0.0001, 'epoch': 0.1}\n"
    begun = line.replace("nan", "0.4")
    assert now(begun + line * 2) is None and now(begun * 20) is None
    assert watch(begun + line * 3)[0].first_fault(ended=False).note == HIDDEN_BY_FREEZE
    # While a scaler searches its scale, the weights do not change, and perhaps the loss does not either.
    assert now(line * 63) is None and now(line * 64) is K.GRAD_NONFINITE


# Gradients


def norms(*values):
    return "".join(f"{{'loss': {2 - n / 100}, 'grad_norm': {value}, 'epoch': 0.1}}\n" for n, value in enumerate(values))


def test_nan_gradients_at_the_end_of_a_log_explain_the_end_but_do_not_stop_the_run():
    text = norms(0.4, 0.5, "nan", "nan")
    detector, found = watch(text)
    assert [(fault.kind, fault.line) for fault in found] == [(K.GRAD_NONFINITE, 3)]
    assert detector.first_fault(ended=False) is None and detector.first_fault(ended=True).line == 3


def test_a_clean_exit_after_a_nan_loss_is_a_fault_but_not_after_a_hint_or_a_quotation():
    def spoilt(text):
        return watch(text)[0].first_fault(ended=True, clean_exit=True)

    assert spoilt(norms(0.4, "nan")) is None and spoilt("# RuntimeError: CUDA error: misaligned address\n") is None
    assert spoilt(norms(0.4, *["nan"] * 10)).kind is K.GRAD_NONFINITE
    assert spoilt("step 1 loss nan\n").kind is K.NAN_LOSS


def test_bad_gradients_that_become_finite_again_are_no_fault():
    for text in (
        norms(0.4, "nan", "inf", "nan", 0.5),
        norms("inf"),
        norms("inf", "inf", "inf", 0.4),
        norms(0.3, "inf"),
    ):
        assert kinds(text) == [] and at_end(text) is None


def test_ten_bad_gradients_in_a_row_are_acted_on_and_nine_are_not():
    assert now(norms(0.4, *["nan"] * 9)) is None
    _, found = watch(norms(0.4, *["nan"] * 10, 0.4, 0.4))
    assert [(fault.kind, fault.line) for fault in found] == [(K.GRAD_NONFINITE, 2)]
    assert now(norms(0.4, *["nan"] * 10)) is K.GRAD_NONFINITE
    assert now(norms(0.4, *["inf", "nan"] * 5)) is K.GRAD_NONFINITE


def test_bad_gradients_from_the_first_step_are_acted_on_after_64_of_them():
    assert now(norms(*["nan"] * 63)) is None and now(norms(*["nan"] * 64)) is K.GRAD_NONFINITE
    assert kinds(norms(*["nan"] * 63, 0.4)) == []


def test_bad_gradients_with_a_back_off_or_a_skipped_step_are_no_fault():
    assert kinds("0: Gradient norm: nan\n0: Skipped batch, new scale: 4096.0\n") == []
    assert kinds("".join(f"rung| step step={n} loss=2.0 grad_norm=nan skipped=1\n" for n in range(20))) == []


def test_a_nan_loss_after_bad_gradients_is_one_incident_that_begins_with_them():
    text = "".join(f"rung| step step={n} loss=2.0 grad_norm={'nan' if n > 11 else 0.4}\n" for n in range(14))
    text += "".join(f"rung| step step={n} loss=nan grad_norm=nan\n" for n in range(14, 17))
    detector, found = watch(text)
    assert [fault.kind for fault in found] == [K.NAN_LOSS]
    assert detector.first_fault(ended=True).began == 12


def test_warnings_about_bad_gradients_count_like_norms_and_exceptions_count_at_once():
    warning = "WARNING Non-finite gradient detected (norm=nan), skipping optimizer step\n"
    assert kinds(warning) == [K.GRAD_NONFINITE] and now(warning) is None
    assert now(norms(0.4) + warning * 10) is K.GRAD_NONFINITE
    assert now("RuntimeError: found NaN in local grad norm for bucket #0 in backward pass\n") is K.GRAD_NONFINITE
    assert now("ValueError: NaN gradients at step 4\n") is K.GRAD_NONFINITE


def test_losses_of_zero_do_not_clear_a_nan():
    assert now("step 1 loss nan\nstep 2 loss nan\n" + "step 3 loss 0.0\n" * 9) is K.NAN_LOSS


def test_a_bad_held_out_loss_is_listed_but_is_no_fault_if_the_training_loss_is_finite():
    text = "step 1 loss 2.0\nval_loss=nan\nstep 2 loss 2.0\nval_loss=nan\n"
    assert kinds(text) == [K.NAN_LOSS] and at_end(text) is None
    assert at_end("step 1 loss 2.0\nval_loss=nan\n") is None
    assert at_end("{'eval_loss': nan, 'epoch': 1.0}\n") is K.NAN_LOSS


def test_nan_from_the_first_step_with_every_step_skipped_is_a_scale_collapse_once_the_scale_is_low():
    scales = [65536 / 2**n for n in range(60)]
    lines = [f"rung| step step={n} loss=nan scale={scale!r} skipped=1\n" for n, scale in enumerate(scales)]
    assert now("".join(lines[:10])) is None
    assert at_end("".join(lines[:10])) is K.NAN_LOSS
    assert now("".join(lines)) is K.SCALE_COLLAPSE


def test_a_scale_collapse_is_the_fault_and_not_the_nan_losses_that_come_with_it():
    scales = [65536.0 / 2**step for step in range(200)]
    text = "".join(
        f"rung| step step={step} loss=inf lr=0.01 grad_norm=nan scale={scale!r} skipped=1\n"
        for step, scale in enumerate(scales, start=1)
    )
    assert now(text) is FaultKind.SCALE_COLLAPSE
    assert at_end(text) is FaultKind.SCALE_COLLAPSE


def test_losses_printed_beside_records_explain_only_a_failure():
    text = "rung| step step=1 loss=2.0\nloss: nan\nloss: nan\n"
    assert now(text) is None
    assert watch(text)[0].first_fault(ended=True, clean_exit=True) is None
    assert at_end(text) is FaultKind.NAN_LOSS
    assert at_end(f"{text}rung| step step=2 loss=1.9\n") is None


# Scale


def test_back_offs_from_2_to_the_32_are_no_fault():
    text = "".join(
        f"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {2**n}, reducing to {2 ** (n - 1)}\n"
        for n in range(32, 14, -1)
    )
    assert kinds(text + "step=20, loss=9.5\n") == []


def test_a_collapse_is_seen_in_the_records():
    text = healthy(5) + "".join(f"rung| step step={5 + n} loss=2.0 scale={2.0**-n} skipped=1\n" for n in range(60))
    detector, found = watch(text)
    assert [fault.kind for fault in found] == [K.SCALE_COLLAPSE]
    assert detector.first_fault(ended=False).onset == 6


def test_a_run_that_ends_with_its_scale_below_one_is_found_at_the_end_only():
    text = "".join(
        f"Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {2.0**-n}\n" for n in range(-3, 3)
    )
    assert now(text) is None and at_end(text) is K.SCALE_COLLAPSE and kinds(text) == [K.SCALE_COLLAPSE]


def test_thrash_is_seen_in_the_records():
    text = "".join(
        f"rung| step step={n} loss=2.0 scale={65536 if n % 2 else 32768} skipped={(n + 1) % 2}\n" for n in range(120)
    )
    assert kinds(text) == [K.SCALE_THRASH] and now(text) is K.SCALE_THRASH


# Onset and progress


def test_a_run_that_a_spike_ruined_has_its_onset_at_the_spike():
    chance = random.Random(3)
    losses = [round(2 + chance.gauss(0, 0.05), 4) for _ in range(60)] + [88.0, 70.0, 75.0, math.nan, math.nan]
    fault = watch(steps(losses))[0].first_fault(ended=False)
    assert (fault.step, fault.onset, fault.began, fault.shape) == (63, 60, 60, "spike")


def test_infra_faults_have_no_onset():
    spike = steps([2.0] * 30 + [90.0])
    fault = watch(spike + "OSError: [Errno 28] No space left on device\n")[0].first_fault(ended=True)
    assert (fault.step, fault.onset, fault.shape) == (30, None, None)


def test_progress_holds_the_values_that_the_job_reported():
    text = (
        "rung| knobs lr=0.001 clip=off precision=amp_fp16\nrung| resumed step=500 file=step_500.pt\n"
        + steps([2.0, 1.5], start=501, lr=0.001)
        + "rung| saved step=502 file=step_502.pt\nrung| metric step=502 val_loss=1.9\nrung| knobs lr=0.0005\n"
    )
    progress = watch(text)[0].progress
    assert (progress.step, progress.first_step, progress.furthest_step, progress.loss) == (502, 501, 502, 1.5)
    assert (progress.resumed_step, progress.saved_step) == (500, 502)
    assert progress.effective == {"lr": 0.0005, "clip": None, "precision": "amp_fp16"}
    assert progress.values["val_loss"] == 1.9


def test_progress_is_empty_if_the_job_reported_nothing():
    progress = watch("hello\n")[0].progress
    assert (progress.step, progress.resumed_step, progress.loss, progress.values) == (None, None, None, {})


def test_the_bar_of_an_evaluation_does_not_set_the_step_back():
    text = " 50%|█    | 400/800 [00:10<00:10, 40it/s]\n 10%|█    | 3/30 [00:01<00:09, 3it/s]\n"
    assert watch(text)[0].progress.step == 400


def test_a_loss_without_a_step_belongs_to_the_last_step_seen():
    text = " 50%|█    | 400/800 [00:10<00:10, 4it/s]\n{'loss': nan, 'epoch': 0.5}\n"
    assert watch(text)[1][0].step == 400
    # A fast bar is not drawn at every step, so the loss may belong to a later one.
    assert watch(text.replace("4it/s", "40it/s"))[1][0].step is None


def test_history_holds_the_finite_losses():
    detector, _ = watch(steps([3.0, 2.0, math.nan, 1.0]))
    assert detector.history.between(0, 10) == [3.0, 2.0, 1.0]


def test_the_tail_holds_the_last_lines_and_a_progress_bar_once():
    text = "".join(f"line {n}\n" for n in range(50)) + "\n1/3\r2/3\r3/3\n"
    assert watch(text)[0].tail == [f"line {n}" for n in range(50 - TAIL_LINES + 1, 50)] + ["3/3"]


def test_new_names_without_end_take_bounded_memory():
    detector, _ = watch("".join(f"name_{n}=1.0\n" for n in range(5 * MAX_VALUES)))
    assert len(detector.progress.values) == MAX_VALUES
    assert f"name_{5 * MAX_VALUES - 1}" in detector.progress.values
