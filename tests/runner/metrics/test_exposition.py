"""Tests the text format: what is written is what Prometheus' own parser reads."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from rung.jobs.model.terminal_text import clean
from rung.runner.metrics.exposition import Family, MetricType, Sample, exposition, histogram


@given(st.text(), st.floats(allow_nan=False))
def test_any_label_and_any_number_is_read_as_it_was_written(label: str, value: float) -> None:
    text = exposition([Family("rung_x", MetricType.GAUGE, 'a \\ "b"\nc', [Sample(value, {"host": label})])])
    (family,) = text_string_to_metric_families(text)
    (sample,) = family.samples
    assert (sample.labels, sample.value) == ({"host": clean(label)}, value)


def test_numbers_that_are_not_finite_have_prometheus_words() -> None:
    samples = [Sample(value, {"i": str(index)}) for index, value in enumerate([math.inf, -math.inf, math.nan])]
    text = exposition([Family("rung_x", MetricType.GAUGE, "x", samples)])
    assert [line.split()[1] for line in text.splitlines()[2:]] == ["+Inf", "-Inf", "NaN"]


def test_the_buckets_of_a_histogram_include_those_below() -> None:
    text = exposition([Family("rung_s", MetricType.HISTOGRAM, "x", histogram((1.0, 2.5), [3, 0, 4], 12.5))])
    (family,) = text_string_to_metric_families(text)
    assert [(sample.labels.get("le"), sample.value) for sample in family.samples] == [
        ("1", 3), ("2.5", 3), ("+Inf", 7), (None, 12.5), (None, 7),
    ]  # fmt: skip


def test_a_family_without_a_sample_is_left_out() -> None:
    assert exposition([Family("rung_x", MetricType.GAUGE, "x", [])]) == ""
