"""Tests what a whole log may show, and that healthy logs show nothing."""

import json

import pytest

from rung.recovery.doubts.find import FIRST_BYTES, LAST_BYTES, Excerpt, find_doubts
from rung.recovery.logs.lines import Line, LineSplitter
from tests.corpus.collection import HERE
from tests.corpus.healthy import FORMATS, healthy_log

EXPECTED = json.loads((HERE / "expected.json").read_text(encoding="utf-8"))
HEALTHY = [name for name, entry in EXPECTED.items() if entry["fault"] is None]


def lines_of(data):
    splitter = LineSplitter()
    return splitter.feed(data) + splitter.flush()


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_log_of_the_corpus_shows_nothing(name):
    assert find_doubts(lines_of((HERE / name).read_bytes())) == []


@pytest.mark.parametrize("name", FORMATS)
def test_healthy_lines_in_every_format_show_nothing(name):
    for count, seed in ((12, 0), (60, 1), (60, 2)):
        assert find_doubts(lines_of(b"".join(healthy_log(name, count, seed)))) == []


def test_numbers_and_words_of_one_kind_are_one_doubt():
    texts = ["step 1 cost 1.5", "step 2 cost nan", "skipping the batch, values are nan", "step 3 cost 1.4"]
    (doubt,) = find_doubts([Line(number, text) for number, text in enumerate(texts, 1)])
    assert doubt.line == 2


def test_a_sweep_of_the_learning_rate_shows_nothing():
    texts = [f"lr={10**n:.0e} loss={value}" for n, value in enumerate([2.0, 1.5, 30, 4000])]
    assert find_doubts([Line(1, "LR range test"), *(Line(2, text) for text in texts)]) == []
    assert find_doubts([Line(2, text) for text in texts]) != []


def test_the_beginning_and_the_end_of_a_long_log_are_kept_with_the_numbers_of_their_lines():
    count = (FIRST_BYTES + LAST_BYTES) // 10
    data = b"".join(b"line %08d\n" % number for number in range(1, count + 1))
    for size in (1000, 100_000, len(data)):
        excerpt = Excerpt()
        for start in range(0, len(data), size):
            excerpt.add(data[start : start + size])
        lines = excerpt.lines()
        assert lines[0] == Line(1, "line 00000001")
        assert lines[-1] == Line(count, f"line {count:08d}")
        assert all(int(line.text.split()[1]) == line.number for line in lines)
        assert len(lines) < count


def test_a_second_run_whose_epochs_begin_again_is_no_divergence():
    runs = [f"Epoch {n} loss {level + 5 / n:.3f}" for level in (0, 90) for n in range(1, 12)]
    assert find_doubts([Line(number, text) for number, text in enumerate(runs, 1)]) == []
    (doubt,) = find_doubts([Line(n, f"Epoch {n} loss {loss}") for n, loss in enumerate([0.5, 0.1, 0.05, 5.0, 90.0], 1)])
    assert doubt.line == 5
