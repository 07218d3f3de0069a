"""Judges the numbers of a log for what they may show, where there are too few of them to act on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from rung.jobs.model.fault import FaultKind
from rung.recovery.doubts.columns import UNNAMED
from rung.recovery.doubts.doubt import Doubt
from rung.recovery.doubts.names import Column, is_on_held_out_data
from rung.recovery.doubts.series import Point, Series

_K = FaultKind
TOO_FEW = "too few readings to act on"
# The last loss is this many times the first one, and above all before: alone, and where the one before is high too.
FAR_ALONE, FAR = 30.0, 8.0
# A loss that is never again below so many times its first value.
SOARED, FIRST_VALUES = 100.0, 3
# A value loss that has risen so far and is above this: values that are off by a thousand.
RIVAL_RISES, RIVAL_FAR = 100.0, 1e6
# A loss whose level rose so many times and stays there.
LEVEL = 3.0
STAYS = 0.8
# A loss that only rises counts when it has become this many times its first value, in steps that grow.
ONLY_RISES = 2.0
# No vocabulary has so many words: a model that guesses has a lower perplexity.
IMPOSSIBLE_PERPLEXITY = 1e7
# A loss that falls so many times in one reading was ruined before it; one that rises so is ruined now, by any design.
FALLS_AT_ONCE = 1e5
# What may rise by design, or has an unknown meaning, must rise further.
BY_DESIGN, UNKNOWN = 1e4, 100.0
# Above every time stamp.
BEYOND_ALL = 1e20
# No mean over a batch is as large.
HUGE = 1e9
GRADIENTS_FAR = 1e3
FALLS_OF_SCALE = 6
SWINGS_OF_SCALE = 3
_LOSSES = (Column.LOSS, Column.HELD_OUT, Column.RIVAL)


def judge(series: Sequence[Series]) -> list[Doubt]:
    """Return what the numbers may show, at most one doubt of a kind."""
    found: dict[FaultKind, Doubt] = {}
    every = series
    scaled = any(each.what is Column.SCALE for each in series)
    # Where the loss has its name, rmse and the like are scores, which may have no value.
    has_loss = any(each.what is Column.LOSS and "loss" in each.name and each.finite for each in series)
    if has_loss:
        series = [each for each in series if not _is_score(each)]
    for each in sorted(series, key=lambda one: one.what is not Column.LOSS):
        doubt = _judge_one(each, scaled=scaled)
        if doubt is not None:
            found.setdefault(doubt.kind, doubt)
    if _K.NAN_LOSS not in found and (doubt := _never_measured(every)):
        found[_K.NAN_LOSS] = doubt
    if _K.NAN_LOSS in found:
        found.pop(_K.GRAD_NONFINITE, None)
    return sorted(found.values(), key=lambda doubt: doubt.line)


def _judge_one(series: Series, *, scaled: bool) -> Doubt | None:
    if series.what in _LOSSES or (series.what is Column.UNKNOWN and series.leads):
        # A part of the loss may rise by design, as a KL term does.
        is_whole = series.leads or "loss" in series.name
        return _not_finite(series) or (_rises(series) if is_whole else None)
    if series.name.startswith(UNNAMED) and (doubt := _beyond_all(series)):
        return doubt
    if series.what is Column.SCORE or series.what is Column.UNKNOWN:
        return _score_lost(series)
    if series.what is Column.NORM:
        return _gradients(series, scaled=scaled)
    if series.what is Column.SCALE:
        return _scale(series)
    if series.what is Column.SKIPS:
        return _skips(series)
    return _perplexity(series) if series.what is Column.PERPLEXITY else None


def _is_score(series: Series) -> bool:
    return series.what is Column.LOSS and "loss" not in series.name and not series.finite


def _doubt(kind: FaultKind, point: Point, seen: str, not_acted_on: str) -> Doubt:
    return Doubt(kind, point.line.number, point.step, point.line.text.strip(), seen, not_acted_on)


def _not_finite(series: Series) -> Doubt | None:
    bad = [point for point in series.points if not math.isfinite(point.value)]
    if not bad:
        return None
    first, count = bad[0], len(bad)
    times = "once" if count == 1 else f"{count} times"
    seen = f"{series.name!r} is {first.value} at {first.at}, {times} of {len(series.points)}"
    ends_finite = math.isfinite(series.points[-1].value)
    if series.what is Column.HELD_OUT:
        return _doubt(_K.NAN_LOSS, first, seen, "a value on held-out data changes no weight")
    if series.what is Column.UNKNOWN:
        # Unlike a loss, an unknown number may begin with inf or NaN, as the best one so far does.
        is_lost = len(series.finite) > 0 and count > 1 and not ends_finite
        always = count == len(series.points) and count > 2 and math.isnan(first.value)
        return _doubt(_K.NAN_LOSS, first, seen, "Rung does not know this name") if is_lost or always else None
    if ends_finite:
        return _doubt(_K.NAN_LOSS, first, seen, "finite ones come after it, so that the run got past it")
    return _doubt(_K.NAN_LOSS, first, seen, "Rung does not know that this is the training loss, or saw it once only")


def _never_measured(series: Sequence[Series]) -> Doubt | None:
    """Return a doubt where nothing that was measured on held-out data is ever a number.

    One score of several may have no value, as that of a series without a range.
    """
    held_out = [each for each in series if each.what is Column.HELD_OUT or is_on_held_out_data(each.name)]
    points = [point for each in held_out for point in each.points]
    if len(points) < 3 or any(not math.isnan(point.value) for point in points):
        return None
    seen = f"{held_out[0].name!r} is nan from {points[0].at} on"
    return _doubt(_K.NAN_LOSS, points[0], seen, "a value on held-out data changes no weight")


def _beyond_all(series: Series) -> Doubt | None:
    """Return a doubt about a column without a name that holds only numbers which nothing measures."""
    values = [point.value for point in series.finite]
    if len(values) < 3 or min(values) < BEYOND_ALL:
        return None
    seen = f"{series.name!r} is {values[-1]:.4g} at {series.finite[-1].at}"
    return _doubt(_K.DIVERGENCE, series.finite[-1], seen, "no header says what this number is")


def _score_lost(series: Series) -> Doubt | None:
    """Return a doubt about a score that was finite and then is NaN until the end."""
    values = series.values
    if len(values) < 3 or not math.isfinite(values[0]) or any(map(math.isfinite, values[-2:])):
        return None
    first = next(point for point in series.points if not math.isfinite(point.value))
    seen = f"{series.name!r} is {first.value} from {first.at} on"
    return _doubt(_K.NAN_LOSS, first, seen, "it may be a score that has no value, and no loss is bad")


def _rises(series: Series) -> Doubt | None:
    points = series.finite
    values = [point.value for point in points]
    if not values:
        return None
    if values[-1] > HUGE and values[-1] >= values[0]:
        seen = f"{series.name!r} is {values[-1]:.4g} at {points[-1].at}"
        return _doubt(
            _K.DIVERGENCE, points[-1], seen, "without a reading that was lower there is nothing to compare with"
        )
    if min(values) <= 0 or series.what is Column.HELD_OUT:
        return None
    if len(values) == 2 and series.what is not Column.UNKNOWN and values[1] > FALLS_AT_ONCE * max(values[0], 1.0):
        seen = f"{series.name!r} rose from {values[0]:.4g} at {points[0].at} to {values[1]:.4g} at {points[1].at}"
        return _doubt(_K.DIVERGENCE, points[1], seen, TOO_FEW)
    if len(values) < 3:
        return None
    if soared := _soared(series, values):
        return soared
    if series.what is Column.LOSS and values[0] > FALLS_AT_ONCE * values[1]:
        seen = f"{series.name!r} was {values[0]:.4g} at {points[0].at} and {values[1]:.4g} at the next reading"
        return _doubt(_K.DIVERGENCE, points[0], seen, "the run may have got past it")
    least = {Column.RIVAL: BY_DESIGN, Column.UNKNOWN: UNKNOWN}.get(series.what, 1.0)
    rise = values[-1] / values[0]
    if rise < least and not _rival_explodes(series, values):
        return None
    if not (_ends_far(values) or _only_rises(values) or _level_rose(values)):
        return None
    low = min(points, key=lambda point: point.value)
    start = points[0] if points[0].value <= 3 * low.value else low
    seen = f"{series.name!r} rose from {start.value:.4g} at {start.at} to {values[-1]:.4g} at {points[-1].at}"
    return _doubt(_K.DIVERGENCE, points[-1], seen, TOO_FEW)


def _soared(series: Series, values: Sequence[float]) -> Doubt | None:
    """Return a doubt about a loss that left its first values far below in one reading and has not come back."""
    if series.what is not Column.LOSS:
        return None
    for begin in range(1, min(FIRST_VALUES, len(values) - FIRST_VALUES) + 1):
        level, after = max(values[:begin]), min(values[begin:])
        if after > SOARED * level:
            seen = f"{series.name!r} was {level:.4g} in the beginning and never below {after:.4g} after it"
            return _doubt(_K.DIVERGENCE, series.finite[-1], seen, "it may fall again, so that the run gets past it")
    return None


def _ends_far(values: Sequence[float]) -> bool:
    before = values[:-1]
    alone = values[-1] > FAR_ALONE * max(before)
    both = (
        len(values) > 3
        and min(values[-2:]) > FAR * max(values[0], *values[:-2][-8:])
        and values[-1] > STAYS * values[-2]
    )
    return (
        alone
        or both
        or (values[-1] >= max(before) and values[-1] > FAR * values[0] and values[-1] > FAR * median(before))
    )


def _rival_explodes(series: Series, values: Sequence[float]) -> bool:
    """Return whether the loss of a critic only rises, further than rewards that are learned explain."""
    rises = len(values) > 4 and all(late > early for early, late in pairwise(values))
    return series.what is Column.RIVAL and rises and values[-1] > max(RIVAL_FAR, RIVAL_RISES * values[0])


def _only_rises(values: Sequence[float]) -> bool:
    """Return whether a loss only rises, and faster and faster: a sum over a growing number of terms does not."""
    grows = [late - early for early, late in pairwise(values)]
    if min(grows) <= 0 or values[-1] < ONLY_RISES * values[0]:
        return False
    return grows[-1] > 2 * grows[0] or (values[-1] > FAR * values[0] and max(grows) > 3 * median(grows))


def _level_rose(values: Sequence[float]) -> bool:
    """Return whether the loss of a log rose to another level and stays there, or rises further."""
    if len(values) < 6:
        return False
    late = values[-max(3, len(values) // 3) :]
    early = values[: max(3, len(values) // 3)]
    return min(late) > LEVEL * max(early) and late[-1] > STAYS * max(values)


def _gradients(series: Series, *, scaled: bool) -> Doubt | None:
    points = series.points
    bad = [point for point in points if not math.isfinite(point.value)]
    # A scaler that looks for its scale shows gradients of inf.
    if len(bad) > (2 if scaled else 1) and not math.isfinite(points[-1].value):
        seen = f"{series.name!r} is {bad[0].value} at {bad[0].at}, {len(bad)} of {len(points)} times"
        return _doubt(_K.GRAD_NONFINITE, bad[0], seen, "ten in a row after finite ones are acted on")
    values = [point.value for point in series.finite]
    if len(values) < 4 or min(values) <= 0:
        return None
    if min(values[-2:]) > GRADIENTS_FAR * median(values[:-2]) and values[-1] >= STAYS * max(values):
        seen = f"{series.name!r} rose from {median(values[:-2]):.4g} to {values[-1]:.4g} at {series.finite[-1].at}"
        return _doubt(_K.DIVERGENCE, series.finite[-1], seen, "the loss has not risen for long enough")
    return None


def _scale(series: Series) -> Doubt | None:
    points = series.finite
    values = [point.value for point in points]
    moves = [(late > early) - (late < early) for early, late in pairwise(values)]
    turns = [move for move in moves if move]
    falls = len(turns) - max((index + 1 for index, move in enumerate(turns) if move > 0), default=0)
    if falls >= FALLS_OF_SCALE and moves[-2:] == [-1, -1] and not _is_single(points):
        seen = f"{series.name!r} fell {falls} times without a rise, to {values[-1]:g} at {points[-1].at}"
        return _doubt(_K.SCALE_COLLAPSE, points[-1], seen, "a new scaler falls so while it looks for its scale")
    swings = min(turns.count(1), turns.count(-1))
    if swings >= SWINGS_OF_SCALE and 4 * len(turns) > len(moves):
        seen = f"{series.name!r} went up {turns.count(1)} and down {turns.count(-1)} times in {len(values)} readings"
        return _doubt(_K.SCALE_THRASH, points[-1], seen, "the share of skipped steps is not known")
    return None


def _is_single(points: Sequence[Point]) -> bool:
    """Return whether the last fall of a scale comes after more lines than all the falls before it took."""
    lines = [point.line.number for point in points]
    return lines[-1] - lines[-2] > max(8, lines[-2] - lines[0]) // 3


def _skips(series: Series) -> Doubt | None:
    """Return a doubt about steps that are skipped again and again, by a count or by a mark on each line."""
    points = series.finite
    values = [point.value for point in points]
    grows = sorted(values) == values
    skipped = [late > early for early, late in pairwise(values)] if grows else [v > 0 for v in values]
    late = skipped[len(skipped) // 2 :]
    if sum(skipped) < FALLS_OF_SCALE - 1 or 5 * sum(skipped) < len(skipped) or sum(late) < 2:
        return None
    seen = f"steps were skipped at {sum(skipped)} of {len(points)} readings"
    return _doubt(_K.SCALE_THRASH, points[-1], seen, "fewer than 100 steps show no share")


def _perplexity(series: Series) -> Doubt | None:
    last = series.finite[-3:]
    if len(last) < 2 or any(point.value < IMPOSSIBLE_PERPLEXITY for point in last):
        return None
    seen = f"{series.name!r} is {last[-1].value:.3g} at {last[-1].at}, worse than a guess"
    return _doubt(_K.DIVERGENCE, last[-1], seen, "the loss itself was not seen to rise")
