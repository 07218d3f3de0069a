"""Reads one line of a log: records of rung_inside here, free text in free_text.py, table rows in tables.py.

progress.py and detect/detector.py handle what depends on several lines (a missing step, a second NaN).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable

from rung.jobs.model.saturation import read_saturation
from rung.recovery.logs.free_text import find_named_numbers, read_free_text
from rung.recovery.logs.metric_names import Role, role
from rung.recovery.logs.reading import Reading
from rung.recovery.logs.step_count import MAX_STEP
from rung.recovery.logs.tables import Tables, is_no_header

# Only this many characters of a line are searched for numbers; the widest progress bars are much shorter.
MAX_READ = 8 * 1024

MARK = "rung|"
_RECORD = re.compile(r"rung\| (knobs|resumed|step|saved|metric|replay|hands|end|course|places|not_whole)(?= |$)")
# The prefixes of torchrun, torchrun --tee, mpirun --tag-output and srun --label.
_RANK = re.compile(
    r"(?:\[?rank ?\d{1,6}\]?:|\[default\d{1,6}\]:|\[\d{1,6},\d{1,6}\]<std(?:out|err)>:|\d{1,5}: ) ?", re.I
)
_BEGINS_RANK = "[0123456789rR"
# Of these the ranks of torchrun; a number alone in front of a line may be anything.
_TORCHRUN_RANK = re.compile(r"(?:\[?rank ?|\[default)(\d{1,6})\]?:", re.I)
# A line that shows settings: nanoGPT's "Overriding: eval_interval = 100", a Namespace of argparse.
_SETTINGS = re.compile(
    r"\W{0,4}+(?:overriding|namespace|args|arguments|config|configuration|hparams|hyper-?parameters|settings|options)"
    r" ?[:=(]",
    re.IGNORECASE,
)
_FIELD_ENDS = (": NaN,", ": NaN };", ": NaN },", ": NaN }")
# The fields of a replay record that are kept.
REPLAY_NAMES = (
    *("step", "weights", "grown", "inputs", "fp32", "grads", "where", "cost"),
    *("fits", "needs", "limit", "rank"),
)
# A file or a module has no longer name than this.
MAX_TEXT = 255
# The longest list of places: 16 of them, with names of 200 characters. A longer one is left out and never cut.
MAX_CURE = 4 * 1024
FIELD = re.compile(r'([\w./-]{1,80}+)=("(?:[^"\\]|\\.)*"|\S+)')


class LineReader:
    """Reads the lines of one log in order, because the lines before decide what some numbers mean.

    A table names its numbers in a line above them. A score such as rmse is the loss from its second line on, where the
    log has no loss by name. A loss scale alone on its line is a setting until it changes. Where several ranks print
    their losses, those of the lowest rank are the curve.
    """

    def __init__(self, read_alone: Callable[[str], Reading | None] | None = None) -> None:
        """`read_alone`: reads a line for itself, as `read` below does."""
        self._read_alone = read_alone or read
        self._tables = Tables()
        self._has_loss = self._has_score = False
        self._lone_scale: tuple[str, float] | None = None
        self._lowest_rank: int | None = None

    def read(self, text: str) -> Reading | None:
        """Return the numbers a line reports, or None when it reports nothing."""
        if MARK in text:
            return self._read_alone(text)
        # The first character is a cheap test that most lines fail.
        first = text[:1]
        reading = self._tables.read(without_rank(text) if first in _BEGINS_RANK else text) or self._read_alone(text)
        if reading is None:
            return None
        if first in "[rR" and reading.loss is not None and self._is_of_another_rank(text, reading):
            return reading._replace(loss=None, loss_name="", is_loss_by_function=False)
        if reading.lone_scale is not None:
            return self._take_lone_scale(reading, *reading.lone_scale)
        if reading.is_loss_by_function:
            return self._take_loss_by_function(reading)
        if not self._has_loss:
            self._has_loss = reading.loss is not None
        return reading

    @property
    def reads_each_alone(self) -> bool:
        """Return whether the lines so far change nothing in a line that `stands_alone` and has a loss by name."""
        return self._has_loss and not self._tables.is_open

    def _is_of_another_rank(self, text: str, reading: Reading) -> bool:
        """Return whether a loss is finite and not that of the lowest rank; one that is bad counts in every rank."""
        match = _TORCHRUN_RANK.match(text)
        # Without a launcher that keeps lines whole, two ranks may share one.
        if match is None or "[rank" in text[match.end() :]:
            return False
        rank = int(match[1])
        if self._lowest_rank is None or rank < self._lowest_rank:
            self._lowest_rank = rank
        return rank > self._lowest_rank and not reading.has_bad_number

    def _take_loss_by_function(self, reading: Reading) -> Reading:
        """Return the reading without its loss where the log has one by name, or may still print one after a score."""
        is_first_score = role(reading.loss_name) is Role.FUNCTION and not self._has_score
        self._has_score = self._has_score or is_first_score
        if self._has_loss or is_first_score:
            return reading._replace(loss=None, loss_name="", is_loss_by_function=False)
        return reading

    def _take_lone_scale(self, reading: Reading, name: str, scale: float) -> Reading:
        """Return the reading with its scale where that differs from the one before under the same name."""
        before, self._lone_scale = self._lone_scale, (name, scale)
        has_changed = before is not None and before[0] == name and before[1] != scale
        # 0 is never measured so: it stands for a scale that the scaler chooses.
        return reading._replace(scale=scale) if has_changed and scale > 0 and "loss" in name.lower() else reading


def read(text: str) -> Reading | None:
    """Return the numbers a line reports, or None when it reports nothing."""
    if MARK in text:
        match = _RECORD.search(text)
        return _read_record(match[1], text[match.end() :]) if match else None
    # A comment in printed source code.
    if "# " in text and text.lstrip(" ").startswith("# "):
        return None
    # Fields of a JavaScript object in printed source code; JSON has quotes around its names.
    if text.endswith(_FIELD_ENDS) and text.startswith("  ") and text.strip(" ").partition(": NaN")[0].isidentifier():
        return None
    plain = without_rank(text[:MAX_READ])
    return None if _SETTINGS.match(plain) else read_free_text(plain)


def stands_alone(text: str) -> bool:
    """Return whether a line is no part of a table and of no rank, whatever its digits are."""
    if MARK in text:
        return True
    return _TORCHRUN_RANK.match(text) is None and is_no_header(without_rank(text))


def named_numbers(text: str) -> list[tuple[str, str]]:
    """Return every number of a line that has a name, as it is printed, whether it is part of the reading or not."""
    if MARK in text:
        match = _RECORD.search(text)
        return FIELD.findall(text, match.end()) if match else []
    return find_named_numbers(without_rank(text[:MAX_READ]))


def without_rank(text: str) -> str:
    """Return a line without the rank prefix of a launcher."""
    match = _RANK.match(text) if text[:1] in _BEGINS_RANK else None
    return text[match.end() :] if match else text


def _read_record(word: str, rest: str) -> Reading | None:
    fields: dict[str, str] = dict(FIELD.findall(rest))
    if word == "knobs":
        return Reading(effective={name: _effective(name, text) for name, text in fields.items()}, is_record=True)
    if word == "replay":
        values = {name: _text(fields[name]) for name in REPLAY_NAMES if name in fields}
        cure = str(_unquoted(fields.get("cure", "")))
        values |= {"cure": cure} if 0 < len(cure) <= MAX_CURE else {}
        return Reading(replay=values, is_record=True) if values else None
    if word in ("hands", "not_whole"):
        return _read_shortcoming(word, fields)
    numbers = _numbers(fields)
    step = _whole(numbers.pop("step", None))
    if word == "end":
        return Reading(updates=_whole(numbers.get("updates")), is_record=True)
    if word == "places":
        found = read_saturation(_whole(numbers.get("updates")), _whole(numbers.get("saturated")))
        return Reading(saturation=found, is_record=True) if found else None
    if word == "course":
        return Reading(course=_whole(numbers.get("number")), is_record=True)
    if word == "resumed":
        return Reading(resumed_step=step, is_record=True)
    if word == "saved":
        return Reading(saved_step=step, saved_file=_text(fields["file"]) if "file" in fields else None, is_record=True)
    if word == "metric":
        return Reading(values=numbers, is_record=True)
    return None if step is None and not numbers else _read_step(step, numbers)


def _read_shortcoming(word: str, fields: dict[str, str]) -> Reading:
    if word == "hands":
        return Reading(hands=_hands(fields), is_record=True)
    return Reading(not_whole=_text(fields.get("why", "the job does not say why")), is_record=True)


def _read_step(step: int | None, numbers: dict[str, float]) -> Reading:
    skipped, optimizer = numbers.pop("skipped", None), _whole(numbers.pop("optimizer", None))
    get = numbers.get
    loss_terms = tuple(name for name in numbers if role(name) in (Role.NAMED_TERM, Role.UNNAMED_TERM))
    name, loss = _loss(numbers, loss_terms)
    # Another optimizer than the one that is followed: a finite loss of that one proves nothing about this.
    name = name if optimizer is None else f"{name} of optimizer {optimizer}"
    return Reading(
        step,
        loss,
        get("lr"),
        get("grad_norm"),
        get("scale"),
        None if skipped is None else skipped != 0,
        numbers,
        is_record=True,
        loss_name=name,
        loss_terms=loss_terms,
    )


def _hands(fields: dict[str, str]) -> str:
    """Return why there are no hands, the reason first; "" where there are."""
    if "why" not in fields:
        return ""
    details = [f"{name} {_text(text)}" for name, text in fields.items() if name != "why"]
    return "; ".join([_text(fields["why"]), *details])[:MAX_TEXT]


def _loss(numbers: dict[str, float], loss_terms: tuple[str, ...]) -> tuple[str, float | None]:
    """Return the loss of a record, or the term of it that is not finite."""
    loss = numbers.get("loss")
    if loss is not None and math.isfinite(loss):
        for term in loss_terms:
            if not math.isfinite(numbers[term]):
                return term, numbers[term]
    return "loss", loss


def _numbers(fields: dict[str, str]) -> dict[str, float]:
    try:
        return {name: float(text) for name, text in fields.items()}
    except ValueError:
        return {name: number for name, text in fields.items() if (number := _number(text)) is not None}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _whole(value: float | None) -> int | None:
    """Return a number as a step, or None when it cannot be one."""
    return int(value) if value is not None and 0 <= value < MAX_STEP and value.is_integer() else None


def _text(text: str) -> str:
    """Return a text value without its quotes."""
    return str(_unquoted(text))[:MAX_TEXT]


def _unquoted(text: str) -> object:
    try:
        return json.loads(text) if text.startswith('"') else text
    except ValueError:
        return text


def _effective(name: str, text: str) -> object:
    """Return the live value of a knob. A place may have a number for its name, as in a Sequential, and stays a text."""
    value = _plain(text)
    return text if name == "fp32_modules" and isinstance(value, (int, float)) else value


def _plain(text: str) -> object:
    """Convert a knob's value to a number, a text, or None for `off`."""
    if text.startswith('"'):
        return _unquoted(text)
    if text in ("off", "none", "None", "null"):
        return None
    number = _number(text)
    if number is None or not math.isfinite(number):
        return text if number is None else number
    return int(number) if text.lstrip("-").isdigit() and abs(number) < MAX_STEP else number
