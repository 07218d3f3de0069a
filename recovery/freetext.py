"""Owns the reading of free text: the numbers that frameworks and people print, each with its name, on one line.

Every pattern is linear in the length of the line: its repetitions are bounded and give nothing back.
"""

from __future__ import annotations

import math
import re

from recovery.lossname import STEP_NAMES, Role, role, step_rank
from recovery.reading import Reading

# Steps beyond this are not steps; it also keeps them inside what a database integer holds.
MAX_STEP = 10**15
# Looked up once: the members of an enum are slow to reach, and this is done several times a line.
_LOSS, _PART, _HELD_OUT, _STEP, _OTHER = Role.LOSS, Role.PART, Role.HELD_OUT, Role.STEP, Role.OTHER
_LR, _GRAD_NORM, _SCALE = Role.LR, Role.GRAD_NORM, Role.SCALE
_NAN_ITERATIONS, _SKIPPED_ITERATIONS = Role.NAN_ITERATIONS, Role.SKIPPED_ITERATIONS

_NUMBER = r"[-+]?(?:\d{1,40}+(?:\.\d{0,40}+)?+(?:[eE][-+]?\d{1,5}+)?+|\.\d{1,40}+|[nN][aA][nN]|[iI][nN][fF](?:inity)?+)"
# What must not follow: a unit (`nanms`), more of a version (2.18.3), of a time (0:12:30) or of a date, a bar (12%|).
# Lightning's bar fills a number up to its usual width and so prints `nan.0` and `inf.0`.
_ENDS = r"(?:(?<=[nNfF])\.0{1,8}+)?+(?!\w|\.\d|:\d|-\d|%\|)"
# A tensor or a list printed where a number was meant, or transformers' numbers in quotes.
_WRAPPED = r"(?:tensor\(|array\(|np\.float\d\d\(|\[|\()?+[\"']?+"
_NAME = r"[A-Za-z_][\w./@-]{0,60}+"
_EQUALS = rf"[\"'\])]{{0,2}}+ {{0,20}}+[:=\uff1a] {{0,20}}+{_WRAPPED}({_NUMBER}){_ENDS}"
_PAIR = re.compile(rf"\b({_NAME}){_EQUALS}", re.ASCII)
# Names of two words are known by the first. Looking for them takes three times as long, so it is done where the second
# word is in the line.
_FIRST_WORD = (
    r"(?:(?:[lL]earning|[gG]rad(?:ient)?|[lL]oss(?= scale)|[lL][mM]|[tT]rain(?:ing)?|[vV]al(?:id|idation)?"
    r"|[eE]val(?:uation)?|[tT]est|[tT]otal|[aA]verage|[aA]vg|[mM]ean|skipped|nan) )?+"
)
_TWO_WORDS = re.compile(rf"\b({_FIRST_WORD}{_NAME}){_EQUALS}", re.ASCII)
_SECOND_WORDS = (" loss", " rate", " norm", " scale", " iterations")
# A loss is often printed with nothing but blanks, or a table's bar, between name and number.
_SPACED_LOSS = re.compile(
    rf"([lL](?:oss|OSS)(?:[_/.]\w{{1,30}}+)?+) {{0,30}}+[|\u2502]?+ {{0,30}}+(?<!\w){_WRAPPED}({_NUMBER}){_ENDS}",
    re.ASCII,
)
_BEFORE_LOSS = re.compile(r"(?:[A-Za-z]{1,20} |[\w./-]{1,40})\Z", re.ASCII)
_SPACED_STEP = re.compile(
    r"(?<!\w)(?:step|iter|iteration|batch|num_update)s? {1,8}+\[?#?(\d{1,15}+)(?!\w|\.\d)", re.IGNORECASE | re.ASCII
)
_STEP_WORDS = ("step", "iter", "batch", "num_update")
# fairseq: | loss 6.6 | num_updates 1632 | lr 0.0015 |
_BETWEEN_BARS = re.compile(rf"\| ([A-Za-z_]\w{{0,60}}+) ({_NUMBER})(?= \||$)", re.ASCII)
# [epoch][ batch/batches], as mmengine, torchvision and the ImageNet example print it.
_BRACKETS = re.compile(r"\[(\d{1,9}+)\] {0,4}+\[ {0,8}+(\d{1,12}+)/(\d{1,12}+)\]", re.ASCII)
_COUNTS = re.compile(r" {0,8}+\[ ?\d{1,9}+, {1,8}+(\d{1,12}+)\]", re.ASCII)
# tqdm: 12/60 [00:01<...; Keras: 12/60 ━━━ or 12/60 [==>...; rich, as in Lightning: ━━━ 12/60 0:00:01 • 0:00:04.
_BAR = re.compile(r"(?<![\w/])(\d{1,12}+)/(\d{1,12}+) (?:\[[\d?=>.]|\u2501|\d{1,4}+:\d\d:\d\d \u2022)", re.ASCII)
_EPOCH = re.compile(r"\bepoch[ :=\[(]{0,4}+(\d{1,9}+)", re.IGNORECASE | re.ASCII)
# Bars that count something else than training steps.
_OTHER_BAR = re.compile(
    r"\W{0,40}+(?:valid|eval|test|sanity|predict|infer|map|load|download|generat|token|filter|scan)", re.IGNORECASE
)
# Ultralytics: epoch, memory, then the terms of the loss, named only in a header line above.
_LOSS_COLUMNS = re.compile(
    rf" {{0,20}}+\d{{1,6}}+/\d{{1,6}}+ +\d[\d.]*+[GM]((?: +{_NUMBER}){{3,5}}) +\d+ +\d+\b", re.ASCII
)
# "Resumed at step 500", "resuming from checkpoint step_500.pt", Lightning's "Restored all states from the checkpoint at
# .../epoch=2-step=48.ckpt": said once, before the first step.
_RESUMED = re.compile(
    r"\b(?:resum(?:e|ed|ing)|restor(?:ed|ing))\b"
    r"[^\n]{0,120}?\b(?:global_)?(?:step|iteration|iter)[ _=:#]{1,3}(\d{1,15}+)(?!\w|\.\d)",
    re.IGNORECASE | re.ASCII,
)
_SIDE = re.compile(r"\b(train|val|eval|test|dev)", re.IGNORECASE)


def read_free_text(text: str) -> Reading | None:
    """Return the numbers of a line that somebody else printed, or None when it reports nothing."""
    line = _Line(text)
    if ("resum" in line.lower or "restor" in line.lower) and (match := _RESUMED.search(text)):
        return Reading(resumed_step=int(match[1]))
    line.find_numbers()
    line.find_step()
    if not line.values:
        return Reading(line.step, total=line.total) if line.step is not None else None
    if not line.found:
        return Reading(line.step, values=line.values, total=line.total)
    return line.reading()


class _Line:
    """Holds the numbers of one line while they are sorted by what they stand for."""

    __slots__ = ("_step_rank", "found", "lower", "step", "text", "total", "values")

    def __init__(self, text: str) -> None:
        self.text = text
        self.lower = text.lower()
        self.values: dict[str, float] = {}
        self.found: dict[Role, tuple[str, float]] = {}
        self.step: int | None = None
        self.total: int | None = None
        self._step_rank = len(STEP_NAMES)

    def find_numbers(self) -> None:
        text, lower = self.text, self.lower
        if ":" in text or "=" in text or "\uff1a" in text:
            self._sort((_TWO_WORDS if _has_second_word(lower) else _PAIR).findall(text))
        if " | " in text:
            self._sort(_BETWEEN_BARS.findall(text))
        if "loss" in lower and _LOSS not in self.found and _HELD_OUT not in self.found:
            self._sort([(_whole_name(text, match), match[2]) for match in _SPACED_LOSS.finditer(text)])
        if "/" in text[:16] and (columns := _LOSS_COLUMNS.match(text)):
            self._sort([(f"loss_{index}", raw) for index, raw in enumerate(columns[1].split()[:3], 1)])

    def _sort(self, pairs: list[tuple[str, str]]) -> None:
        for name, raw in pairs:
            value, what = float(raw), role(name)
            if what is _STEP:
                self._take_step(name, value)
                continue
            if what is _OTHER:
                # A name with a dot is a file and its line, not a measurement.
                if "." not in name:
                    self.values[name.replace(" ", "_")] = value
                continue
            self.values[name.replace(" ", "_")] = value
            known = self.found.get(what)
            # One term that is not finite spoils the whole, so it is the one to tell of.
            if known is None or (what is _PART and math.isfinite(known[1]) and not math.isfinite(value)):
                self.found[what] = (name, value)

    def _take_step(self, name: str, value: float) -> None:
        rank = step_rank(name)
        if rank < self._step_rank and 0 <= value < MAX_STEP and value.is_integer():
            self.step, self._step_rank = int(value), rank

    def reading(self) -> Reading:
        name, loss = self._loss()
        skipped = self._get(_SKIPPED_ITERATIONS)
        return Reading(
            self.step,
            loss,
            self._get(_LR),
            self._get(_GRAD_NORM),
            # A scale alone on its line is a setting: 0 means "dynamic" in DeepSpeed's.
            self._get(_SCALE) if loss is not None or self.step is not None else None,
            None if skipped is None else skipped > 0,
            self.values,
            loss_name=name,
            held_out_loss=self._get(_HELD_OUT),
            total=self.total,
        )

    def _get(self, what: Role) -> float | None:
        found = self.found.get(what)
        return found[1] if found else None

    def _loss(self) -> tuple[str, float | None]:
        """Return the training loss: the whole if it is there, else the first or the first spoilt of its terms."""
        whole = self.found.get(_LOSS)
        # Megatron leaves the loss out of the line when the step was bad.
        if whole is None and (self._get(_NAN_ITERATIONS) or 0) > 0:
            return "nan_iterations", math.nan
        found = whole or self.found.get(_PART)
        if found is None:
            return "", None
        # The average over a whole run, printed at its end, says nothing of the last steps while it is finite.
        if math.isfinite(found[1]) and "train_runtime" in self.values:
            return "", None
        if self._is_held_out(found[0]):
            self.found.setdefault(_HELD_OUT, found)
            return "", None
        return found

    def _is_held_out(self, name: str) -> bool:
        """Tell whether a plain `loss` stands in a line about held-out data, by the last such word before it."""
        lower = self.lower
        if not ("val" in lower or "test" in lower or "dev" in lower) or "train" in name.lower():
            return False
        sides = _SIDE.findall(self.text, 0, max(0, self.text.find(name)))
        return bool(sides) and sides[-1].lower() != "train"

    def find_step(self) -> None:
        if self.step is not None:
            return
        text, lower = self.text, self.lower
        for word in _STEP_WORDS:
            at = lower.find(word)
            if at >= 0 and (match := _SPACED_STEP.match(text, at)):
                self.step = int(match[1])
                return
        if "/" in text:
            self._find_bar()
        elif "]" in text[:32] and (match := _COUNTS.match(text)):
            self.step = int(match[1])

    def _find_bar(self) -> None:
        text = self.text
        if ("][" in text or "] " in text) and (match := _BRACKETS.search(text)):
            self.step = _overall(int(match[1]), int(match[3]), int(match[2]))
        elif (" [" in text or "\u2501" in text) and (match := _BAR.search(text)) and not _OTHER_BAR.match(text):
            done, self.total = int(match[1]), int(match[2])
            # A bar at 0 is drawn before anything was done, also by a run that goes on at step 500.
            if done == 0:
                return
            epoch = _EPOCH.search(text) if "poch" in text else None
            self.step = _overall(int(epoch[1]), self.total, done) if epoch else done


def _overall(epoch: int, per_epoch: int, done: int) -> int | None:
    """Return the step over all epochs: inside an epoch the count starts again."""
    step = epoch * per_epoch + done
    return step if step < MAX_STEP else None


def _has_second_word(lower: str) -> bool:
    for word in _SECOND_WORDS:
        at = lower.find(word)
        if at > 0 and lower[at - 1].isalpha():
            return True
    return False


def _whole_name(text: str, match: re.Match[str]) -> str:
    """Return a loss's name with what stands before the word `loss`: train_loss, val loss."""
    before = _BEFORE_LOSS.search(text[max(0, match.start() - 48) : match.start()])
    return (before[0] if before else "") + match[1]
