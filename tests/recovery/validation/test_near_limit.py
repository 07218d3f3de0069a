"""Tests that the record of modules near FP16's limit is read, without what cannot be true."""

import pytest

from rung.recovery.logs.lines import Line
from rung.recovery.validation.near_limit import NearLimit, advice, most_watched, read_near
from rung.recovery.validation.run_figures import FigureReader

RECORD = (
    "rung| near updates={} watched=7 activations=head.norm:12400,body.0:9000 gradients=head.out:30208,head.norm:8200"
)
FOUND = NearLimit(64, 7, {"head.norm": 12400.0, "body.0": 9000.0}, {"head.out": 30208.0, "head.norm": 8200.0})


def figures(*lines):
    reader = FigureReader()
    for number, text in enumerate(lines, 1):
        reader.feed(Line(number, text))
    return reader.figures()


def test_the_last_record_of_a_run_counts():
    assert figures("rung| step step=1 loss=2.0").near is None
    found = figures("rung| near updates=1 watched=1", RECORD.format(64), "rung| step step=70 loss=1.0").near
    assert found == FOUND
    assert found.modules == ("head.norm", "body.0", "head.out") and found.places == ("head.norm", "body.0")
    # A helper with fewer updates does not hide it.
    assert figures(RECORD.format(64), "rung| near updates=3 watched=2").near == FOUND


def test_a_run_that_stays_far_from_the_limit_is_known_to_do_so():
    found = figures("rung| near updates=64 watched=7").near
    assert found == NearLimit(64, 7, {}, {}) and not found.modules


@pytest.mark.parametrize(
    "text",
    [
        *("", "updates=64", "watched=3", "updates=0 watched=0", "updates=3 watched=4", "updates=-3 watched=-4"),
        *("updates=nan watched=1", "updates=1e3 watched=1", "updates=9999999999999999999 watched=1"),
    ],
)
def test_a_record_without_true_counts_is_ignored(text):
    assert read_near(text + " activations=head:12400") is None
    assert most_watched(FOUND, read_near(text)) == most_watched(None, FOUND) == FOUND


@pytest.mark.parametrize(
    "entry",
    [
        *("head", "head:", ":12400", "head:nan", "head:inf", "head:65504", "head:-12400", "head:8187", "head:1e9"),
        *("a*b:12400", "x..y:12400", "\u202ehead:12400", "x" * 201 + ":12400", '"a b:12400"', '"broken:12400'),
    ],
)
def test_an_entry_that_is_no_module_near_the_limit_is_left_out(entry):
    found = read_near(f"updates=8 watched=4 activations={entry} gradients={entry},body:9000")
    assert found is not None and found.activations == {}
    assert found.gradients == ({} if entry.startswith('"') else {"body": 9000.0})


def test_a_list_is_no_longer_than_a_list_of_places():
    names = ",".join(f"layer.{number}:9000" for number in range(400))
    found = read_near(f"updates=8 watched=4 activations={names}")
    assert found is not None and found.places == tuple(f"layer.{number}" for number in range(16))


def test_the_advice_is_in_the_words_of_the_job_file():
    assert advice(FOUND.places).endswith(
        "head.norm and body.0 in FP32 and the rest in FP16, write knobs: {fp32_modules: [head.norm, body.0]}"
    )
