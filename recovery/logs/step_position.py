"""Reads where in the run a line is: its step, its epoch, and the total of its progress bar.

The numbers are as printed. step_count.py converts a count that restarts every epoch.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_SPACED_STEP = re.compile(
    r"(?:(?<!\w)|(?<=global_))(?:step|iter|iteration|batch|num_update|upd|itr|minibatch)s?"
    r"(?: {0,8}+\[ {0,8}+#?| {1,8}+#?)(\d{1,15}+)(?!\w|\.\d)",
    re.IGNORECASE | re.ASCII,
)
# it 14: only at the beginning of a line or after the prefix of a logger, because it is a word, too.
_IT = re.compile(r"(?:^|[:\]|>-] )it {1,8}+(\d{1,15}+)(?!\w|\.\d)", re.ASCII)
_STEP_WORDS = ("step", "iter", "batch", "num_update", "upd ", "itr ")
# [epoch][ batch/batches], as mmengine, torchvision and the ImageNet example print it. timm: Train: 0 [ 50/100 (
_BRACKETS = re.compile(
    r"(?:\[(\d{1,9}+)\]|\bTrain: (\d{1,9}+)) {0,4}+\[ {0,8}+(\d{1,12}+)/(\d{1,12}+)(?:\]| \()", re.ASCII
)
# Composer: [epoch=3][batch=6/8]:
_COMPOSER = re.compile(r"\[epoch=(\d{1,9}+)\]\[batch=(\d{1,12}+)/(\d{1,12}+)\]", re.ASCII)
# mmengine's loop by iterations: Iter(train) [  20/60].
_ITER = re.compile(r"\bIter(?:ation)?(?:\(train\))? {0,2}+\[ {0,12}+(\d{1,12}+)/ {0,12}+(\d{1,12}+)\]", re.ASCII)
# The tutorial: [3,  2400] loss: 1.25
_COUNTS = re.compile(
    r"\[ ?(\d{1,9}+), {1,8}+(\d{1,12}+)\] {1,4}+(?:train |avg |running )?"
    r"(?:loss|(?:r?mse|l1|ce|bce|nll|xent|ctc|mlm)\b)",
    re.ASCII | re.IGNORECASE,
)
# tqdm: 12/60 [00:01<...; ignite: [12/60]  20%|; Keras: 12/60 ━━━ or 12/60 [==>...; rich, as in Lightning: ━━━ 12/60
# 0:00:01 • 0:00:04; fastprogress: [12/60 00:01<00:04.
_BAR = re.compile(
    r"(?<![\w/])(\d{1,12}+)/(\d{1,12}+)"
    r"(?: (?:(\[[=>.]|\u2501)|\[[\d?]|\d{1,4}+:\d\d:\d\d \u2022|[\d:]{4,12}+<\d)|\] {1,4}+\d{1,3}+%\|)",
    re.ASCII,
)
# Ultralytics: epoch/epochs, memory, losses, then the bar, drawn by tqdm or by itself: 1/4 2.0it/s.
_ULTRALYTICS = re.compile(
    r" {0,20}+(\d{1,6}+)/\d{1,6}+ {1,20}+\d[\d.]{0,8}+[GM] [^\n]{0,200}?"
    r" (\d{1,9}+)/(\d{1,9}+) (?:\[|\d[\d.]{0,9}+(?:it/s|s/it))",
    re.ASCII,
)
# A bar without a total: 201it [00:24, 7.66it/s
_ENDLESS = re.compile(r"(?<![\w/.])(\d{1,12}+)it \[\d", re.ASCII)
_EPOCH = re.compile(
    r"\bepoch(?:\(train\))?[ :=\[(#]{0,4}+(\d{1,9}+(?:\.\d{1,20}+)?)(?!\w|\.\d)", re.IGNORECASE | re.ASCII
)
# Bars that count something other than training steps.
_OTHER_BAR = re.compile(
    r"\W{0,40}+(?:valid|eval|test|sanity|predict|infer|map|load|download|generat|token|filter|scan|extract|process"
    r"|writ|upload|creat|fetch|cach|build|comput|encod|preprocess|sav|shard|read|pack|index|collect|copy|count|sort|split)",
    re.IGNORECASE,
)
# "Resumed at step 500", "resuming from checkpoint step_500.pt", Lightning's "Restored all states from the checkpoint at
# .../epoch=2-step=48.ckpt": printed once, before the first step.
_RESUMED = re.compile(
    r"\b(?:resum(?:e|ed|ing)|restor(?:ed|ing))\b"
    r"[^\n]{0,120}?\b(?:global_)?(?:step|iteration|iter)[ _=:#]{1,3}(\d{1,15}+)(?!\w|\.\d)",
    re.IGNORECASE | re.ASCII,
)
# transformers at its start: "  Num Epochs = 3", "  Total optimization steps = 1,200".
_PLAN = re.compile(r"\b(Num Epochs|Total optimization steps) = (\d[\d,]{0,15})(?![\w.])", re.ASCII)
_PLAN_NAMES = {"Num Epochs": "num_train_epochs", "Total optimization steps": "total_optimization_steps"}


class Position(NamedTuple):
    step: int | None = None
    epoch: float | None = None
    total: int | None = None
    in_epoch: bool = False
    first_epoch: int | None = None


NOWHERE = Position()


def read_resumed(text: str, lower: str) -> int | None:
    """Return the step that a run reports to resume from."""
    if ("resum" in lower or "restor" in lower) and (match := _RESUMED.search(text)):
        return int(match[1])
    return None


def read_plan(text: str) -> dict[str, float]:
    """Return the length of the run that transformers prints before the first step."""
    if match := _PLAN.search(text):
        return {_PLAN_NAMES[match[1]]: float(match[2].replace(",", ""))}
    return {}


def read_epoch(text: str) -> float | None:
    match = _EPOCH.search(text)
    return float(match[1]) if match else None


def read_composer(text: str) -> Position | None:
    """Return the position in a heading of Composer."""
    if "][batch=" in text and (match := _COMPOSER.search(text)):
        return Position(int(match[2]), float(match[1]), int(match[3]), True, 1)
    return None


def is_other_bar(text: str) -> bool:
    """Return whether a line is a bar whose words say that it counts something other than training steps."""
    return ("%|" in text or " [" in text or "\u2501" in text) and bool(_OTHER_BAR.match(text))


def read_position(text: str, lower: str) -> Position:
    """Return the position of a line without a named step such as `step=12`; `lower` is the text in lower case."""
    for word in _STEP_WORDS:
        at = lower.find(word)
        if at >= 0 and (match := _SPACED_STEP.match(text, at)):
            return Position(int(match[1]))
    if "it " in lower and (match := _IT.search(lower)):
        return Position(int(match[1]))
    if "/" in text and (found := _read_bar(text)) is not None:
        return found
    if "it [" in text and (match := _ENDLESS.search(text)) and not _OTHER_BAR.match(text):
        return Position(int(match[1]), in_epoch=True)
    if "] " in text and (match := _COUNTS.search(text)):
        return Position(int(match[2]), float(match[1]), None, True)
    return NOWHERE


def _read_bar(text: str) -> Position | None:
    if "/" in text[:24] and (match := _ULTRALYTICS.match(text)):
        return Position(int(match[2]) or None, float(match[1]), int(match[3]), True, 1)
    if "[" in text:
        if match := _ITER.search(text):
            return Position(int(match[1]), None, int(match[2]))
        if match := _BRACKETS.search(text):
            epoch = match[1] or match[2]
            # OpenMMLab counts epochs from 1, the others from 0.
            first = 1 if "(train)" in text or "Epoch [" in text else 0
            return Position(int(match[3]), float(epoch), int(match[4]), True, first)
    if not (" [" in text or "\u2501" in text or "%|" in text):
        return None
    match = _BAR.search(text)
    if not match or _OTHER_BAR.match(text):
        return None
    done, total = int(match[1]), int(match[2])
    # Keras draws one bar per epoch, below a line with the epoch.
    in_epoch = match[3] is not None or ("poch" in text and _EPOCH.search(text) is not None)
    first_epoch = 1 if match[3] is not None else 0 if "\u2022" in text else None
    # A bar is drawn at 0 before the first step, also by a run that resumes at step 500.
    return Position(done or None, None, total, in_epoch, first_epoch)
