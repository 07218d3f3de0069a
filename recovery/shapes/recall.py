"""Reads a line as one of the same shape was read before; a line of a new shape is read in full, and learned from.

What a line means is said in logs/line_reader.py alone. A plan gives the same reading for less: learn.py has the proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter

from rung.recovery.logs.line_reader import read
from rung.recovery.logs.reading import Reading, Readings
from rung.recovery.shapes.columns import readings_of
from rung.recovery.shapes.learn import learn
from rung.recovery.shapes.plan import MOST_PLANS, NO_PLAN, Shape

# A line that is longer is most likely a dump of data, which has no shape.
LONGEST = 512
# Shapes that are known to all logs together, about 2 kB each; trainings of one script have the same ones.
MOST_SHAPES = 2048
# Shapes that one log has shown once.
MOST_SEEN = 1024
# One log may teach so many shapes at first, and one more for each so many lines that were read by one. Learning takes
# as long as reading ten lines, and what one log teaches takes the place of what others have taught.
FREE, LINES_EACH = 64, 16

_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_UNCLEAR = Shape()
_template = attrgetter("template")


class ShapeStore:
    """Keeps the shapes of all logs; the oldest makes room for a new one.

    Many threads use it without a lock: a shape is put here when it is complete, and what two of them learn from lines
    of one shape is the same.
    """

    def __init__(self) -> None:
        self.shapes: dict[bytes, Shape] = {}

    def put(self, key: bytes, shape: Shape) -> None:
        if len(self.shapes) >= MOST_SHAPES:
            # A copy, because another thread may put one at the same moment.
            self.shapes.pop(next(iter(list(self.shapes))), None)
        self.shapes[key] = shape


_ALL = ShapeStore()


class KnownLines:
    """Reads the lines of one log."""

    def __init__(self, store: ShapeStore = _ALL) -> None:
        self._store = store
        self._shapes = store.shapes
        self._seen: set[bytes] = set()
        self.recalled = self.learned = 0

    def read(self, text: str) -> Reading | None:
        """Return the same as `line_reader.read`."""
        if len(text) > LONGEST:
            return read(text)
        key = text.encode("utf-8", "surrogatepass").translate(_ZEROS)
        shape = known = self._shapes.get(key)
        if known is None:
            self._see(key, text)
            return read(text)
        if known.guard is not None:
            shape = known.guarded.get(known.guard(text))
        if shape is None or not shape.is_clear:
            return self._read_unclear(known, shape, text)
        numbers = [*map(float, shape.slots(text))] if shape.slots is not None else []
        plan = shape.plans.get(tuple([value == 0.0 for value in numbers]) if 0.0 in numbers else (), NO_PLAN)
        if plan is NO_PLAN:
            return self._read_unclear(known, shape, text)
        self.recalled += 1
        return None if plan is None else plan.reading(numbers)

    def templates(self, block: bytes) -> list[str]:
        """Return the template of each line of a block of ASCII; "" for a line that must be read by itself."""
        keys = block.translate(_ZEROS).split(b"\n")
        return [*map(_template, map(self._shapes.get, keys, repeat(_UNCLEAR)))]

    def read_alike(self, texts: Sequence[str]) -> Readings | None:
        """Return the readings of lines that have one template; None where they must be read one by one."""
        get = self._shapes.get
        shapes = [get(text.encode("ascii").translate(_ZEROS), _UNCLEAR) for text in texts]
        return readings_of(shapes, texts)

    def _see(self, key: bytes, text: str) -> None:
        """Learn a shape when it comes for the second time: most that come once never come again."""
        if key not in self._seen:
            if len(self._seen) >= MOST_SEEN:
                self._seen.clear()
            self._seen.add(key)
        elif self._may_learn:
            self._seen.discard(key)
            shape = Shape()
            learn(text, shape)
            self._store.put(key, shape if shape.is_clear or shape.guard else _UNCLEAR)

    def _read_unclear(self, known: Shape, shape: Shape | None, text: str) -> Reading | None:
        """Read a line in full that no plan fits, and learn one where that is possible."""
        is_open = shape is None or (shape.is_clear and len(shape.plans) < MOST_PLANS)
        if is_open and len(known.guarded) < MOST_PLANS and self._may_learn:
            learn(text, known)
        return read(text)

    @property
    def _may_learn(self) -> bool:
        if self.learned >= FREE + self.recalled // LINES_EACH:
            return False
        self.learned += 1
        return True
