"""Tests how an attempt on several hosts is, for what its hosts answer."""

from __future__ import annotations

import pytest

from rung.runner.engines.group.summary import Seen, current, is_broken, outcome
from rung.runner.seams.engine import Observation, Presence

ABSENT, RUNNING = Observation(Presence.ABSENT), Observation(Presence.RUNNING, started_at=5.0)
AWAY = Observation(Presence.UNREACHABLE, detail="b has not answered for 5 s")
LOST = Observation(Presence.LOST, detail="the container was removed")


def ended(code: int = 0, at: float = 9.0, **more: int) -> Observation:
    return Observation(Presence.ENDED, exit_code=code, started_at=4.0, ended_at=at, **more)  # type: ignore[arg-type]


def seen(*observations: Observation, asked: tuple[int, ...] = ()) -> list[Seen]:
    return [Seen("abc"[place], each, place in asked) for place, each in enumerate(observations)]


@pytest.mark.parametrize(
    ("observations", "begun", "presence"),
    [
        ((ABSENT, ABSENT), False, Presence.ABSENT),
        ((ABSENT, ABSENT), True, Presence.ABSENT),
        # A controller was killed in the middle of the start: the rest is still to be started.
        ((RUNNING, ABSENT), False, Presence.ABSENT),
        ((RUNNING, ABSENT), True, Presence.RUNNING),
        ((RUNNING, RUNNING), True, Presence.RUNNING),
        ((ended(), RUNNING), True, Presence.RUNNING),
        ((ended(1), RUNNING), True, Presence.RUNNING),
        # Nothing is started after one has ended.
        ((ended(1), ABSENT), False, None),
        ((RUNNING, AWAY), True, Presence.UNREACHABLE),
        ((ended(1), AWAY), True, Presence.UNREACHABLE),
        ((ABSENT, AWAY), False, Presence.UNREACHABLE),
        ((RUNNING, Observation(Presence.WAITING, detail="x")), True, Presence.WAITING),
        ((ended(), ended()), True, None),
        ((LOST, ended(143)), True, None),
    ],
)
def test_what_the_whole_is_while_it_is_not_over(
    observations: tuple[Observation, ...], begun: bool, presence: Presence | None
) -> None:
    found = current(seen(*observations), begun=begun)
    assert (found.presence if found else None) is presence


def test_a_stopped_start_is_not_gone_on_with() -> None:
    assert current(seen(RUNNING, ABSENT, asked=(0, 1)), begun=False) == RUNNING


@pytest.mark.parametrize(
    ("observations", "begun", "broken"),
    [
        ((RUNNING, RUNNING), True, False),
        ((ended(), RUNNING), True, False),
        ((RUNNING, AWAY), True, False),
        ((RUNNING, ABSENT), False, False),
        ((RUNNING, ABSENT), True, True),
        ((ended(1), RUNNING), True, True),
        ((RUNNING, LOST), True, True),
        ((ended(1), AWAY), True, True),
    ],
)
def test_one_that_fails_or_is_gone_ends_all(observations: tuple[Observation, ...], begun: bool, broken: bool) -> None:
    assert is_broken(seen(*observations), begun=begun) is broken


def test_all_that_end_well_are_a_good_end() -> None:
    assert outcome(seen(ended(at=9.0), ended(at=11.0))) == ended(at=11.0)


def test_the_first_failure_is_that_of_the_whole() -> None:
    found = outcome(seen(ended(1, at=12.0), ended(3, at=11.0), ended(at=13.0)))
    assert (found.presence, found.exit_code, found.ended_at) == (Presence.ENDED, 3, 13.0)


def test_one_that_was_asked_to_end_is_not_the_cause_even_if_it_ended_first() -> None:
    killed = ended(137, at=12.0, signal=9)
    found = outcome(seen(ended(143, at=11.0), killed, asked=(0,)))
    assert (found.exit_code, found.signal) == (137, 9)


def test_a_part_that_is_lost_is_named_with_its_host() -> None:
    assert outcome(seen(ended(143, at=11.0), LOST, asked=(0,))).detail == "b: the container was removed"
    gone = outcome(seen(ended(), ABSENT))
    assert (gone.presence, gone.exit_code, gone.detail) == (Presence.LOST, None, "its part on b is gone")
