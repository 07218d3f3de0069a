"""Tests the choice of the checkpoint: the newest that is verified and older than the fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.knobs import Knobs
from rung.recovery.decide.checkpoint_choice import (
    MIRROR,
    Checkpoint,
    Unseen,
    choose_checkpoint,
    may_have_saved,
    why_wait,
)
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


# Residences that could not be asked

AWAY = Unseen("ampere", "no answer", since="12:03:10", saved=("step_30.pt", "step_10.pt", "step_5.pt", "step_1.pt"))


def test_nothing_there_and_could_not_ask_are_two_answers() -> None:
    assert why_wait([], None, None) is None
    why = why_wait([AWAY], None, None)
    assert why is not None and why.startswith("waits for ampere, unreachable since 12:03:10 (no answer): ")
    assert "(step_30.pt, step_10.pt, step_5.pt and 1 more) cannot be seen, and no healthy copy is kept here" in why


@pytest.mark.parametrize(
    ("unseen", "copy", "waits"),
    [
        (AWAY, None, True),
        (AWAY, a_checkpoint(10), True),
        (replace(AWAY, given_up=True), None, True),
        (replace(AWAY, given_up=True), a_checkpoint(10), False),
        (replace(AWAY, given_up=True, saved=(), may_have=False), None, False),
        (replace(AWAY, saved=(), may_have=False), None, True),
        (replace(AWAY, abandoned=True), None, False),
        (replace(AWAY, abandoned=True), a_checkpoint(10), False),
    ],
)
def test_a_host_is_waited_for_until_it_is_given_up_and_then_only_for_want_of_a_copy(
    unseen: Unseen, copy: Checkpoint | None, waits: bool
) -> None:
    assert (why_wait([unseen], copy, None) is not None) is waits


def test_a_run_that_must_begin_from_scratch_anyway_waits_for_no_lost_host() -> None:
    lost = replace(AWAY, given_up=True)
    assert why_wait([lost], None, 0) is None
    assert choose_checkpoint([lost], [], 0).because == "from scratch: no checkpoint is worth it"


def test_the_reason_names_what_could_not_be_seen() -> None:
    copy = replace(a_checkpoint(10), residence=MIRROR)
    because = choose_checkpoint([replace(AWAY, given_up=True), copy], [], None).because
    assert "a copy that is kept here" in because and "what is on ampere cannot be seen" in because
    nothing = replace(AWAY, given_up=True, saved=(), may_have=False)
    assert "nothing is known to be saved on ampere" in choose_checkpoint([nothing], [], None).because
    assert "a person gave up ampere" in choose_checkpoint([replace(AWAY, abandoned=True)], [], None).because


@pytest.mark.parametrize(
    ("fields", "every", "may"),
    [
        ({}, None, False),
        ({"furthest_step": 9}, None, False),
        ({"furthest_step": 10}, None, True),
        ({"furthest_step": 499}, 500, False),
        ({"furthest_step": 500}, 500, True),
        ({"furthest_step": 5005, "resumed_step": 5000}, None, False),
        ({"furthest_step": 1, "saved": {"step_1.pt": 1}}, None, True),
        ({"progress_at": 5.0}, None, True),
    ],
)
def test_a_run_may_have_saved_unless_its_log_speaks_against_it(
    fields: dict[str, Any], every: int | None, may: bool
) -> None:
    assert may_have_saved([Attempt("a-1", 1, "ampere", Knobs(), None, "", **fields)], every) is may
