"""Tests the quarantine: a checkpoint that is verified but makes attempts fail is not used again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rung.jobs.job import Attempt
from rung.jobs.model.fault import FaultKind
from rung.recovery.decide.checkpoint_choice import choose_checkpoint, estimated_step, recorded_step
from rung.recovery.decide.quarantine import quarantined
from tests.support.jobs_in_trouble import a_checkpoint, a_fault, a_job, an_attempt

KNOBS = a_job().knobs
LOAD = "exit code 1; last line: RuntimeError: PytorchStreamReader failed reading file data/0: invalid header"


def resumed(number: int, kind: FaultKind, step: int | None, **fields: Any) -> Attempt:
    """Return an attempt that resumed from step_90.pt and ended with this fault at this step."""
    evidence = fields.pop("evidence", "as the log had it")
    ended = an_attempt(number, KNOBS, replace(a_fault(kind, step), evidence=evidence), resumed_from="step_90.pt")
    return replace(ended, resumed_step=90, planned_step=90, furthest_step=step)


def test_a_checkpoint_that_could_not_be_loaded_is_quarantined_and_an_older_one_is_chosen():
    tries = [resumed(2, FaultKind.UNKNOWN_EXIT, None, evidence=LOAD)]
    choice = choose_checkpoint([a_checkpoint(80), a_checkpoint(90)], tries, None)
    assert choice.checkpoint == a_checkpoint(80)
    assert "stepped over: step_90.pt is quarantined, attempt 2 could not load it" in choice.because


def test_two_faults_soon_after_a_resume_quarantine_the_checkpoint_and_one_does_not():
    once = [resumed(2, FaultKind.NAN_LOSS, 92)]
    assert choose_checkpoint([a_checkpoint(80), a_checkpoint(90)], once, 92).checkpoint == a_checkpoint(90)
    twice = [*once, resumed(3, FaultKind.GRAD_NONFINITE, 91)]
    choice = choose_checkpoint([a_checkpoint(80), a_checkpoint(90)], twice, 91)
    assert choice.checkpoint == a_checkpoint(80)
    assert "attempts 2 and 3 failed within 5 steps of it" in choice.because


def test_faults_far_from_the_resume_or_of_the_machine_do_not_quarantine_the_checkpoint():
    far = [resumed(n, FaultKind.NAN_LOSS, 99) for n in (2, 3, 4)]
    machine = [resumed(n, FaultKind.INFRA_FAULT, None, evidence="killed; EOFError") for n in (2, 3)]
    late = [resumed(2, FaultKind.UNKNOWN_EXIT, 400, evidence=LOAD)]
    assert quarantined(far) == quarantined(machine) == quarantined(late) == {}


def test_two_exits_before_the_first_step_quarantine_the_checkpoint_with_any_message():
    one, two = (resumed(n, FaultKind.UNKNOWN_EXIT, None, evidence="exit code 1; last line: KeyError") for n in (2, 3))
    assert quarantined([one]) == {}
    assert "step_90.pt" in quarantined([one, two])


def test_a_file_written_again_under_the_same_name_is_not_quarantined():
    tries = [resumed(2, FaultKind.UNKNOWN_EXIT, None, evidence=LOAD)]  # began at 200
    again = a_checkpoint(90, written_at=340.0)
    assert choose_checkpoint([again], tries, None).checkpoint == again
    assert choose_checkpoint([a_checkpoint(90, written_at=150.0)], tries, None).checkpoint is None


def test_a_run_starts_from_scratch_if_its_only_checkpoint_is_quarantined():
    tries = [resumed(2, FaultKind.UNKNOWN_EXIT, None, evidence=LOAD)]
    choice = choose_checkpoint([a_checkpoint(90)], tries, None)
    assert choice.checkpoint is None
    assert choice.because.startswith("from scratch: no healthy checkpoint (stepped over: step_90.pt is quarantined")


def test_a_checkpoint_with_a_class_that_needs_the_allow_list_can_be_chosen():
    found = a_checkpoint(90, "needs_allow_list")
    assert choose_checkpoint([found, a_checkpoint(80)], [], None).checkpoint == found


def test_the_reason_names_a_step_that_is_estimated_from_the_time_of_writing():
    found = replace(a_checkpoint(90, "no_step"), step_from="time")
    assert "estimated from when it was written" in choose_checkpoint([found], [], None).because


def test_the_recorded_step_of_a_file_comes_from_the_attempt_that_wrote_it():
    first = replace(an_attempt(1, KNOBS, None), saved={"last.pt": 70, "out/checkpoint-100/optimizer.pt": 100})
    second = replace(an_attempt(2, KNOBS, None), saved={"last.pt": 130})
    assert recorded_step("last.pt", 120.0, [first, second]) == 70
    assert recorded_step("last.pt", 220.0, [first, second]) == 130
    assert recorded_step("checkpoint-100", 120.0, [first, second]) == 100
    assert recorded_step("other.pt", 220.0, [first, second]) is None


def test_the_estimated_step_at_a_time_is_never_too_low():
    attempt = replace(an_attempt(1, KNOBS, None), first_step=1, progress_at=100.0)  # from 1 to 500, from 100 to 150
    assert [estimated_step(at, [attempt]) for at in (99.0, 100.0, 125.0, 149.9, 500.0)] == [0, 1, 251, 500, 500]
