"""Whole small logs in the formats of the field, and what must be seen in each: tests/corpus/expected.json."""

import json
from pathlib import Path

import pytest

from recovery.detect import Detector
from recovery.lines import LineSplitter

CORPUS = Path(__file__).parent.parent / "corpus"
EXPECTED = json.loads((CORPUS / "expected.json").read_text())


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_log_shows_what_it_is_expected_to(name):
    detector, splitter = Detector(), LineSplitter()
    lines = [*splitter.feed((CORPUS / name).read_bytes()), *splitter.flush()]
    listed = [fault for line in lines for fault in detector.feed(line)] + detector.finish()
    now, at_end = detector.finding(ended=False), detector.finding(ended=True)
    assert {
        "listed": [[fault.kind, fault.line, fault.step] for fault in listed],
        "now": now and now.kind,
        "at_end": at_end and at_end.kind,
        "began": at_end and at_end.began,
    } == EXPECTED[name]


def test_every_log_of_the_corpus_has_an_expectation():
    assert {path.name for path in CORPUS.glob("*.log")} == set(EXPECTED)
