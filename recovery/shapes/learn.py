"""Learns from one line how all lines of its shape are read: where the numbers of the reading stand in the text.

Two probes are read in full: texts of the same shape in which each group of digits is one digit, repeated. A number of
the reading stands where both probes have it, and all else must be the same in both. That holds for every line of the
shape, because

- no pattern that finds numbers tells one digit from another (a test looks at each), so they find the same places, and
- names that have digits in them are part of the shape, and
- all that is decided by the value of a number is whether it is 0, and such lines have a plan of their own; or whether
  it is finite, a step or an epoch, and lines where the digits could decide that are unclear: they are read in full.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rung.recovery.logs.line_reader import MARK, named_numbers, read
from rung.recovery.logs.metric_names import Role, role
from rung.recovery.shapes.layout import layout_of, template_of
from rung.recovery.shapes.plan import Shape, Span, Zeros, pick_spans, printed
from rung.recovery.shapes.probes import RUN, Probes, Unclear

# A number of more digits, or with a longer exponent, may be infinite. `nan.0` is a number, and `nan.5` is none; of
# `[1, 20] l1: 0.5` and `[1, 20] l5: 0.5` only one has a loss.
_ODD = re.compile(
    r"[0-9]{41}|[eE][-+]?[0-9]{3}|(?:nan|inf)\.[0-9]|\] {1,4}(?:train |avg |running )?l[0-9]", re.IGNORECASE
)
# What can only be a step or an epoch, whatever its digits are.
_STEP, _EPOCH = re.compile(r"[0-9]{1,15}"), re.compile(r"[0-9]{1,15}(?:\.[0-9]*)?")
# A name is searched in the text of a line with one of these words, and the digits decide where it is found.
_SIDES = re.compile(r"val|test|dev", re.IGNORECASE)
# Of the records, those of single steps are read here.
_RECORD = f"{MARK} step "
# In a record this number becomes a part of a name.
_OPTIMIZER = "optimizer"


def learn(text: str, shape: Shape) -> None:
    """Add what this line shows to its shape, which stays unclear where the line shows nothing."""
    pairs = named_numbers(text)
    shape = _with_names(text, shape, [name for name, _ in pairs])
    try:
        _check(text, pairs)
        _add_plan(text, shape)
    except Unclear:
        shape.is_clear, shape.template = False, ""


def _with_names(text: str, shape: Shape, names: Iterable[str]) -> Shape:
    """Return the shape with the digits that names have in this line."""
    if not shape.kept:
        shape.kept = _spans_of_names(text, {name for name in names if RUN.search(name)})
        shape.guard = pick_spans(shape.kept)
    if shape.guard is None:
        return shape
    shape.template = ""
    return shape.guarded.setdefault(shape.guard(text), Shape(kept=shape.kept))


def _spans_of_names(text: str, names: Iterable[str]) -> tuple[Span, ...]:
    """Return the groups of digits that stand in a name."""
    kept: set[Span] = set()
    runs = [match.span() for match in RUN.finditer(text)]
    for name in names:
        at = text.find(name)
        while at >= 0:
            kept.update(run for run in runs if run[0] < at + len(name) and run[1] > at)
            at = text.find(name, at + 1)
    return tuple(sorted(kept))


def _check(text: str, pairs: Sequence[tuple[str, str]]) -> None:
    """Refuse a line whose digits may decide whether something is a finite number, a step or an epoch."""
    if _ODD.search(text) or (MARK in text and not text.startswith(_RECORD, text.find(MARK))):
        raise Unclear
    for name, raw in pairs:
        what = role(name)
        if name == _OPTIMIZER or (RUN.search(name) and _SIDES.search(text)):
            raise Unclear
        if (what is Role.STEP and not _STEP.fullmatch(raw)) or (what is Role.EPOCH and not _EPOCH.fullmatch(raw)):
            raise Unclear


def _add_plan(text: str, shape: Shape) -> None:
    kept = set(shape.kept)
    free = [span for match in RUN.finditer(text) if (span := match.span()) not in kept]
    if not shape.is_clear:
        probes = Probes(text, free)
        shape.spans = probes.spans()
        shape.slots, shape.is_clear = pick_spans(shape.spans), True
    numbers = shape.numbers(text)
    zeros: Zeros = tuple([value == 0.0 for value in numbers]) if 0.0 in numbers else ()
    # What is 0 stays so.
    still = [span for span, is_zero in zip(shape.spans, zeros, strict=False) if is_zero]
    probes = Probes(text, [run for run in free if not any(a <= run[0] and run[1] <= b for a, b in still)])
    plan = probes.plan(shape.spans)
    if printed(plan.reading(numbers) if plan else None) != printed(read(text)):
        raise Unclear
    shape.plans[zeros] = plan
    layout = layout_of(text, plan, len(numbers))
    if layout is not None:
        shape.layouts[zeros] = layout
        shape.template = template_of(text)
