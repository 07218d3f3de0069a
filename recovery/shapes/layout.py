"""Says where the numbers of a reading stand in a line, so that many lines of one layout are read as columns."""

from __future__ import annotations

import math
import re

from rung.recovery.logs.line_reader import stands_alone
from rung.recovery.logs.reading import Reading
from rung.recovery.logs.step_count import PLAN_NAMES
from rung.recovery.shapes.plan import Layout, Plan, printed

# No line has so large numbers and so many of them that one is taken for another.
_PROBES = (1e6, 2e6)
# A number in a line whose digits are all 0.
_NUMBER = re.compile(r"0+(?:\.0*)?(?:[eE][-+]?0+)?")
# What is asked about each line, beside its reading.
_IS_ASKED = re.compile("ppl|erplexity")
_ZEROS = str.maketrans("123456789", "0" * 9)
_NOTHING = Reading()


def template_of(text: str) -> str:
    """Return what lines have in common that differ only in their numbers, however many digits these have."""
    return _NUMBER.sub("0", text.translate(_ZEROS))


def layout_of(text: str, plan: Plan | None, count: int) -> Layout | None:
    """Return the layout of lines like this, which have so many numbers; None where each must be taken by itself."""
    if plan is None or not stands_alone(text) or _IS_ASKED.search(text):
        return None
    readings = [plan.reading([base + place for place in range(count)]) for base in _PROBES]
    one, other = readings
    if not _is_training_step(one):
        return None

    def place_of(name: str) -> int | None:
        return _place(getattr(one, name), getattr(other, name), count)

    step, loss, lr, norm = (place_of(name) for name in ("step", "loss", "lr", "grad_norm"))
    found = [_place(one.values[name], other.values[name], count) for name in one.loss_terms]
    terms = tuple(place for place in found if place is not None)
    # A number that stands in the text, as NaN does, has no place.
    is_clear = len(terms) == len(found) and (norm is not None or one.grad_norm is None)
    is_clear = is_clear and (lr is not None or one.lr is None or math.isfinite(one.lr))
    if step is None or loss is None or not is_clear:
        return None
    same = tuple(place for name in ("scale", "epoch") if (place := place_of(name)) is not None)
    return Layout((printed(one), printed(other)), count, step, loss, lr, norm, same, terms)


def _is_training_step(reading: Reading) -> bool:
    """Return whether a reading has nothing but the numbers of one step of the training."""
    rest = reading._replace(step=None, loss=None, lr=None, grad_norm=None, scale=None, epoch=None)
    rest = rest._replace(values={}, throughput={}, is_record=False, loss_name="", loss_terms=())
    if reading.skipped is not None:
        rest = rest._replace(skipped=None)
    return not reading.skipped and rest == _NOTHING and PLAN_NAMES.isdisjoint(reading.values)


def _place(one: float | None, other: float | None, count: int) -> int | None:
    """Return the place of a number that two readings show; None where it is missing, or the same in both."""
    if one is None or other is None:
        return None
    place = one - _PROBES[0]
    return int(place) if place == other - _PROBES[1] and place in range(count) else None
