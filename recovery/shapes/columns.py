"""Reads many lines of one template at once: the numbers of all, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from operator import lt

from rung.recovery.logs.reading import Readings
from rung.recovery.shapes.plan import Layout, Plan, Shape, Zeros

Row = tuple[float, ...]
Columns = Sequence[Sequence[float]]


def readings_of(shapes: Sequence[Shape], texts: Sequence[str]) -> Readings | None:
    """Return the readings of lines with these shapes; None where their layouts differ, or what must be the same."""
    distinct = {id(shape): shape for shape in shapes}.values()
    rows: list[Row] = []
    for shape, text in zip(shapes, texts, strict=True):
        if shape.slots is None:
            return None
        rows.append(tuple(map(float, shape.slots(text))))
    zeros: Zeros = tuple([value == 0.0 for value in rows[0]]) if 0.0 in rows[0] else ()
    layout, plan = shapes[0].layouts.get(zeros), shapes[0].plans.get(zeros)
    if layout is None or plan is None:
        return None
    # Another thread may have found meanwhile that one of them is not clear.
    if any(not shape.template or shape.layouts.get(zeros) != layout for shape in distinct):
        return None
    columns = list(zip(*rows, strict=True))
    return _readings(rows, columns, layout, plan) if _are_alike(columns, zeros, layout) else None


def _are_alike(columns: Columns, zeros: Zeros, layout: Layout) -> bool:
    """Return whether each number is 0 in all lines or in none, and those that must be the same are."""
    for place, column in enumerate(columns):
        if column.count(0.0) != (len(column) if zeros and zeros[place] else 0):
            return False
    return all(column.count(column[0]) == len(column) for column in (columns[place] for place in layout.same))


def _readings(rows: Sequence[Row], columns: Columns, layout: Layout, plan: Plan) -> Readings | None:
    steps = [*map(int, columns[layout.step])]
    if not all(map(lt, steps, islice(steps, 1, None))):
        return None
    first, lrs = plan.reading(rows[0]), layout.lr if layout.lr is None else columns[layout.lr]
    if lrs is None and first.lr is not None:
        lrs = [first.lr] * len(rows)
    return Readings(
        first,
        plan.reading(rows[-1]),
        steps,
        columns[layout.loss],
        lrs,
        None if layout.norm is None else columns[layout.norm],
        [columns[place] for place in layout.terms],
        rows,
        plan.reading,
    )
