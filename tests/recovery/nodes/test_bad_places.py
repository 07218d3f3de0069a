"""Tests which places are set aside, for which jobs and until when: tables, and whatever a history may hold."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.jobs.job import Attempt, Outcome
from rung.jobs.model.fault import FaultKind
from rung.recovery.nodes.bad_places import (
    COUNTED_SECONDS,
    FIRST_SECONDS,
    LONGEST_SECONDS,
    BadPlace,
    Place,
    find_bad_places,
    relevant,
    seconds_aside,
)
from tests.support.places import ASSERT, ECC, HOUR, ILLEGAL, died, ended

NOW = 1_000_000.0


def ago(hours: float) -> float:
    return NOW - hours * HOUR


def aside(attempts: Sequence[Attempt], now: float = NOW) -> dict[str, float]:
    """Return until when each place is set aside for all jobs, in hours from now."""
    found = find_bad_places(attempts, now)
    return {each.place.name: round((each.until - now) / HOUR, 3) for each in found if each.until is not None}


TITAN = "turing's TITANRTX 0"
DIED_TWICE = [died("a-1", ago(0.5)), died("b-2", ago(0.25))]
FOR_ALL = {
    "one job alone": ([died("a-1", ago(2)), died("a-1", ago(1)), died("a-1", ago(0.1))], {}),
    "two jobs": (DIED_TWICE, {TITAN: 0.75}),
    "two jobs of one name, and the line names the hardware": (
        [died("a-1", ago(0.5)), died("a-2", ago(0.25))],
        {TITAN: 0.75},
    ),
    "two jobs of one name, and it is open": ([died("a-1", ago(0.5), ILLEGAL), died("a-2", ago(0.25), ILLEGAL)], {}),
    "two jobs of two names, and it is open": (
        [died("a-1", ago(0.5), ILLEGAL), died("b-2", ago(0.25), ILLEGAL)],
        {TITAN: 0.75},
    ),
    "one of both": ([died("a-1", ago(0.5), ILLEGAL), died("b-2", ago(0.25))], {TITAN: 0.75}),
    "an open fault that a job has elsewhere, too": (
        [died("a-1", ago(0.5), ILLEGAL), died("b-2", ago(0.25)), died("a-1", ago(0.2), ILLEGAL, gpus=(1,))],
        {},
    ),
    "a named fault that a job has elsewhere, too": (
        [died("a-1", ago(0.5)), died("b-2", ago(0.25)), died("a-1", ago(0.2), gpus=(1,))],
        {TITAN: 0.75},
    ),
    "the script's own faults": ([died("a-1", ago(0.5), ASSERT), died("b-2", ago(0.25), ASSERT)], {}),
    "a collective that quotes the hardware": (
        [died("a-1", ago(0.5)), died("b-2", ago(0.25), kind=FaultKind.COMM_FAULT)],
        {TITAN: 0.75},
    ),
    "a success in between": ([died("a-1", ago(2)), ended("c-3", ago(1)), died("b-2", ago(0.25))], {}),
    "a run that fell short in between": (
        [died("a-1", ago(2)), ended("c-3", ago(1), outcome=Outcome.FELL_SHORT), died("b-2", ago(0.25))],
        {},
    ),
    "a cancelled run in between": (
        [died("a-1", ago(2)), ended("c-3", ago(1), outcome=Outcome.CANCELLED), died("b-2", ago(0.25))],
        {TITAN: 0.75},
    ),
    "a success after them": ([*DIED_TWICE, ended("c-3", ago(0.1))], {}),
    "a success on another GPU": ([*DIED_TWICE, ended("c-3", ago(0.1), gpus=(1,))], {TITAN: 0.75}),
    "two GPUs of one host": ([died("a-1", ago(0.5)), died("b-2", ago(0.25), gpus=(1,))], {}),
    "the GPU that both had": (
        [died("a-1", ago(0.5), gpus=(0, 1)), died("b-2", ago(0.25), gpus=(1, 2))],
        {"turing's TITANRTX 1": 0.75},
    ),
    "the same index of two hosts": ([died("a-1", ago(0.5)), died("b-2", ago(0.25), host="ampere")], {}),
    "a node of a site": (
        [died("a-1", ago(0.5), node="n7", host="site"), died("b-2", ago(0.25), node="n7", host="site")],
        {"n7 of site": 0.75},
    ),
    "two nodes of a site": (
        [died("a-1", ago(0.5), node="n7", host="site"), died("b-2", ago(0.25), node="n8", host="site")],
        {},
    ),
    "a site that did not say where": (
        [died("a-1", ago(0.5), node=None, host="site"), died("b-2", ago(0.25), node=None, host="site")],
        {},
    ),
    "jobs without a GPU": ([died("a-1", ago(0.5), gpus=()), died("b-2", ago(0.25), gpus=())], {}),
    "the hour is over": ([died("a-1", ago(2)), died("b-2", ago(1.1))], {}),
    "the second chance failed": ([died("a-1", ago(3)), died("b-2", ago(2)), died("b-2", ago(0.5))], {TITAN: 1.5}),
    "more die in the same hour": (
        [died("a-1", ago(0.75)), died("b-2", ago(0.5)), died("c-3", ago(0.25)), died("d-4", ago(0.1))],
        {TITAN: 0.5},
    ),
    "the first fault is too old": ([died("a-1", ago(7 * 24 + 1)), died("b-2", ago(0.25))], {}),
    "a clock that was set back": ([died("a-1", NOW + 50), died("b-2", NOW + 60)], {}),
}


@pytest.mark.parametrize("case", list(FOR_ALL))
def test_a_place_is_set_aside_for_all_after_faults_of_two_jobs(case: str) -> None:
    attempts, expected = FOR_ALL[case]
    assert aside(attempts) == expected
    shuffled = [*attempts]
    random.Random(1).shuffle(shuffled)
    assert aside(shuffled) == expected, "the order of the times counts, not that of the list"
    assert aside(relevant(attempts)) == expected, "nothing that counts is left out"


def test_the_time_doubles_up_to_a_day() -> None:
    assert [seconds_aside(times) / HOUR for times in (1, 2, 3, 4, 5, 6, 7, 500)] == [1, 2, 4, 8, 16, 24, 24, 24]
    at, attempts = ago(100), [died("a-1", ago(101))]
    for hours in (1, 2, 4, 8, 16, 24):
        attempts.append(died("b-2", at))
        assert aside(attempts, at) == {TITAN: hours}
        assert aside(attempts, at + hours * HOUR - 1) and not aside(attempts, at + hours * HOUR)
        at += hours * HOUR


def test_a_job_avoids_the_place_where_it_died_for_a_time_that_doubles() -> None:
    (found,) = find_bad_places([died("a-1", ago(2), ILLEGAL), died("a-1", ago(0.5), ECC)], NOW)
    assert found == BadPlace(
        Place("turing", gpu="GPU-turing-0"), 2, ("cuda_fault",), ("a-1",), ago(0.5), ECC, avoided_by={"a-1": ago(-1.5)}
    )
    assert find_bad_places([died("a-1", ago(1))], NOW) == []
    assert find_bad_places([died("a-1", ago(0.5), ASSERT)], NOW) == []
    assert find_bad_places([died("a-1", ago(0.5)), ended("b-2", ago(0.1))], NOW) == []


@pytest.mark.parametrize("name", ["turing", "GPU-turing-0"])
def test_what_a_person_clears_begins_anew(name: str) -> None:
    assert find_bad_places(DIED_TWICE, NOW, {name: ago(0.2)}) == []
    (found,) = find_bad_places(DIED_TWICE, NOW, {name: ago(0.3)})
    assert (found.until, found.jobs) == (None, ("b-2",))
    assert len(find_bad_places(DIED_TWICE, NOW, {"ampere": NOW, "GPU-turing-1": NOW})) == 1
    again = [*DIED_TWICE, died("c-3", ago(0.15)), died("d-4", ago(0.1))]
    (found,) = find_bad_places(again, NOW, {name: ago(0.2)})
    assert found.until == ago(0.1) + FIRST_SECONDS, "the time begins anew, too"


def test_a_node_is_cleared_by_its_name_or_with_its_site() -> None:
    at = {"node": "n7", "host": "site"}
    attempts = [died("a-1", ago(0.5), **at), died("b-2", ago(0.25), **at)]
    assert find_bad_places(attempts, NOW, {"n7": NOW}) == find_bad_places(attempts, NOW, {"site": NOW}) == []


LINES = (None, ECC, ILLEGAL, ASSERT)
HISTORIES = st.lists(
    st.builds(
        lambda job, hours, line, gpus: (
            died(job, ago(hours), line, gpus=gpus) if line else ended(job, ago(hours), gpus=gpus)
        ),
        st.sampled_from(("a-1", "a-2", "b-3", "c-4")),
        st.floats(-5, 200),
        st.sampled_from(LINES),
        st.sampled_from(((0,), (1,), (0, 1), ())),
    ),
    max_size=30,
)


@given(HISTORIES)
def test_whatever_happened_every_place_gets_another_chance_and_a_success_clears_it(attempts: list[Attempt]) -> None:
    found = find_bad_places(attempts, NOW)
    assert sorted(find_bad_places(relevant(attempts), NOW), key=repr) == sorted(found, key=repr)
    for each in found:
        ends = [*each.avoided_by.values(), *([each.until] if each.until is not None else [])]
        assert ends and all(NOW < end <= NOW + LONGEST_SECONDS for end in ends)
        assert NOW - COUNTED_SECONDS < each.last_at <= NOW and each.faults >= len(each.jobs) >= 1
        assert set(each.avoided_by) <= set(each.jobs)
        if each.until is not None:
            assert len(each.jobs) >= 2 and each.since is not None and each.since <= NOW
    later = NOW + LONGEST_SECONDS
    assert find_bad_places([each for each in attempts if (each.ended_at or 0) <= NOW], later) == []
    clean = [*attempts, ended("z-9", NOW, gpus=(0, 1))]
    assert [each for each in find_bad_places(clean, NOW) if each.last_at < NOW] == []
