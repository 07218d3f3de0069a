"""Tests the time limits of batch jobs: as Slurm writes them, and as Rung does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.jobs.site.times import LONGEST, SHORTEST, minutes, parse_limit


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("12h", 43_200),
        ("90m", 5_400),
        ("1.5h", 5_400),
        ("90 s", 90),
        ("2d", 172_800),
        ("30:00", 1_800),
        ("2:00:00", 7_200),
        ("100:00:00", 360_000),
        ("1-12", 129_600),
        ("1-12:00", 129_600),
        ("0-00:01:30", 90),
    ],
)
def test_a_limit_is_read_as_slurm_and_as_rung_write_it(text: str, seconds: int) -> None:
    assert parse_limit(text) == seconds


@pytest.mark.parametrize("value", [120, "120", 2.5, True, None, ["1h"]])
def test_a_bare_number_is_refused_because_it_has_two_meanings(value: object) -> None:
    with pytest.raises(ValueError, match="a bare number is minutes for Slurm and seconds for Rung"):
        parse_limit(value)


@pytest.mark.parametrize(
    "text", ["", "soon", "1h30", "-1h", "1-", "1-2-3", "1:2:3:4", "12:00:00;rm", "2w", "UNLIMITED"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="give a time such as 12h"):
        parse_limit(text)


@pytest.mark.parametrize("text", ["59s", "0m", "0-0", "366d", "9999-00"])
def test_a_limit_that_nobody_means_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="from one minute to 365 days"):
        parse_limit(text)


@given(st.text(max_size=12) | st.from_regex(r"\A[0-9]{1,9}[-:][0-9:]{1,9}\Z"))
def test_any_text_is_a_limit_within_the_bounds_or_an_error_of_ours(text: str) -> None:
    try:
        seconds = parse_limit(text)
    except ValueError as error:
        assert "give a time" in str(error)
    else:
        assert SHORTEST <= seconds <= LONGEST


def test_a_part_of_a_minute_counts_as_one() -> None:
    assert [minutes(60), minutes(61), minutes(43_200)] == [1, 2, 720]
