"""Tests the choice of the checkpoint: the newest that is verified and older than the fault."""

from __future__ import annotations

from dataclasses import replace

from rung.jobs.model.fault import FaultKind
from rung.recovery.decide.checkpoint_choice import choose_checkpoint
from tests.support.jobs_in_trouble import a_checkpoint, a_fault, a_job, an_attempt


def test_the_newest_healthy_checkpoint_before_the_fault_is_chosen():
    choice = choose_checkpoint([a_checkpoint(100), a_checkpoint(300), a_checkpoint(200)], [], 300)
    assert choice.checkpoint == a_checkpoint(200)
    assert choice.because == "step_200.pt is verified and older than step 300"


def test_bad_checkpoints_are_skipped_and_named():
    files = [a_checkpoint(100), a_checkpoint(200, "poisoned"), a_checkpoint(300, "truncated")]
    choice = choose_checkpoint(files, [], None)
    assert choice.checkpoint == files[0]
    assert "stepped over: step_300.pt is truncated, step_200.pt is poisoned" in choice.because


def test_an_unverified_checkpoint_is_never_chosen():
    choice = choose_checkpoint([a_checkpoint(100, None)], [], None)
    assert choice.checkpoint is None and "step_100.pt is unverified" in choice.because


def test_the_reason_that_a_checkpoint_could_not_be_verified_is_given():
    found = replace(a_checkpoint(100, "unverified"), detail="python3 has no torch")
    choice = choose_checkpoint([found], [], None)
    assert choice.checkpoint is None and "step_100.pt is unverified, python3 has no torch" in choice.because


def test_a_checkpoint_that_would_run_code_is_never_chosen_and_the_history_says_what_it_would_run():
    found = replace(a_checkpoint(100, "refused"), detail="would run os.system when loaded")
    choice = choose_checkpoint([a_checkpoint(50), found], [], None)
    assert choice.checkpoint == a_checkpoint(50)
    assert "step_100.pt is refused, would run os.system when loaded" in choice.because


def test_a_start_from_scratch_has_a_reason():
    assert choose_checkpoint([], [], 10).because == "from scratch: the job has written no checkpoint"
    assert choose_checkpoint([a_checkpoint(10)], [], 10).because == "from scratch: no checkpoint is older than step 10"


def test_a_checkpoint_written_after_the_onset_of_a_fault_is_not_used_by_later_attempts():
    knobs = a_job().knobs
    failed = an_attempt(1, knobs, a_fault(FaultKind.NAN_LOSS, step=120, onset=90))
    lost = an_attempt(2, knobs, a_fault(FaultKind.INFRA_FAULT, step=95))
    bad = a_checkpoint(100, written_at=140.0)
    good = a_checkpoint(80, written_at=130.0)
    assert choose_checkpoint([good, bad], [failed, lost], None).checkpoint == good
    rewritten = a_checkpoint(100, written_at=220.0)
    assert choose_checkpoint([good, rewritten], [failed, lost], None).checkpoint == rewritten
