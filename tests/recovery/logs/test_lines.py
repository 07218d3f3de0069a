"""Tests that bytes become the same clean lines with chunks of any size."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from rung.jobs.model.terminal_text import clean
from rung.recovery.logs.lines import MAX_RAW, MAX_TEXT, Line, LineSplitter

PIECES = st.lists(
    st.one_of(
        st.binary(max_size=12),
        st.sampled_from(
            [b"\n", b"\r", b"\r\n", b"\x1b[31m", b"\x1b]0;title\x07", "é█ü".encode(), b"\x00", b"loss 2.3"]
        ),
    ),
    max_size=25,
)


def split(*chunks):
    splitter = LineSplitter()
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    return lines + splitter.flush()


def test_lines_are_numbered_from_one():
    assert split(b"a\n\nb\nrest") == [Line(1, "a"), Line(2, ""), Line(3, "b"), Line(4, "rest")]


def test_a_line_without_its_end_is_held_back_until_flushed():
    splitter = LineSplitter()
    assert splitter.feed(b"half") == []
    assert splitter.flush() == [Line(1, "half")]
    assert splitter.flush() == []


def test_a_redrawn_progress_bar_keeps_its_line_number():
    assert split(b"\r1/3\r2/3\r3/3\ndone\n") == [Line(1, "1/3"), Line(1, "2/3"), Line(1, "3/3"), Line(2, "done")]


def test_cr_lf_is_one_line_end():
    assert split(b"a\r\nb\r\n") == split(b"a\r", b"\nb\r\n") == [Line(1, "a"), Line(2, "b")]


def test_broken_utf8_is_replaced_and_split_characters_survive():
    assert split(b"\xff\xfeloss\n")[0].text == "��loss"
    assert split("é".encode()[:1], "é".encode()[1:] + b"\n") == [Line(1, "é")]


def test_terminal_codes_are_stripped_and_tabs_become_spaces():
    coloured = b"\x1b[1;31mloss\x1b[0m\t2.3\x00\x07\x08\x1b[K\x1b(B\n"
    assert split(coloured)[0].text == "loss 2.3"
    assert clean("\x1b]0;evil title\x07ok\x9b2Jend") == "okend"


def test_control_characters_that_reverse_or_hide_text_are_removed():
    assert clean("a\u202egnp.exe\u200b\u2066b\u2028c") == "agnp.exebc"
    assert clean("\ud800x") == "x"


def test_an_unfinished_title_does_not_hide_the_rest_of_the_line():
    assert "CUDA out of memory" in clean("\x1b]0;CUDA out of memory")


def test_a_line_is_cut_and_the_next_one_is_whole():
    lines = split(b"x" * (3 * MAX_RAW) + b"\nnext\n")
    assert [(line.number, len(line.text)) for line in lines] == [(1, MAX_TEXT), (2, 4)]


def test_an_endless_line_takes_bounded_memory():
    splitter = LineSplitter()
    for _ in range(40):
        splitter.feed(b"y" * 65537)
    assert len(splitter._held) == MAX_RAW


@given(PIECES, st.lists(st.integers(0, 400), max_size=8))
def test_chunking_never_changes_the_lines(pieces, cuts):
    data = b"".join(pieces)
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    chunks = [data[start:end] for start, end in pairwise(places)]
    assert split(*chunks) == split(data)


@given(st.text(max_size=200))
@settings(max_examples=200)
def test_clean_text_has_no_control_codes_and_stays_the_same_when_cleaned_again(text):
    cleaned = clean(text)
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in cleaned)
    assert clean(cleaned) == cleaned
