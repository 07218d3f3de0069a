"""Tests the order of rungs that follows from the ledger, and the sentences that say why."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.jobs.model.fault import FaultKind
from rung.jobs.model.knobs import RungName
from rung.recovery.ledger.ledger import DIAGNOSED, EMPTY, Ledger, RulesOrder
from rung.recovery.ledger.row import CPU, OPEN, Row

NAN = FaultKind.NAN_LOSS
CLIP, LR, FP32 = RungName.RAISE_CLIP, RungName.LOWER_LR, RungName.FP32
RUNGS = [CLIP, LR, FP32, RungName.SKIP_DATA]
GUESS, DIAGNOSIS = RulesOrder(RUNGS, diagnosed=False), RulesOrder(RUNGS, diagnosed=True)


def seen(rung: RungName, recovered: int, judged: int, **counts: Any) -> Row:
    return Row(NAN, "TITANRTX", rung, recovered=recovered, failed=judged - recovered, **counts)


def test_the_rules_are_surest_of_a_diagnosis_and_less_sure_of_each_further_rung() -> None:
    assert [DIAGNOSIS.prior(rung) for rung in (CLIP, LR)] == [DIAGNOSED, OPEN * 0.9]
    assert [GUESS.prior(rung) for rung in (CLIP, LR, "bf16")] == pytest.approx([OPEN, OPEN * 0.9, OPEN * 0.9**4])


@given(st.permutations(RUNGS), st.booleans())
def test_an_empty_ledger_changes_no_order(order: list[RungName], diagnosed: bool) -> None:
    assert EMPTY.ranked(NAN, CPU, RulesOrder(order, diagnosed)) == order


def test_many_runs_change_the_order_of_a_diagnosis_and_a_few_do_not() -> None:
    ledger = Ledger((seen(LR, 8, 9), seen(CLIP, 1, 6)))
    assert ledger.ranked(NAN, "TITANRTX", DIAGNOSIS)[0] is LR
    lucky = Ledger((seen(LR, 2, 2),))
    assert lucky.ranked(NAN, "TITANRTX", DIAGNOSIS) == RUNGS


def test_runs_that_only_survived_change_no_order() -> None:
    ledger = Ledger((seen(FP32, 0, 0, survived=50, tries=50, took=50),))
    assert ledger.ranked(NAN, "TITANRTX", GUESS) == RUNGS


def test_runs_that_fell_short_count_against_a_rung_like_a_fault() -> None:
    ledger = Ledger((Row(NAN, "TITANRTX", CLIP, fell_short=3),))
    assert ledger.ranked(NAN, "TITANRTX", GUESS)[-1] is CLIP


def test_trials_that_a_rung_lost_count_against_it_and_wins_by_the_run_they_led_to() -> None:
    beaten = Ledger((Row(NAN, "TITANRTX", CLIP, trials=3, beaten=3), Row(NAN, "TITANRTX", LR, trials=3, wins=3)))
    assert beaten.ranked(NAN, "TITANRTX", GUESS)[-1] is CLIP
    assert beaten.row(NAN, "TITANRTX", LR).chance() == EMPTY.row(NAN, "TITANRTX", LR).chance()


def test_runs_on_other_gpus_or_with_other_faults_do_not_change_the_order() -> None:
    ledger = Ledger((seen(FP32, 50, 50),))
    assert ledger.ranked(NAN, "P100", GUESS) == RUNGS
    assert ledger.ranked(FaultKind.DIVERGENCE, "TITANRTX", GUESS) == RUNGS


@given(st.integers(0, 40), st.integers(0, 40))
def test_one_more_recovery_never_lowers_a_rung_and_one_more_failure_never_raises_it(good: int, bad: int) -> None:
    def place(recovered: int, judged: int) -> int:
        return Ledger((seen(FP32, recovered, judged),)).ranked(NAN, "TITANRTX", GUESS).index(FP32)

    assert place(good + 1, good + bad + 1) <= place(good, good + bad) <= place(good, good + bad + 1)


# Sentences


def because(ledger: Ledger, chosen: RungName, by_rules: RungName, order: RulesOrder = GUESS) -> str:
    return ledger.because(NAN, "TITANRTX", order, chosen, by_rules)


def test_the_reason_gives_runs_chance_and_interval_of_the_chosen_rung_and_of_the_one_it_replaces() -> None:
    ledger = Ledger((seen(LR, 8, 9), seen(CLIP, 1, 6)))
    assert because(ledger, LR, CLIP, DIAGNOSIS) == (
        "8 of 9 runs with nan_loss on TITANRTX recovered after lower_lr here (75 %, between 60 and 89 %), "
        "1 of 6 after raise_clip (44 %, between 25 and 64 %)"
    )
    assert because(ledger, LR, LR).startswith("8 of 9 runs") and "raise_clip" not in because(ledger, LR, LR)


def test_the_reason_says_where_only_the_rules_speak() -> None:
    ledger = Ledger((seen(CLIP, 1, 6),))
    text = because(ledger, FP32, CLIP)
    assert text.startswith("no run with nan_loss on TITANRTX has shown yet what fp32 does here (40 %, between ")
    assert "; from the rules alone), 1 of 6 after raise_clip" in text
    assert because(EMPTY, LR, CLIP).endswith(", none yet after raise_clip (50 %, between 20 and 80 %)")


def test_the_reason_says_what_is_not_known_of_the_runs() -> None:
    row = seen(LR, 3, 4, survived=2, not_known=1)
    assert "; 2 more survived, and whether they learn is not known; in 1 nothing shows whether it took)" in because(
        Ledger((row,)), LR, LR
    )


def test_the_reason_counts_trials_that_were_lost() -> None:
    ledger = Ledger((seen(LR, 3, 4, trials=5, beaten=2), Row(NAN, "TITANRTX", CLIP, trials=3, beaten=3)))
    text = because(ledger, LR, CLIP)
    assert "3 of 4 runs with nan_loss on TITANRTX recovered after lower_lr here, and it lost 2 of 5 trials (" in text
    assert ", raise_clip lost 3 of 3 trials (29 %, between " in text
    assert because(ledger, CLIP, CLIP).startswith("raise_clip lost 3 of 3 trials of runs with nan_loss on TITANRTX")
