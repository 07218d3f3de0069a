"""Tests that numbers from inside outrank what the log says in words."""

from __future__ import annotations

import pytest

from rung.jobs.model.fault import FaultKind
from tests.recovery.detect.watched_log import at_end, healthy, kinds, now, steps, watch

WORDS = [
    "nan loss skipped=0",
    "nan loss detected, skipping batch",
    "loss is nan",
    "NaN or Inf found in the gradients",
    "found nan in the loss",
    "loss scale has collapsed",
]
SCALED = {"scale": 1024.0}


def told(words: str, count: int = 40) -> str:
    """Return a log in which every update is finite and followed by the words."""
    return "".join(steps([4 - n / 100], n, **SCALED) + words + "\n" for n in range(count))


@pytest.mark.parametrize("words", WORDS)
def test_words_beside_finite_records_are_no_fault(words: str) -> None:
    log = told(words) + steps([3.5] * 4, 40)
    assert kinds(log) == [] and now(told(words)) is None
    assert watch(log)[0].first_fault(ended=True) is None


@pytest.mark.parametrize("late", ["", steps([3.9], 39)])
@pytest.mark.parametrize("clean", [False, True])
def test_a_script_that_checks_its_loss_and_stops_is_believed(late: str, clean: bool) -> None:
    words = "Loss is nan, stopping training"
    fault = watch(f"{healthy(40)}{words}\n{late}")[0].first_fault(ended=True, clean_exit=clean)
    assert fault is not None and (fault.kind, fault.evidence) == (FaultKind.NAN_LOSS, words)


def test_words_about_one_batch_explain_a_failure_and_no_clean_exit() -> None:
    detector, _ = watch(f"{healthy(40)}nan loss at step 41\n")
    fault = detector.first_fault(ended=True)
    assert fault is not None and fault.kind is FaultKind.NAN_LOSS
    assert detector.first_fault(ended=True, clean_exit=True) is None
    assert watch(f"{healthy(40)}nan loss at step 41\n{steps([3.9], 41)}")[0].first_fault(ended=True) is None


def test_a_script_that_leaves_out_every_batch_is_found_by_its_words() -> None:
    assert now(healthy(40) + "nan loss detected, skipping batch\n" * 63) is None
    assert now(healthy(40) + "nan loss detected, skipping batch\n" * 64) is FaultKind.NAN_LOSS


def test_the_fault_of_words_shows_the_first_of_them() -> None:
    words = "".join(f"nan loss detected, skipping batch {n}\n" for n in range(64))
    fault = watch(healthy(40) + words)[0].first_fault(ended=False)
    assert fault is not None and (fault.line, fault.evidence) == (41, "nan loss detected, skipping batch 0")


def test_words_that_a_finite_loss_has_disproved_are_forgotten() -> None:
    words = "nan loss detected, skipping batch\n"
    found = watch(healthy(40) + words * 40 + healthy(4, 40) + words * 63)[0]
    assert found.first_fault(ended=False) is None
    fault = found.first_fault(ended=True)
    assert fault is not None and fault.line == 85


@pytest.mark.parametrize(
    "error", ["RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.", "ValueError: loss is nan"]
)
def test_an_exception_that_ends_the_run_is_a_fault_beside_finite_records(error: str) -> None:
    trace = 'Traceback (most recent call last):\n  File "x.py", line 3, in <module>\n'
    assert at_end(f"{healthy(40)}{trace}{error}\n") is FaultKind.NAN_LOSS


def test_records_that_are_not_finite_are_still_a_fault() -> None:
    assert now(healthy(40) + steps(["nan", "nan"], 40)) is FaultKind.NAN_LOSS


def test_words_about_the_scale_count_where_the_records_have_none() -> None:
    """DeepSpeed's scaler is not torch's."""
    assert at_end(f"{healthy(40)}Current loss scale already at minimum - cannot decrease scale anymore.\n") is (
        FaultKind.SCALE_COLLAPSE
    )


@pytest.mark.parametrize("words", ["nan loss skipped=0", "inf grads: 0", "nan batches = 0"])
def test_a_count_of_none_is_no_bad_number_without_records_either(words: str) -> None:
    log = "".join(f"step {n} loss {4 - n / 100}\n{words}\n" for n in range(20))
    assert kinds(log) == []
    assert kinds("step 1 loss 4.0\nnan loss at step 0\n") == [FaultKind.NAN_LOSS]
