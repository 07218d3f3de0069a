"""Tests what trials show about rungs: who won on the same batches and by how much, and which trials show nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rung.jobs.job import Attempt, Outcome, Verdict
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.trial import AS_IT_IS, BEHIND, SURVIVED, Candidate, Trial
from rung.recovery.evidence.read_ledger import read_ledger
from rung.recovery.evidence.rounds import Entry, Round, rounds
from rung.recovery.ledger.row import CPU, Row, WonAgainst
from tests.support.jobs_in_trouble import a_fault, an_attempt

NAN = FaultKind.NAN_LOSS
OWN = Knobs(lr=1e-3, clip=5.0)
CLIP = Candidate("raise_clip", OWN.but(clip=1.0))
LR = Candidate("lower_lr", OWN.but(lr=1e-4), 0.1)
LOWER_LR = Candidate("lower_lr", OWN.but(lr=1e-5), 0.01)
UNCHANGED = Candidate(None, OWN)
FIRST = an_attempt(1, OWN, a_fault(NAN), by_person=True)


def trial(number: int, candidate: Candidate, loss: float, fault: Fault | None = None, **fields: Any) -> Attempt:
    """Return a trial of steps 80 to 200 that is over, with a loss that stays at one level."""
    reached = fields.pop("reached", fault.step if fault else 200)
    readings = tuple((step, loss) for step in range(80, reached + 1))
    verdict, won = fields.pop("verdict", "a fault" if fault else SURVIVED), fields.pop("won", False)
    about = Trial(1, 0, (candidate,), 80, 100, 200, 400, readings=readings, verdict=verdict, won=won)
    made = an_attempt(number, candidate.knobs, fault, rung=candidate.rung, effective=candidate.knobs.to_dict())
    outcome = Outcome.FAULT if fault else Outcome.STOPPED
    return replace(made, **{"trial": about, "outcome": outcome, "furthest_step": reached, **fields})


def only(*trials: Attempt) -> Round:
    (found,) = rounds([FIRST, *trials])
    return found


def entries(*trials: Attempt) -> dict[str, Entry]:
    return {each.rung: each for each in only(*trials).entries}


def test_a_round_shows_who_won_and_how_far_the_others_were_above() -> None:
    found = only(trial(2, CLIP, 1.5), trial(3, LR, 1.0, won=True))
    assert (found.fault, found.gpu) == (NAN, CPU)
    clip, lr = found.entries
    assert clip == Entry("raise_clip", won=False, failed=False, beaten=True, above=0.5)
    assert lr == Entry("lower_lr", won=True, failed=False, beaten=False)
    assert found.lead == 0.5


def test_a_rung_that_hit_a_fault_is_beaten_without_a_loss_to_compare() -> None:
    found = only(trial(2, CLIP, 9.0, a_fault(NAN, 120)), trial(3, LR, 1.0, won=True))
    assert found.entries[0] == Entry("raise_clip", won=False, failed=True, beaten=True) and found.lead is None


def test_a_rung_within_the_noise_of_the_winner_is_not_beaten() -> None:
    found = entries(trial(2, CLIP, 1.005), trial(3, LR, 1.0, won=True))["raise_clip"]
    assert not found.beaten and found.above == pytest.approx(0.005)


def test_a_trial_that_was_stopped_behind_is_compared_over_the_steps_that_it_made() -> None:
    found = entries(trial(2, LR, 1.0, won=True), trial(3, CLIP, 1.4, reached=140, verdict=BEHIND))["raise_clip"]
    assert found.beaten and found.above == pytest.approx(0.4)


def test_two_learning_rates_are_one_rung_which_counts_by_its_best_one() -> None:
    found = entries(trial(2, LOWER_LR, 4.0), trial(3, LR, 1.0, won=True), trial(4, CLIP, 2.0))
    assert found["lower_lr"].won and len(found) == 2
    lost = entries(trial(2, LOWER_LR, 9.0, a_fault(NAN, 120)), trial(3, LR, 3.0), trial(4, CLIP, 2.0, won=True))
    assert lost["lower_lr"] == Entry("lower_lr", won=False, failed=False, beaten=True, above=0.5)


@pytest.mark.parametrize(
    "nothing_shown",
    [
        trial(2, CLIP, 9.0, a_fault(FaultKind.INFRA_FAULT, 120)),
        trial(2, CLIP, 9.0, a_fault(FaultKind.CUDA_FAULT, 120)),
        trial(2, CLIP, 9.0, a_fault(NAN, 120), host_lost=True),
        trial(2, CLIP, 9.0, outcome=Outcome.CANCELLED),
        trial(2, CLIP, 9.0, outcome=Outcome.PENDING),
        trial(2, CLIP, 9.0, effective={"clip": 5.0}),  # the change did not take
        trial(2, CLIP, 9.0, a_fault(NAN, 120), effective={}, hands="silent"),
    ],
)
def test_what_the_machine_ended_or_did_not_reach_the_script_is_no_evidence(nothing_shown: Attempt) -> None:
    assert list(rounds([FIRST, nothing_shown, trial(3, LR, 1.0, won=True)])) == []
    unchanged = trial(4, UNCHANGED, 3.0)
    assert set(entries(nothing_shown, trial(3, LR, 1.0, won=True), unchanged)) == {"lower_lr", AS_IT_IS}


def test_a_trial_that_the_machine_ended_is_replaced_by_the_next_of_the_same_candidate() -> None:
    lost = trial(2, CLIP, 9.0, a_fault(FaultKind.INFRA_FAULT, 120))
    assert entries(lost, trial(3, CLIP, 1.5), trial(4, LR, 1.0, won=True))["raise_clip"].above == 0.5


def test_a_round_without_a_winner_shows_only_what_failed() -> None:
    failed = trial(2, CLIP, 9.0, a_fault(NAN, 120))
    assert only(failed, trial(3, LR, 1.0)).entries == (Entry("raise_clip", won=False, failed=True, beaten=True),)
    assert list(rounds([FIRST, trial(2, LR, 1.0)])) == []


def test_where_the_run_as_it_is_wins_no_rung_has_failed_to_cure_it() -> None:
    found = entries(trial(2, CLIP, 1.5), trial(3, UNCHANGED, 1.0, won=True))
    assert found[AS_IT_IS].won and not found["raise_clip"].beaten


# In the ledger


def test_the_ledger_counts_wins_of_rounds_and_the_median_lead() -> None:
    def job(clip: Attempt) -> list[Attempt]:
        won = trial(3, LR, 1.0, won=True)
        return [FIRST, clip, won, an_attempt(4, LR.knobs, None, rung="lower_lr", effective={"lr": 1e-4})]

    failed = trial(2, CLIP, 9.0, a_fault(NAN, 120))
    found = read_ledger([job(failed), job(trial(2, CLIP, 1.1)), job(trial(2, CLIP, 1.2)), job(trial(2, CLIP, 1.7))])
    lr, clip = found.rows
    assert clip == Row(NAN, CPU, "raise_clip", trials=4, beaten=4)
    assert (lr.tries, lr.survived, lr.trials, lr.wins, lr.beaten, lr.lead) == (4, 4, 4, 4, 0, 0.2)
    assert lr.won_against == (WonAgainst("raise_clip", rounds=4, failed=1, lead=0.2),)


def test_a_winner_that_goes_on_is_counted_once_by_what_came_of_its_run() -> None:
    goes_on = trial(3, LR, 1.0, won=True, verdict=SURVIVED)
    assert goes_on.trial is not None
    own = replace(goes_on, trial=replace(goes_on.trial, goes_on=True), outcome=Outcome.SUCCEEDED)
    recovered = replace(replace(own, verdict=Verdict.RECOVERED), furthest_step=900)
    lr, clip = read_ledger([[FIRST, trial(2, CLIP, 2.0), recovered]]).rows
    assert (lr.tries, lr.recovered, lr.wins, lr.chance().runs) == (1, 1, 1, 1)
    assert (clip.tries, clip.beaten, clip.chance().runs) == (0, 1, 1)
