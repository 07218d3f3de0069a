"""Tests that a block of lines is split the same in the quick way and in the long one, and where its runs are."""

from __future__ import annotations

import random

import pytest

from rung.recovery.logs.lines import MAX_TEXT
from rung.recovery.logs.segments import Segments, runs, split


def lines_of_any_kind(dice: random.Random) -> bytes:
    pieces = (b"step 1 loss 2", b"", b" ", b"\xc3\xa9 loss 1", b"\r", b"x\r50%\r", b"rung| step step=1 loss=2")
    return b"".join(dice.choice(pieces[: dice.randrange(1, 8)]) + b"\n" for _ in range(dice.randrange(12)))


def of(block: bytes, number: int = 1, *, begins_line: bool = True) -> Segments:
    return Segments(block, number, begins_line=begins_line)


@pytest.mark.parametrize("seed", range(60))
def test_a_block_is_split_the_same_by_either_way(seed: int) -> None:
    block = lines_of_any_kind(random.Random(seed))
    found = of(block, seed)
    assert [*zip(found.numbers, found.sizes, found.texts, strict=True)] == [*split(block, seed)]


def test_a_line_that_is_too_long_to_show_is_cut() -> None:
    found = of(b"a" * (MAX_TEXT + 5) + b"\nb\n")
    assert [*zip(found.sizes, map(len, found.texts), strict=True)] == [(MAX_TEXT + 5, MAX_TEXT), (1, 1), (0, 0)]


@pytest.mark.parametrize("block", [b"one\ntwo\n\nfour\n", b"one\rtwo\n\nfour\n", b"\xc3\xa9\ntwo\n\nfour\n"])
def test_a_place_belongs_to_the_line_that_it_is_in_or_ends(block: bytes) -> None:
    found = of(block)
    for place in range(len(block)):
        lines = block[:place].replace(b"\r", b"\n").count(b"\n")
        assert found.with_places([place]) == {lines}
    assert found.with_places([]) == set()


def test_an_empty_state_of_a_bar_is_no_empty_line() -> None:
    assert [of(b"\n\nx\n").is_empty_line(index) for index in range(4)] == [True, True, False, False]
    assert not of(b"\n", begins_line=False).is_empty_line(0)
    assert [of(b"x\r\n\n").is_empty_line(index) for index in range(4)] == [False, False, True, False]


def test_runs_are_of_one_template_and_long_enough() -> None:
    assert [*runs(["a", "a", "", "", "", "b", "b", "b", "a"], 2)] == [(0, 2), (5, 8)]
    assert [*runs(["a", "a", "", "", "", "b", "b", "b", "a"], 3)] == [(5, 8)]
