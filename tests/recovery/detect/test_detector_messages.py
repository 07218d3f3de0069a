"""Tests the detector on messages and tracebacks: the first cause counts, not its consequences or quoted text."""

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
