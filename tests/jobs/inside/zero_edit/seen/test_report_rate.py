"""Tests which updates are reported: by their number, and never by a clock."""

import ast
import itertools
from pathlib import Path

from rung_inside.zero_edit.telemetry.report_rate import URGENT, ReportRate, is_due

TELEMETRY = Path(__file__).parents[5] / "jobs" / "inside" / "rung_inside" / "zero_edit" / "telemetry"


def test_the_first_updates_are_all_reported_and_no_two_reports_are_more_than_32_apart():
    due = [number for number in range(1, 100_000) if is_due(number)]
    assert due[:1024] == list(range(1, 1025))
    gaps = [(after, after - before) for before, after in itertools.pairwise(due)]
    assert all(gap <= max(1, number // 512) for number, gap in gaps)
    assert max(gap for _, gap in gaps) == gaps[-1][1] == 32


def test_bad_updates_in_a_row_are_reported_at_once_up_to_a_bound():
    rate = ReportRate()
    first = 100_001
    assert [rate.is_due(first + number, bad=True) for number in range(URGENT)] == [True] * URGENT
    later = [rate.is_due(first + number, bad=True) for number in range(URGENT, URGENT + 320)]
    assert sum(later) == 10
    assert not rate.newest_was_good
    rate.is_due(first, bad=False)
    assert rate.newest_was_good
    assert rate.is_due(first + 1, bad=True)


def test_what_is_reported_is_decided_without_a_clock():
    for path in TELEMETRY.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [each.name for each in node.names] if isinstance(node, ast.Import) else []
            assert not {"time", "datetime"} & set(names), path.name
