"""Finds where a new course of the training begins: another model, or another optimizer for the same one.

A course is what one optimizer does, or several that take turns, as in a GAN. The losses of two courses have nothing to
do with each other. Whether optimizers take turns shows only after some updates, so the first ones are held back. A
second new optimizer for the same parameters is a habit, as in a script that makes one every epoch: its course goes on.
"""

from __future__ import annotations

import weakref
from typing import Any

from rung_inside.zero_edit.telemetry.report_rate import ReportRate

# So many updates in a row without one of the optimizers before are no turn. WGAN makes 5 of the critic between two.
IN_A_ROW = 8
# The most after optimizers that did take turns with longer turns than that.
MOST_IN_A_ROW = 64
# What an update is: reported, only reported if it is bad, held back, or the one that shows that a course has begun.
REPORTED, OTHER, HELD, NEW = "reported", "other", "held", "new"
NEW_OPTIMIZER = "new_optimizer"


class Source:
    """One optimizer whose updates come: its number in the order of the first updates, and what it trains."""

    __slots__ = ("course", "number", "optimizer", "parameters", "rate")

    def __init__(self, optimizer: Any, number: int) -> None:
        self.number = number
        self.optimizer = weakref.ref(optimizer)
        self.rate = ReportRate()
        # The course that it belongs to; 0: not known yet.
        self.course = 0
        held = [each for group in optimizer.param_groups for each in group["params"]]
        self.parameters = {id(each): weakref.ref(each) for each in held}

    def shares(self, other: Source) -> bool:
        """Return whether both train a parameter; one that is gone may have left its id to another."""
        both = self.parameters.keys() & other.parameters.keys()
        return any(self.parameters[each]() is other.parameters[each]() is not None for each in both)

    def is_within(self, other: Source) -> bool:
        """Return whether the other trains every parameter of this one."""
        seen = other.parameters
        return all(each in seen and mine() is seen[each]() for each, mine in self.parameters.items())


class Courses:
    """Follows which optimizers the updates come from."""

    def __init__(self) -> None:
        self.number = 1
        # The step before the first update of this course.
        self.start: int | None = None
        self.why = ""
        self._sources: weakref.WeakKeyDictionary[Any, Source] = weakref.WeakKeyDictionary()
        # The source of the newest update, which is asked for several times in each.
        self._newest: tuple[weakref.ref[Any], Source] | None = None
        self._made = 0
        self._reporting: Source | None = None
        self._members: list[Source] = []
        self._since_reporting = 0
        self._new: list[Source] = []
        self._new_updates = 0
        self._new_start = 0
        self._shared = False
        self._in_a_row = IN_A_ROW

    def source(self, optimizer: Any) -> Source:
        if self._newest is not None and self._newest[0]() is optimizer:
            return self._newest[1]
        found = self._sources.get(optimizer)
        if found is None:
            self._made += 1
            found = self._sources[optimizer] = Source(optimizer, self._made)
        self._newest = (weakref.ref(optimizer), found)
        return found

    def is_reporting(self, source: Source) -> bool:
        return self._reporting is source or self._reporting is None

    def number_of(self, step: int) -> int:
        """Return the number of an update in its course, from 1."""
        return step - (step - 1 if self.start is None else self.start)

    def place(self, source: Source, step: int) -> str:
        """Take one update, in order, and return what it is."""
        if source is self._reporting and not self._new:
            self._since_reporting = 0
            return REPORTED
        if self._reporting is None:
            self._begin([source], step - 1)
            return REPORTED
        if source.course:
            return self._place_known(source)
        if self._made_anew(source):
            # Those that are gone are forgotten, so that a script may do this for ever.
            self._members = [each for each in self._members if each.optimizer() is not None]
            self._join([source])
            self._reporting, self._since_reporting = source, 0
            return REPORTED
        if not self._new:
            self._new_start, self._new_updates, self._shared = step - 1, 0, False
        if source not in self._new:
            self._new.append(source)
            # Now, while the parameters exist: a script may end before this is asked.
            self._shared = self._shared or any(source.shares(other) for other in self._members)
        self._new_updates += 1
        # Optimizers that are gone take no more turns.
        if self._new_updates <= self._in_a_row and any(each.optimizer() is not None for each in self._members):
            return HELD
        self.begin_new()
        return NEW

    def _made_anew(self, source: Source) -> bool:
        """Return whether this course began with a new optimizer for the same parameters, and this is another one."""
        is_habit = self.why == NEW_OPTIMIZER and not self._new
        return is_habit and any(source.is_within(each) for each in self._members)

    def _place_known(self, source: Source) -> str:
        self._join(self._new)
        if source.course < self.number:
            # It takes turns, only longer ones.
            self._in_a_row = min(2 * self._in_a_row, MOST_IN_A_ROW)
            self._join([source])
        self._since_reporting = 0 if source is self._reporting else self._since_reporting + 1
        if self._since_reporting > IN_A_ROW:
            self._reporting, self._since_reporting = source, 0
        return REPORTED if source is self._reporting else OTHER

    def _join(self, sources: list[Source]) -> None:
        """Let optimizers that take turns with those of this course belong to it."""
        for source in sources:
            source.course = self.number
            self._members.append(source)
        self._new = []

    @property
    def may_end_new(self) -> bool:
        """Return whether a run that ends now ends in a new course: one update alone may be a turn."""
        return self._new_updates > 1 and bool(self._new)

    def begin_new(self) -> None:
        """Begin the course that the newest updates belong to."""
        self.why = NEW_OPTIMIZER if self._shared else "new_model"
        self.number += 1
        self._begin(self._new, self._new_start)

    def _begin(self, sources: list[Source], start: int) -> None:
        self.start, self._reporting, self._since_reporting = start, sources[0], 0
        self._members = []
        self._join(sources)
