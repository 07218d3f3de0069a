"""Tests what an attempt tells: whether it went on from the checkpoint that it was given, and how long it ran."""

from __future__ import annotations

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.knobs import Knobs

NOT_LOADED = "step_200.pt of step 200 was not loaded"


@pytest.mark.parametrize(
    ("resumed", "first", "said"),
    [
        (None, None, None),
        (200, 201, None),
        (195, 196, None),
        (0, 1, f"{NOT_LOADED}: it began at step 0"),
        (100, 101, f"{NOT_LOADED}: it resumed at step 100"),
        (None, 200, None),
        (
            None,
            1,
            "step_200.pt of step 200 was given, and the first step seen is 1: it was not loaded, or the script counts "
            "anew",
        ),
    ],
)
def test_the_first_step_shows_whether_a_checkpoint_was_loaded(
    resumed: int | None, first: int | None, said: str | None
) -> None:
    steps = {"resumed_step": resumed, "first_step": first}
    given = Attempt("a-1", 2, "h", Knobs(), None, "", resumed_from="step_200.pt", planned_step=200, **steps)
    assert given.not_resumed == said
    assert Attempt("a-1", 2, "h", Knobs(), None, "", **steps).not_resumed is None, "nothing was given to it"


@pytest.mark.parametrize(
    ("progress", "ended", "seconds"), [(10.0, 14.5, 4.5), (None, 14.5, None), (10.0, None, None), (10.0, 9.0, None)]
)
def test_the_time_from_progress_to_the_end_is_never_negative(
    progress: float | None, ended: float | None, seconds: float | None
) -> None:
    attempt = Attempt("a-1", 1, "here", Knobs(), None, "", progress_at=progress, ended_at=ended)
    assert attempt.seconds_of_progress == seconds
