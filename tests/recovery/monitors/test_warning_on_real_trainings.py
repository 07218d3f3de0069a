"""Tests the early warning on traces of real trainings (tests/bench/traces.py); `make bench` uses many more."""

from __future__ import annotations

from statistics import median

import pytest

from tests.bench.figures import SLOW, by_detector, left_course
from tests.bench.traces import load

TRACES = load()
HEALTHY = [trace for fault_step, trace in TRACES if fault_step is None]
BROKEN = [(fault_step, trace) for fault_step, trace in TRACES if fault_step is not None and trace.broke is not None]
# A recurrent network without clipping, which needs longer than the patience to recover from a batch eight times too
# large. A warning is not wrong there, but the run does recover.
DISTURBED = "adding spikes"


def name_of(trace):
    return trace.plan


def test_the_traces_cover_many_kinds_of_trainings():
    assert sum(len(trace.loss) for trace in HEALTHY) > 15_000
    assert len({trace.task for trace in HEALTHY}) == 8 and len(BROKEN) >= 10


@pytest.mark.parametrize("trace", HEALTHY, ids=name_of)
def test_a_healthy_training_gives_no_warning(trace):
    assert by_detector(trace) == [] or trace.plan == DISTURBED


def test_slow_divergences_give_a_warning_before_the_first_value_that_is_not_finite():
    slow = [(fault_step, trace) for fault_step, trace in BROKEN if trace.broke - left_course(trace, fault_step) >= SLOW]
    leads = [trace.broke - next(iter(by_detector(trace)), trace.broke) for _, trace in slow]
    assert len(slow) >= 8
    assert min(leads) > 0 and median(leads) >= 50


def test_no_warning_comes_before_the_fault_of_a_training():
    early = [
        trace.plan
        for fault_step, trace in TRACES
        if fault_step and any(step <= fault_step for step in by_detector(trace))
    ]
    assert early == []
