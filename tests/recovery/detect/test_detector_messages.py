"""Tests the detector on messages and tracebacks: the first cause counts, not its consequences or quoted text."""

import pytest

from rung.jobs.model.fault import FaultKind
from rung.recovery.detect.log_tail import MAX_EVIDENCE, TAIL_LINES
from tests.recovery.detect.watched_log import at_end, healthy, kinds, now, steps, watch

K = FaultKind
TRACEBACK = """\
Traceback (most recent call last):
  File "/opt/train.py", line 12, in <module>
    scaler.step(optimizer)
  File "/opt/torch/amp/grad_scaler.py", line 260, in _unscale_grads_
    raise ValueError("Attempting to unscale FP16 gradients.")
ValueError: Attempting to unscale FP16 gradients.
"""


def test_the_exception_is_the_finding_and_the_source_line_above_it_is_not():
    detector, found = watch(TRACEBACK)
    assert [(fault.kind, fault.line) for fault in found] == [(K.UNSCALE_ERROR, 6)]
    assert detector.first_fault(ended=False).evidence == "ValueError: Attempting to unscale FP16 gradients."


def test_a_traceback_cut_off_in_the_unscaler_explains_only_the_end():
    cut = TRACEBACK[: TRACEBACK.rindex("ValueError")]
    assert kinds(cut) == [K.UNSCALE_ERROR] and now(cut) is None and at_end(cut) is K.UNSCALE_ERROR
    assert kinds(cut + "KeyError: 'label'\n") == []
    assert kinds("MemoryError\n" + cut) == [K.OOM]


def test_source_code_below_a_traceback_frame_is_not_a_message():
    source = "    # RuntimeError: CUDA out of memory\n    oops CUDA out of memory\n"
    for rank in ("", "[rank1]:", "[1,3]<stderr>:", "0: ", "(pid=7, ip=10.0.0.2) "):
        shown = source.replace("    ", f"{rank}    ")
        assert kinds(f'{rank}  File "/opt/train.py", line 7, in main\n{shown}') == []
    assert kinds(source) == [K.OOM]


def test_a_message_in_a_comment_explains_the_end_only_if_nothing_else_does():
    quoted = "# RuntimeError: value cannot be converted to type at::Half without overflow\n"
    assert kinds(quoted) == [K.FP16_OVERFLOW] and now(quoted) is None and at_end(quoted) is K.FP16_OVERFLOW
    assert kinds(quoted + "Killed\n") == [K.OOM]
    assert kinds(quoted + "KeyError: 'label'\nloss: 2.0\n") == [K.FP16_OVERFLOW]
    assert at_end("KeyError: 'label'\n" + quoted) is None
    assert at_end(quoted + healthy(3)) is None
    assert kinds("# output: 20/20 - 2s - loss: nan - accuracy: 0.9\n") == [K.NAN_LOSS]
    assert now("# output: 20/20 - 2s - loss: nan - accuracy: 0.9\n" * 9) is None


def test_tracebacks_of_many_ranks_are_one_fault():
    text = "".join(
        f"[rank{n}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.\n" for n in range(8)
    )
    assert kinds(text) == [K.OOM]


def test_the_first_cause_is_the_fault_and_not_its_consequences():
    chain = "RuntimeError: CUDA error: an illegal memory access was encountered\n" + TRACEBACK
    assert at_end(chain) is now(chain) is K.CUDA_FAULT
    worker = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.\n"
    assert kinds(worker) == [K.INFRA_FAULT] and now(worker) is None
    for text in (worker + "torch.OutOfMemoryError: CUDA out of memory.\n", "MemoryError: x\n" + worker):
        assert kinds(text) == [K.OOM] and at_end(text) is K.OOM


def test_a_caught_error_does_not_stop_the_run_and_is_no_fault_once_the_run_continues():
    caught = "2025-01-01 - WARNING - batch failed: CUDA out of memory. Tried to allocate 4 GiB.\n"
    assert kinds(caught * 4) == [K.OOM] and now(caught) is None and at_end(caught) is K.OOM
    assert at_end(caught + "step 5 loss 2.0\nstep 6 loss 2.0\nstep 7 loss 2.0\n") is None


def test_of_many_errors_the_first_that_names_a_cause_is_acted_on():
    wall = (
        "NVRM: Xid (PCI:0000:01:00): 79, pid=1, GPU has fallen off the bus.\n"
        "[rank1]:[E1 ProcessGroupNCCL.cpp:6] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9\n"
        "[rank1]: torch.distributed.DistBackendError: NCCL error in: /b/x.cpp:1, unhandled cuda error\n"
        "[rank0]: RuntimeError: CUDA error: unspecified launch failure\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "  traceback : Signal 9 (SIGKILL) received by PID 7\n"
        "resource_tracker: There appear to be 6 leaked semaphore objects to clean up at shutdown\nTerminated\n"
    )
    detector, found = watch(wall)
    assert [fault.kind for fault in found] == [K.CUDA_FAULT, K.COMM_FAULT]
    assert detector.first_fault(ended=False) == detector.first_fault(ended=True) == found[0]


def test_a_logged_cause_is_the_fault_and_not_the_exception_after_it():
    text = (
        "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\nRuntimeError: NCCL error in: x.cpp:1, unhandled\n"
    )
    assert now(text.splitlines(keepends=True)[0]) is None
    assert now(text) is at_end(text) is K.CUDA_FAULT


def test_a_cause_replaces_an_earlier_consequence_of_the_same_kind():
    text = "Killed\n# RuntimeError: CUDA error: misaligned address\nMemoryError\nRuntimeError: CUDA error: no\n"
    assert [(fault.kind, fault.line) for fault in watch(text)[1]] == [(K.OOM, 3), (K.CUDA_FAULT, 4)]


def test_the_first_of_chained_exceptions_is_the_cause():
    for link in (
        "During handling of the above exception, another exception occurred:",
        "The above exception was the direct cause of the following exception:",
    ):
        text = (
            f"{TRACEBACK}\n{link}\n\nTraceback (most recent call last):\nRuntimeError: CUDA error: misaligned address\n"
        )
        assert now(text) is at_end(text) is K.UNSCALE_ERROR


def test_ranks_that_fail_together_are_one_fault_with_any_prefix():
    prefixes = ["[rank0]: ", "1: ", "[1,2]<stderr>:", "(pid=3, ip=10.0.0.3) ", "worker-4: ", "[default5]:"]
    lines = [[f"{prefix}{line}" for line in TRACEBACK.splitlines()] for prefix in prefixes]
    text = "".join(f"{line}\n" for ranks in zip(*lines, strict=True) for line in ranks)
    detector, found = watch(text)
    assert [fault.kind for fault in found] == [K.UNSCALE_ERROR]
    assert detector.first_fault(ended=False).line == 5 * len(prefixes) + 1


def test_an_exception_that_names_the_cause_is_the_fault_and_not_one_bad_loss_before_it():
    text = healthy(5) + "rung| step step=5 loss=nan\nRuntimeError: CUDA error: misaligned address\n"
    assert kinds(text) == [K.NAN_LOSS, K.CUDA_FAULT] and at_end(text) is now(text) is K.CUDA_FAULT


def test_a_full_disk_is_a_fault_only_after_the_job_ended():
    text = "OSError: [Errno 28] No space left on device\n"
    assert now(text) is None and at_end(text) is K.INFRA_FAULT


def test_a_message_after_a_progress_bar_without_a_line_end_is_found():
    assert kinds("\r 3/90 [00:01<00:30, 2.9it/s, loss=2.0]RuntimeError: CUDA out of memory.\n") == [K.OOM]


def test_evidence_is_cut_but_still_shows_the_message():
    _, found = watch("x" * 3000 + " CUDA out of memory. " + "y" * 3000 + "\n")
    assert len(found[0].evidence) <= MAX_EVIDENCE and "CUDA out of memory" in found[0].evidence


def test_a_consequence_explains_nothing_after_an_exception_of_the_script():
    broken = "[rank0]: RuntimeError: [/b/gloo/transport/tcp/pair.cc:5] Connection closed by peer [127.0.0.1]:1\n"
    killed = "  traceback : Signal 9 (SIGKILL) received by PID 7\n"
    own = "[rank1]: ValueError: no such label\n"
    assert watch(broken)[0].first_fault(ended=True).kind is K.COMM_FAULT
    assert watch(broken)[0].first_fault(ended=False) is None
    assert watch(broken + killed)[0].first_fault(ended=True).kind is K.OOM
    assert watch(own + broken + killed)[0].first_fault(ended=True) is None
    # An exception that the run recovered from is not the cause.
    assert watch(own + steps([3.0, 2.0, 1.0]) + broken)[0].first_fault(ended=True).kind is K.COMM_FAULT


def test_an_unknown_exception_is_the_last_line_of_the_tail_even_if_lines_follow():
    text = "step 1 loss 2.0\nKeyError: 'label'\n" + "-" * 20 + "\nSubError: \nKeyError: Caught KeyError in worker 0.\n"
    assert watch(text)[0].tail[-1] == "KeyError: 'label'"
    many = watch("ValueError: x\n" + "line\n" * 50)[0].tail
    assert len(many) == TAIL_LINES and many[-1] == "ValueError: x"


LATE = (
    "ValueError: Input contains NaN.",
    "AssertionError: NaN in the output of head 2",
    "OverflowError: math range error",
)


def test_an_exception_about_numbers_counts_only_in_a_training_that_has_made_steps():
    kinds_of = [at_end("step 1 loss 0.5\nstep 2 loss 0.4\n" + text) for text in LATE]
    assert kinds_of == [K.NAN_LOSS, K.NAN_LOSS, K.DIVERGENCE]
    assert [at_end("reading the data\nlr: 0.1\nrows: 40\n" + text) for text in LATE] == [None] * 3
    # Numbers under unknown names are a training, too, when they come again.
    assert at_end("zeal 0.5\nzeal: 0.4\nzeal: 0.3\n" + LATE[0]) is K.NAN_LOSS


def test_a_path_that_can_no_longer_be_written_is_a_fault_of_the_machine_and_one_of_the_beginning_is_not():
    text = "PermissionError: [Errno 13] Permission denied: '/runs/a/metrics.csv'"
    assert at_end("step 1 loss 0.5\nstep 2 loss 0.4\n" + text) is K.INFRA_FAULT
    assert at_end("reading the data\n" + text) is None


def test_words_about_a_divergence_explain_the_end_although_they_quote_a_loss_and_a_run_that_goes_on_got_past_it():
    losses = "".join(f"step {n} loss 0.5\n" for n in range(9))
    words = "CRITICAL loss 8.2e+05 exceeds the limit of 1e4, run diverged\n"
    assert at_end(losses + words) is K.DIVERGENCE and now(losses + words) is None
    assert at_end(losses + words + losses) is None
    assert at_end(losses + 4 * words) is K.DIVERGENCE


def test_a_loader_that_times_out_is_a_fault_of_the_machine_unless_its_worker_said_why():
    text = "RuntimeError: DataLoader timed out after 120 seconds\n"
    assert at_end(text) is K.INFRA_FAULT
    assert at_end("MemoryError\n" + text) is K.OOM


def test_words_about_bad_gradients_are_over_after_many_finite_losses_in_a_log_without_norms():
    words, finite = "The gradient norm is nan, the update is left out\n", [f"step {n} loss 0.5\n" for n in range(1, 40)]
    assert at_end("".join(finite[:5]) + words + "".join(finite[5:15])) is K.GRAD_NONFINITE
    assert at_end("".join(finite[:5]) + words + "".join(finite[5:])) is None


def test_bad_gradients_that_a_back_off_tells_of_are_explained_by_it():
    losses = "".join(f"step {n} loss 0.5\n" for n in range(3))
    assert at_end(losses + "inf grads, update skipped, scale: 4096.0 -> 2048.0\n" + losses) is None


def test_the_loss_of_step_0_is_the_first_that_a_blow_up_is_compared_with():
    losses = [3.6, 2e5, 4e4, 3e4, 1e4, 9e3, 1.1e4, 1e4, 1e4, 3e4, 2e4, 1.7e4, 1.4e4, 1.2e4, 1.5e4, 5e3, 5e3]
    assert at_end("".join(f"iter {10 * n}: loss {loss}\n" for n, loss in enumerate(losses))) is K.DIVERGENCE


def test_an_exception_behind_a_line_of_another_stream_is_seen():
    head = 'Traceback (most recent call last):\n  File "/opt/train.py", line 4, in <module>\n'
    assert at_end(head + "    fit(options)RuntimeError: [!] NaN loss with mel_loss.\n\n" + head) is K.NAN_LOSS
    assert at_end(head + "    raise RuntimeError: NaN loss with mel_loss\n") is None


def test_an_assertion_of_the_script_about_a_finite_loss_needs_no_message():
    frame = 'Traceback (most recent call last):\n  File "/opt/train.py", line 4, in step\n    assert {}\n'
    guard = frame.format("not torch.isnan(loss).any()")
    assert at_end(guard + "AssertionError\n") is now(guard + "AssertionError\n") is K.NAN_LOSS
    assert at_end(guard + "KeyError: 'label'\n") is None
    for about in ("len(loss) == 4", "not np.isnan(rows).any()"):
        assert at_end(frame.format(about) + "AssertionError\n") is None


def test_an_assertion_of_a_kernel_confirms_the_nan_before_it_and_nothing_else():
    raised = "RuntimeError: CUDA error: device-side assert triggered\n"
    failed = "Loss.cu:115: operator(): block: [0,0,0] Assertion `input_val >= zero && input_val <= one` failed.\n"
    good, bad = "".join(f"step {step} loss 0.5\n" for step in range(40)), "step 40 loss nan\n"
    for message in (raised, failed, failed + raised):
        assert at_end(good + bad + message) is K.NAN_LOSS
        assert at_end(good + message) is K.CUDA_FAULT
        assert at_end(good + bad + "step 41 loss 0.5\n" * 5 + message) is K.CUDA_FAULT
    assert now(good + bad + raised) is K.NAN_LOSS
    # Another fault of the GPU says nothing about the numbers.
    assert at_end(good + bad + "RuntimeError: CUDA error: an illegal memory access was encountered\n") is K.CUDA_FAULT


@pytest.mark.parametrize(
    "words",
    [
        "WARNING: NaN in model output, returning zeros",
        "Warning: NaN detected at step 80",
        "Invalid loss at batch 51, skipping it",
        "检测到 NaN, 跳过此 batch",
        "numpy.linalg.LinAlgError: SVD did not converge",
    ],
)
def test_words_of_a_guard_count_at_the_end_of_a_training_and_not_in_one_that_goes_on(words):
    steps = "".join(f"step {n} loss {3 - n / 10:.2f}\n" for n in range(1, 9))
    ended, _ = watch(f"{steps}{words}\n".encode())
    assert ended.first_fault(ended=True).kind == "nan_loss"
    goes_on, _ = watch(f"{steps}{words}\n{steps.replace('step ', 'step 1')}".encode())
    assert goes_on.first_fault(ended=True) is None


def test_words_about_nan_before_the_first_step_are_about_data():
    detector, _ = watch(b"Warning: NaN detected at row 80\nfound NaN, filling it with zeros\nNaN encountered\n")
    assert detector.first_fault(ended=True) is None


@pytest.mark.parametrize("losses", [[2.9, 2.5, 2.7, 9.3, 88.0, 4120.0, 310200.0], [0.4, 0.3, 0.5, 11.0, 260.0]])
def test_a_loss_that_rises_three_times_in_a_row_to_a_hundred_times_its_first_value_is_a_divergence(losses):
    def kind(values):
        lines = "".join(f"step {n} loss {value}\n" for n, value in enumerate(values, 1))
        fault = watch(lines.encode())[0].first_fault(ended=True)
        return fault and fault.kind

    assert kind(losses) == "divergence"
    assert kind([*losses, losses[0]]) is None
    assert kind(losses[1:3] + losses[-1:]) is None
