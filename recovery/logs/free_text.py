"""Reads the named numbers that a framework or a person prints on one line.

Every pattern takes time linear in the length of the line: its repetitions are bounded and possessive.
"""

from __future__ import annotations

import math
import re

from rung.recovery.logs.key_values import (
    find_columns,
    find_pairs,
    find_spaced,
    find_spaced_losses,
    with_loss_in_english,
    with_plain_nan,
    without_commas,
    without_wishes,
)
from rung.recovery.logs.metric_names import STEP_NAMES, Role, is_average, is_whole_term, role, step_rank
from rung.recovery.logs.reading import Reading
from rung.recovery.logs.step_count import MAX_STEP
from rung.recovery.logs.step_position import (
    NOWHERE,
    Position,
    is_other_bar,
    read_composer,
    read_epoch,
    read_plan,
    read_position,
    read_resumed,
)
from rung.recovery.logs.throughput import is_iteration_time, may_hold_speed, read_speed, unit_of

_IN_DOUBT = STEP_NAMES.index("it")
# Looked up once: access to the members of an enum is slow, and the code below needs them several times per line.
_LOSS, _NAMED_TERM, _HELD_OUT, _STEP, _OTHER = Role.LOSS, Role.NAMED_TERM, Role.HELD_OUT, Role.STEP, Role.OTHER
_UNNAMED_TERM, _FUNCTION, _EPOCH = Role.UNNAMED_TERM, Role.FUNCTION, Role.EPOCH
_LR, _GRAD_NORM, _SCALE = Role.LR, Role.GRAD_NORM, Role.SCALE
_NAN_ITERATIONS, _SKIPPED_ITERATIONS = Role.NAN_ITERATIONS, Role.SKIPPED_ITERATIONS
_BESIDE_A_COUNT = frozenset({_LOSS, _NAMED_TERM, _HELD_OUT, _EPOCH})

# A line with nothing but the number of the epoch, as Keras prints above its bars.
_HEADING = re.compile(
    r"\W{0,8}+(?:train(?:ing)? )?epoch[ :#\[(]{0,4}+(\d{1,9}+)(?: ?/ ?\d{1,9}+)?\W{0,80}\Z", re.I | re.A
)
_SKIPPED = re.compile(r"\b(?:skipped|skipped_step|step_skipped|overflow)[\"']? {0,4}[:=] {0,4}(true|false)\b", re.I)
# A source file and a line number: loss.py:120
_FILES = (".py", ".cpp", ".cc", ".cu", ".c", ".h", ".rs")
# Not `Tokens/s/device` or `value`.
_SIDE = re.compile(r"\b(train|val(?!ue)|eval|test|dev(?!ic))", re.IGNORECASE)


def read_free_text(text: str) -> Reading | None:
    """Return the numbers of a line that is not a record of rung_inside, or None when it has none."""
    line = _Line(text)
    resumed = read_resumed(text, line.lower)
    if resumed is not None:
        return Reading(resumed_step=resumed)
    line.find_numbers()
    return line.reading()


def find_named_numbers(text: str) -> list[tuple[str, str]]:
    """Return every number of a line that has a name."""
    line = _Line(text)
    line.find_numbers()
    return line.pairs


def read_pairs(pairs: list[tuple[str, str]], text: str) -> Reading | None:
    """Return the reading for numbers whose names are known already, such as the cells of a table row."""
    line = _Line(text)
    line.sort(pairs)
    return line.reading()


class _Line:
    """Collects the numbers of one line by their role."""

    __slots__ = ("_loss_terms", "_step_rank", "found", "lower", "pairs", "speed", "step", "text", "values")

    def __init__(self, text: str) -> None:
        self.text = text
        self.lower = text.lower()
        # All numbers with their names, as they are printed.
        self.pairs: list[tuple[str, str]] = []
        self.values: dict[str, float] = {}
        self.found: dict[Role, tuple[str, float]] = {}
        self.speed: dict[str, float] = {}
        self.step: int | None = None
        self._step_rank = len(STEP_NAMES)
        self._loss_terms: list[str] = []

    def find_numbers(self) -> None:
        text, lower = with_plain_nan(without_commas(without_wishes(self.text, self.lower))), self.lower
        if not text.isascii():
            text = with_loss_in_english(text)
            lower = text.lower()
        self.sort(find_pairs(text, lower))
        if " = " in text and (plan := read_plan(text)):
            self.values = plan
        if "loss" in lower:
            if _LOSS not in self.found and _HELD_OUT not in self.found:
                self.sort(find_spaced_losses(text))
            # Most lines have none of these, and the search is slow.
            if "lr " in lower or "norm " in lower or "scale " in lower or "/s" in lower:
                self.sort(find_spaced(text))
        else:
            self.sort(find_columns(text))

    def sort(self, pairs: list[tuple[str, str]]) -> None:
        self.pairs += pairs
        for name, raw in pairs:
            value, what = float(raw), role(name)
            if what is _STEP:
                self._take_step(name, value)
            elif what is _OTHER:
                self._take_other(name, value)
            elif what is _FUNCTION:
                self._take_other(name, value)
                self.found.setdefault(what, (name, value))
            elif not name.endswith(_FILES):
                self._take(name, value, what)

    def _take(self, name: str, value: float, what: Role) -> None:
        plain = name.replace(" ", "_")
        self.values.setdefault(plain, value)
        is_term = what is _NAMED_TERM or what is _UNNAMED_TERM
        if is_term:
            self._loss_terms.append(plain)
        known = self.found.get(what)
        if (
            known is None
            # One term that is not finite makes the whole loss not finite, so report that term.
            or (is_term and math.isfinite(known[1]) and not math.isfinite(value))
            or (what is _LOSS and is_average(known[0]) and not is_average(name))
        ):
            self.found[what] = (name, value)

    def _take_other(self, name: str, value: float) -> None:
        # A name with a dot is a source file with a line number, not a measurement.
        if "." in name:
            return
        self.values[name.replace(" ", "_")] = value
        unit = unit_of(name)
        if unit is None and name == "time" and is_iteration_time(self.lower):
            unit = "s/it"
        if unit is not None and 0 < value < math.inf:
            self.speed.setdefault(unit, value)

    def _take_step(self, name: str, value: float) -> None:
        rank = step_rank(name)
        if rank < self._step_rank and 0 <= value < MAX_STEP and value.is_integer():
            self.step, self._step_rank = int(value), rank

    def reading(self) -> Reading | None:
        if may_hold_speed(self.lower):
            self.speed |= read_speed(self.text, self.lower)
        where = self._where()
        # A bar that counts something else, such as files: its speed is not that of the training.
        if self.speed and where == NOWHERE and not self.found and is_other_bar(self.text):
            self.speed = {}
        if not self.values and where == NOWHERE and not self.speed:
            return self._without_numbers()
        name, loss = self._loss() if self.found else ("", None)
        skipped, get = self._get(_SKIPPED_ITERATIONS), self._get
        step, epoch, total, in_epoch, first_epoch = where
        is_alone = loss is None and step is None
        by_function = self._loss_by_function() if loss is None and step is not None else None
        if by_function is not None:
            name, loss = by_function
        return Reading(
            step,
            loss,
            get(_LR),
            get(_GRAD_NORM),
            # A scale alone on its line can be a setting: in DeepSpeed's configuration 0 means "dynamic".
            None if is_alone else get(_SCALE),
            self._skipped() if skipped is None else skipped > 0,
            self.values,
            loss_name=name,
            held_out_loss=get(_HELD_OUT),
            total=total,
            epoch=epoch,
            in_epoch=in_epoch,
            first_epoch=first_epoch,
            step_is_late=loss is not None and step is None and "'epoch': " in self.text,
            loss_terms=tuple(self._loss_terms),
            throughput=self.speed,
            is_loss_by_function=by_function is not None,
            lone_scale=self.found.get(_SCALE) if is_alone and len(self.values) == 1 else None,
        )

    def _without_numbers(self) -> Reading | None:
        if "poch" in self.text and (match := _HEADING.match(self.text)):
            return Reading(epoch=float(match[1]))
        return None

    def _where(self) -> Position:
        epoch = self._get(_EPOCH)
        # `batch: 64` can be a setting or a count. Beside a loss or an epoch it is a count.
        if self.step is not None and (self._step_rank < _IN_DOUBT or self.found.keys() & _BESIDE_A_COUNT):
            return read_composer(self.text) or Position(self.step, self._epoch(epoch))
        where = read_position(self.text, self.lower)
        if where.step is None and epoch is None:
            return where
        return where if where.epoch is not None else where._replace(epoch=self._epoch(epoch))

    def _epoch(self, named: float | None) -> float | None:
        if named is not None and 0 <= named < MAX_STEP:
            return named
        return read_epoch(self.text) if "poch" in self.lower else None

    def _skipped(self) -> bool | None:
        if "kipped" not in self.text and "overflow" not in self.lower:
            return None
        match = _SKIPPED.search(self.text)
        return match[1].lower() == "true" if match else None

    def _get(self, what: Role) -> float | None:
        found = self.found.get(what)
        return found[1] if found else None

    def _loss(self) -> tuple[str, float | None]:
        """Return the name and value of the training loss.

        This is the whole loss, or a term of it that is not finite, or the first term where no whole loss is printed.
        """
        whole, named_term = self.found.get(_LOSS), self.found.get(_NAMED_TERM)
        # Megatron leaves the loss out of the line when the step was bad.
        if whole is None and (self._get(_NAN_ITERATIONS) or 0) > 0:
            return "nan_iterations", math.nan
        found = whole or named_term
        if found is None:
            return "", None
        for term in (named_term, self.found.get(_UNNAMED_TERM)):
            if math.isfinite(found[1]) and term is not None and not math.isfinite(term[1]):
                found = term
        # At the end transformers prints the average over the whole run. It does not describe the last steps.
        if math.isfinite(found[1]) and "train_runtime" in self.values:
            return "", None
        if self._is_held_out(found[0]):
            self.found.setdefault(_HELD_OUT, found)
            return "", None
        return found

    def _loss_by_function(self) -> tuple[str, float] | None:
        """Return a loss that has only the name of its function: `Step 50/900; acc: 21.1; xent: 6.04`."""
        if _LOSS in self.found or _NAMED_TERM in self.found or _HELD_OUT in self.found:
            return None
        term = self.found.get(_UNNAMED_TERM)
        found = term if term is not None and is_whole_term(term[0]) else self.found.get(_FUNCTION)
        return None if found is None or self._is_held_out(found[0]) else found

    def _is_held_out(self, name: str) -> bool:
        """Return whether the last word such as train or val before a plain `loss` names held-out data."""
        lower = self.lower
        if not ("val" in lower or "test" in lower or "dev" in lower) or "train" in name.lower():
            return False
        sides = _SIDE.findall(self.text, 0, max(0, self.text.find(name)))
        return bool(sides) and sides[-1].lower() != "train"
