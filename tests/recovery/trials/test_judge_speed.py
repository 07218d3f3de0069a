"""Tests which of several equally good trials is taken by its time a step, with made-up tables of three kinds of GPU."""

from __future__ import annotations

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs, Precision
from rung.jobs.model.trial import SURVIVED, Candidate, Trial
from rung.recovery.trials.judge import choose, is_slower_than_equals
from rung.recovery.trials.winner import why_won
from tests.support.jobs_in_trouble import an_attempt

P100, TITAN, A100 = Gpu("Tesla P100", (6, 0)), Gpu("NVIDIA TITAN RTX", (7, 5)), Gpu("NVIDIA A100", (8, 0))
PLACES, FP32, BF16 = (
    Candidate("fp32_modules", Knobs(fp32_modules="head.norm")),
    Candidate("fp32", Knobs(precision=Precision.FP32)),
    Candidate("bf16", Knobs(precision=Precision.BF16)),
)
CANDIDATES = (PLACES, BF16, FP32)
Table = dict[str, tuple[float, float]]


def trials(gpu: Gpu, table: Table) -> list[Attempt]:
    """Return the trials of a table: the loss and the milliseconds a step of each rung."""
    made = []
    for number, (rung, (loss, ms)) in enumerate(table.items(), start=2):
        index = [each.rung for each in CANDIDATES].index(rung)
        readings = tuple((step, loss) for step in range(111))
        trial = Trial(1, index, CANDIDATES, 0, 10, 110, 400, readings=readings, ms=ms, verdict=SURVIVED)
        made.append(an_attempt(number, CANDIDATES[index].knobs, None, rung=rung, trial=trial, gpus=(gpu,)))
    return made


def won(gpu: Gpu, table: Table) -> Attempt:
    winner = choose(trials(gpu, table), on_gpu=True)
    assert winner is not None
    return winner


@pytest.mark.parametrize(
    ("gpu", "table", "rung"),
    [
        # No tensor cores: FP32 as a whole takes as long as the places within a tenth, less, or more.
        (P100, {"fp32_modules": (1.0, 12.5), "fp32": (1.0, 13.0)}, "fp32"),
        (P100, {"fp32_modules": (1.0, 14.0), "fp32": (1.0, 12.0)}, "fp32"),
        (P100, {"fp32_modules": (1.0, 10.2), "fp32": (1.0, 18.0)}, "fp32_modules"),
        # The loss comes first.
        (P100, {"fp32_modules": (0.9, 14.0), "fp32": (1.0, 12.0)}, "fp32_modules"),
        (P100, {"fp32_modules": (1.0, 10.2), "fp32": (0.9, 18.0)}, "fp32"),
        (TITAN, {"fp32_modules": (1.0, 10.3), "fp32": (1.0, 37.0)}, "fp32_modules"),
        (TITAN, {"fp32_modules": (1.0, 10.3), "fp32": (0.995, 37.0)}, "fp32_modules"),
        (A100, {"fp32_modules": (1.0, 10.3), "bf16": (1.0, 10.0), "fp32": (1.0, 17.0)}, "fp32_modules"),
        (A100, {"fp32_modules": (1.0, 12.3), "bf16": (1.0, 10.0), "fp32": (1.0, 17.0)}, "bf16"),
        (A100, {"fp32_modules": (1.0, 10.3), "bf16": (1.1, 10.0), "fp32": (1.0, 17.0)}, "fp32_modules"),
        (A100, {"fp32_modules": (1.2, 10.3), "bf16": (1.1, 10.0), "fp32": (1.0, 17.0)}, "fp32"),
    ],
)
def test_of_precisions_with_equal_losses_the_fastest_wins(gpu: Gpu, table: Table, rung: str) -> None:
    assert won(gpu, table).rung == rung
    # Also in the other order, and where the one that ran last could go on without a stop.
    backwards = dict(reversed(table.items()))
    assert won(gpu, backwards).rung == rung
    for *others, last in (trials(gpu, table), trials(gpu, backwards)):
        assert last.trial is not None
        if last.rung == rung:
            assert not is_slower_than_equals(last.trial, others)


def test_a_trial_that_leads_gives_way_to_an_equal_one_that_is_faster() -> None:
    def gives_way(places: tuple[float, float], fp32: tuple[float, float]) -> bool:
        other, last = trials(P100, {"fp32": fp32, "fp32_modules": places})
        assert last.trial is not None
        return is_slower_than_equals(last.trial, [other])

    assert gives_way((1.0, 14.0), (1.0, 12.0))
    assert gives_way((1.0, 12.5), (1.0, 13.0)), "as fast within a tenth, and no list of places"
    assert not gives_way((1.0, 10.2), (1.0, 18.0))
    assert not gives_way((0.9, 14.0), (1.0, 12.0)), "its loss is lower"


def test_the_sentence_says_how_much_longer_the_others_took() -> None:
    over = trials(P100, {"fp32_modules": (1.0, 15.0), "fp32": (1.0, 12.0)})
    said = why_won(over[1], over)
    assert said == "fp32 won the trials with a loss of 1 at step 110 (fp32_modules: 1, 1.25x the time of a step)"
