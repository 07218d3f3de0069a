"""Tests that an exception that a script logs before it exits with 0 is no success, unless the training went on."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from rung.jobs.job import Job
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.recovery.logs.progress import Progress
from rung.runner.controller.log_watch import LogWatch, fault_at_end, no_update
from rung.runner.seams.engine import Observation, Presence
from tests.corpus.collection import HERE
from tests.recovery.detect.watched_log import steps, watch

CLEAN = Observation(Presence.ENDED, exit_code=0)
OVERFLOW = "value cannot be converted to type c10::Half without overflow"
TRACE = """ERROR:root:step 60 failed
Traceback (most recent call last):
  File "/w/train.py", line 31, in <module>
    scores = scores.masked_fill(mask, -1e9)
"""
LOSSES = "".join(f"step {n} loss {4 - n / 50:.3f}\n" for n in range(60))
BAR = " 30%|###       | 60/200 [00:01<00:02, 50.0it/s, loss=2.84]\n"


def ended_by(tmp_path, log: str) -> Fault | None:
    (tmp_path / "log").write_text(log)
    watch = LogWatch(tmp_path / "log", Job("a-1", JobSpec(name="a", run=("x",)), JobState.RUNNING, "", 0, 0, Knobs()))
    watch.read_to_end()
    return fault_at_end(CLEAN, watch)


@pytest.mark.parametrize("more", ["", "training failed, see above\n", "saved emergency.pt\n", steps([2.8], 59)])
def test_a_logged_overflow_that_ended_the_training_is_a_fault_whatever_the_exit_code(tmp_path, more: str) -> None:
    log = f"{LOSSES}{TRACE}RuntimeError: {OVERFLOW}\n{more}"
    fault = ended_by(tmp_path, log)
    assert fault is not None
    assert (fault.kind, fault.evidence, fault.step) == (FaultKind.FP16_OVERFLOW, f"RuntimeError: {OVERFLOW}", 60)
    assert fault.source == "train.py:31: scores = scores.masked_fill(mask, -1e9)"
    # `rung explain` names the same one.
    assert watch(log)[0].first_fault(ended=True) == replace(fault, note="")


def test_the_exception_that_logging_prints_is_read(tmp_path, caplog) -> None:
    try:
        raise RuntimeError(OVERFLOW)
    except RuntimeError:
        logging.getLogger("train").exception("step 60 failed")
    fault = ended_by(tmp_path, f"{LOSSES}{caplog.text}")
    assert fault is not None and fault.kind is FaultKind.FP16_OVERFLOW


@pytest.mark.parametrize(
    "more",
    [
        "step 60 loss 2.9\n",
        "val_loss: 2.5\n",
        "test_acc: 0.91\n",
        "rung| metric val_loss=2.5\n",
        steps([2.8, 2.7, 2.6, 2.5], 60),
    ],
)
@pytest.mark.parametrize("error", [f"RuntimeError: {OVERFLOW}", "KeyError: 'label'"])
def test_an_exception_after_which_the_training_went_on_is_none(tmp_path, error: str, more: str) -> None:
    assert ended_by(tmp_path, f"{LOSSES}{TRACE}{error}\n{more}") is None


@pytest.mark.parametrize("name", ["healthy_exception_was_caught.log", "cuda_out_of_memory_is_caught_and_skipped.log"])
def test_an_exception_that_a_real_script_caught_is_none(tmp_path, name: str) -> None:
    assert ended_by(tmp_path, (HERE / name).read_text()) is None


@pytest.mark.parametrize("error", ["KeyError: 'label'", "AssertionError", "my.own.BadSample: no label"])
def test_an_unknown_exception_that_is_the_last_word_of_an_unfinished_run_is_a_fault(tmp_path, error: str) -> None:
    expected = None if "BadSample" in error else error
    for log in (f"{LOSSES}{TRACE}{error}\n", f"{LOSSES}{TRACE}{error}\n  in sample 7\nrung| note x\n"):
        fault = ended_by(tmp_path, log)
        assert (fault and fault.evidence) == expected
        assert fault is None or fault.kind is FaultKind.UNKNOWN_EXIT


def test_an_unknown_exception_in_the_middle_of_a_bar_is_a_fault_whatever_follows(tmp_path) -> None:
    fault = ended_by(tmp_path, f"{BAR}{TRACE}KeyError: 'label'\n{BAR}stopped\n")
    assert fault is not None and fault.evidence == "KeyError: 'label'"
    assert ended_by(tmp_path, f"{BAR.replace('60/200', '200/200')}{TRACE}KeyError: 'label'\n") is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("val_loss: 1.2\n", ""),
        ("Training complete.\n", ""),
        ("saved model.pt\n", ""),
        ("", "all done\n"),
        ("Exception ignored in: <function Pool.__del__ at 0x7f>\n", ""),
        ("Exception in thread Thread-3 (upload):\n", ""),
    ],
)
def test_an_unknown_exception_at_the_end_of_a_finished_run_is_none(tmp_path, before: str, after: str) -> None:
    trace = TRACE.partition("\n")[2]
    assert ended_by(tmp_path, f"{LOSSES}{before}{trace}ConnectionError: upload failed\n{after}") is None


@pytest.mark.parametrize(
    ("mode", "updates", "is_fault"),
    [
        ("zero-edit", 0, True),
        ("inside", 0, True),
        ("zero-edit", 1, False),
        ("zero-edit", None, False),
        ("flags", 0, False),
    ],
)
def test_a_run_that_made_no_update_is_no_success_where_updates_are_counted(mode, updates, is_fault) -> None:
    assert (no_update(Progress(step=199, updates=updates), mode) is not None) is is_fault
