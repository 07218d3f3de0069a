"""Collects the figures of one whole run from its log, to compare with those of another run.

Memory is bounded. verdict.py judges the figures.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from rung.recovery.logs.line_reader import FIELD, MARK, LineReader
from rung.recovery.logs.lines import Line
from rung.recovery.logs.progress import Progress, ProgressTracker
from rung.recovery.logs.reading import Reading
from rung.recovery.logs.unwrap import Unwrapper
from rung.recovery.series.point import Point
from rung.recovery.series.thinning import Series
from rung.recovery.validation.near_limit import NearLimit, most_watched, read_near

USAGE = f"{MARK} usage"
NEAR = f"{MARK} near "
# Gradient norms kept for their median; when there are more, every other one is dropped.
MOST_NORMS = 4096
MAX_NAME = 100


@dataclass(frozen=True)
class Usage:
    """The time and memory of a run, measured inside its process; None where it was not measured."""

    updates: int | None = None
    seconds_per_step: float | None = None
    gpu_bytes: int | None = None
    rss_bytes: int | None = None
    # The GPU by the driver's name and its capability; "" where the process used none.
    gpu: str = ""
    capability: tuple[int, int] | None = None


@dataclass(frozen=True)
class Figures:
    """The figures of one run."""

    progress: Progress = field(default_factory=Progress)
    # Reports of the training loss, and how many of them were not finite.
    losses: int = 0
    bad_losses: int = 0
    norms: int = 0
    bad_norms: int = 0
    median_norm: float | None = None
    largest_norm: float | None = None
    # Updates that the loss scaler skipped; None when the log does not report it.
    skipped: int | None = None
    lowest_scale: float | None = None
    points: tuple[Point, ...] = ()
    usage: Usage | None = None
    # The modules that came near FP16's limit; None: nobody watched them.
    near: NearLimit | None = None


class FigureReader:
    """Reads the figures of one log, line by line."""

    def __init__(self) -> None:
        self._unwrapper, self._reader, self._track = Unwrapper(), LineReader(), ProgressTracker()
        self._series = Series()
        self._losses = self._bad_losses = self._norms = self._bad_norms = 0
        self._skipped: int | None = None
        self._lowest_scale: float | None = None
        self._sampled_norms: list[float] = []
        self._stride = 1
        self._largest_norm: float | None = None
        self._usage: Usage | None = None
        self._near: NearLimit | None = None

    def feed(self, line: Line) -> None:
        text = self._unwrapper.join_wrapped(line.text)
        if MARK in text and USAGE in text:
            self._usage = most_updates(self._usage, read_usage(text.partition(USAGE)[2]))
            return
        if MARK in text and NEAR in text:
            self._near = most_watched(self._near, read_near(text.partition(NEAR)[2]))
            return
        reading = self._reader.read(text)
        if reading is None:
            return
        self._track.store(reading)
        if self._track.has_records and not reading.is_record:
            return
        step = self._track.advance(reading)
        if not self._track.redrawn:
            self._take(step, reading)

    def _take(self, step: int | None, reading: Reading) -> None:
        if step is not None:
            self._series.add(step, reading)
        if reading.loss is not None:
            self._losses += 1
            self._bad_losses += not math.isfinite(reading.loss)
        if reading.grad_norm is not None:
            self._take_norm(reading.grad_norm)
        if reading.skipped is not None:
            self._skipped = (self._skipped or 0) + reading.skipped
        if reading.scale is not None:
            self._lowest_scale = reading.scale if self._lowest_scale is None else min(self._lowest_scale, reading.scale)

    def _take_norm(self, norm: float) -> None:
        self._norms += 1
        if not math.isfinite(norm):
            self._bad_norms += 1
            return
        self._largest_norm = norm if self._largest_norm is None else max(self._largest_norm, norm)
        if self._norms % self._stride == 0:
            self._sampled_norms.append(norm)
        if len(self._sampled_norms) > MOST_NORMS:
            self._sampled_norms, self._stride = self._sampled_norms[::2], self._stride * 2

    def figures(self) -> Figures:
        return Figures(
            progress=self._track.snapshot(),
            losses=self._losses,
            bad_losses=self._bad_losses,
            norms=self._norms,
            bad_norms=self._bad_norms,
            median_norm=median(self._sampled_norms) if self._sampled_norms else None,
            largest_norm=self._largest_norm,
            skipped=self._skipped,
            lowest_scale=self._lowest_scale,
            points=tuple(self._series.points()),
            usage=self._usage,
            near=self._near,
        )


def read_usage(text: str) -> Usage:
    """Parse a usage record; invalid fields are left out."""
    fields: dict[str, str] = dict(FIELD.findall(text))
    updates, gpu_bytes, rss_bytes = (_count(fields.get(name)) for name in ("updates", "gpu_bytes", "rss_bytes"))
    seconds = _number(fields.get("seconds_per_step"))
    return Usage(updates, seconds or None, gpu_bytes, rss_bytes, _name(fields.get("gpu", "")), _capability(fields))


def most_updates(one: Usage | None, other: Usage) -> Usage:
    """Return the record with more updates: that is the process that trained."""
    return other if one is None or (other.updates or 0) > (one.updates or 0) else one


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _count(text: str | None) -> int | None:
    value = _number(text)
    return int(value) if value is not None and value < 2**53 else None


def _name(text: str) -> str:
    try:
        return str(json.loads(text) if text.startswith('"') else text)[:MAX_NAME]
    except ValueError:
        return ""


def _capability(fields: Mapping[str, str]) -> tuple[int, int] | None:
    major, _, minor = fields.get("capability", "").partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() and len(major + minor) < 5 else None
