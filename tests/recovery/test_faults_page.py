"""Tests the page of faults: Rung finds the sample line of each fault as that fault only."""

import re
from pathlib import Path

import pytest

from rung.jobs.model.fault import FaultKind
from rung.recovery.detect.detector import Detector
from rung.recovery.logs.lines import LineSplitter
from rung.recovery.signatures import SIGNATURES

PAGE = (Path(__file__).parents[2] / "docs" / "faults.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(\w+)` \| ([^|]*(?:\\\|[^|]*)*) \|", re.MULTILINE)
SHOWN = {kind: re.search(r"`(.+)`", cell) for kind, cell in ROW.findall(PAGE.partition("\n## ")[0])}
# Faults that no single line shows: a silence, an exit without a message, a rule of the job file, many lines.
WITHOUT_A_LINE = {"not_learning", "unknown_exit", "rule_stop", "rule_retry", "scale_thrash", "stalled"}


def test_every_fault_has_a_row_on_the_page():
    assert set(SHOWN) == {kind.value for kind in FaultKind}


def test_every_fault_that_a_message_shows_has_a_signature():
    matched = {row.fault.value for row in SIGNATURES if row.fault}
    assert matched == {kind.value for kind in FaultKind} - WITHOUT_A_LINE


@pytest.mark.parametrize("kind", sorted({kind.value for kind in FaultKind} - WITHOUT_A_LINE))
def test_the_sample_line_of_a_fault_is_found_as_that_fault_only(kind):
    line = SHOWN[kind][1].replace("\\|", "|")
    detector, splitter = Detector(), LineSplitter()
    found = [fault for each in splitter.feed(f"{line}\n".encode()) for fault in detector.feed(each)] + detector.finish()
    assert [fault.kind for fault in found] == [kind]
    assert detector.first_fault(ended=True).kind == kind
