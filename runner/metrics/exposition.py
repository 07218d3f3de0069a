"""Writes metrics in the text format of Prometheus (version 0.0.4). Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rung.jobs.model.terminal_text import clean

# What an HTTP server says of this text.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricType(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"


@dataclass(frozen=True)
class Sample:
    """One value; `suffix` is what the name has beside that of its family, such as `_bucket`."""

    value: float
    labels: Mapping[str, str]
    suffix: str = ""


@dataclass(frozen=True)
class Family:
    """A metric with all its samples."""

    name: str
    kind: MetricType
    description: str
    samples: Sequence[Sample]


def exposition(families: Iterable[Family]) -> str:
    """Return the text of all families; one without a sample is left out."""
    return "".join(f"{line}\n" for family in families if family.samples for line in _lines(family))


def histogram(bounds: Sequence[float], counts: Sequence[int], total: float) -> list[Sample]:
    """Return the samples of a histogram; `counts` are per bucket, the last one is above all bounds."""
    reached, samples = 0, []
    for bound, count in zip([*bounds, math.inf], counts, strict=True):
        reached += count
        samples.append(Sample(reached, {"le": _number(bound)}, "_bucket"))
    return [*samples, Sample(total, {}, "_sum"), Sample(reached, {}, "_count")]


def _lines(family: Family) -> Iterator[str]:
    description = family.description.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {family.name} {description}"
    yield f"# TYPE {family.name} {family.kind}"
    for sample in family.samples:
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels.items())
        yield f"{family.name}{sample.suffix}{f'{{{labels}}}' if labels else ''} {_number(sample.value)}"


def _escaped(value: str) -> str:
    """Return the value of a label. Hosts and stored rows choose some of them, so control codes are removed."""
    plain = clean(value).encode("utf-8", "replace").decode()
    return plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isinf(value) or math.isnan(value):
        return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
