"""Reads speed: how many steps, samples or tokens a second a line reports, each under its own unit.

Numbers stay as printed: `4ms/step` is 4 ms/it and not 250 it/s, so that nothing is rounded.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

_PER_SECOND = {
    "it/s": "it|its|iter|iters|iteration|iterations|step|steps|update|updates|batch|batches|ba",
    "samples/s": "sample|samples|img|imgs|image|images|im|example|examples|ex|seq|seqs|sequence|sequences|sentence"
    "|sentences|item|items",
    "tokens/s": "tok|toks|token|tokens|word|words",
}
_UNITS = {name: unit for unit, names in _PER_SECOND.items() for name in names.split("|")}
_ALL = "|".join(sorted(_UNITS, key=len, reverse=True))
_STEPS = _PER_SECOND["it/s"]
_NUMBER = r"(\d{1,40}+(?:\.\d{0,40}+)?(?:[eE][-+]?\d{1,3}+)?)"
# 9.03it/s, 151.2 samples/sec; then 1.08s/it, 6ms/step, 120us/step. `12k` is not accepted.
_RATE = re.compile(rf"(?<![\w.:]){_NUMBER} ?({_ALL})/s(?:ec(?:ond)?)?\b(?! ?[=:])", re.IGNORECASE | re.ASCII)
_TIME = re.compile(rf"(?<![\w.:]){_NUMBER} ?(us|\u00b5s|ms|s|sec)/(?:{_STEPS})\b", re.IGNORECASE)
# nanoGPT: "time 210.50ms"; Megatron: "elapsed time per iteration (ms): 210.5"; speed runs: "step_avg:99.5ms".
_NAMED_TIME = re.compile(
    rf"(?:\b(?:time|dt|step_avg|step_time|iter_time):? ?{_NUMBER} ?ms\b|per iteration \(ms\): {_NUMBER})", re.ASCII
)
# timm: "Time: 0.123s,  520.30/s"
_TIMM = re.compile(rf"Time: {_NUMBER}s, {{1,8}}{_NUMBER}/s", re.ASCII)
_NAME_WORDS = re.compile(
    rf"(?:.*_)?(?:curr|cur|avg|runningavg)?({_ALL})_?(?:per|/)_?s(?:ec|econd)?s?(?:_.*)?", re.IGNORECASE
)
_EXACT = {
    "wps": "tokens/s",
    "tgs": "tokens/s",
    "ups": "it/s",
    "step_time": "s/it",
    "iter_time": "s/it",
    "batch_time": "s/it",
    "seconds_per_step": "s/it",
}
# `time` can mean anything; on a line with one of these it is the seconds of an iteration.
_BESIDE_TIME = ("data_time", "eta:", "eta_seconds")


@lru_cache(maxsize=1024)
def unit_of(name: str) -> str | None:
    """Return the unit that a name such as `train_samples_per_second` or `wps` stands for, or None."""
    plain = name.lower().replace(" ", "_").replace(".", "_")
    # Evaluation is another loop, and usually a faster one.
    if plain.startswith(("eval", "val", "test")):
        return None
    own = plain.removeprefix("train_")
    if own in _EXACT:
        return _EXACT[own]
    joined = plain.replace("persec", "_per_sec")
    match = _NAME_WORDS.fullmatch(joined)
    return _UNITS[match[1]] if match else None


def may_hold_speed(lower: str) -> bool:
    """Return, by a cheap test, whether a line can have a speed; `lower` is the line in lower case."""
    return "/s" in lower or "ms" in lower or "s/" in lower or "time:" in lower


def read_speed(text: str, lower: str) -> dict[str, float]:
    """Return the speeds in a line, by unit."""
    found: dict[str, float] = {}
    if "/s" in lower:
        for raw, name in _RATE.findall(text):
            found.setdefault(_UNITS[name.lower()], float(raw))
        if match := _TIMM.search(text):
            found |= {"s/it": float(match[1]), "samples/s": float(match[2])}
    if "s/" in lower:
        for raw, unit in _TIME.findall(text):
            _add_time(found, float(raw), unit.lower())
    if "ms" in lower and (match := _NAMED_TIME.search(text)):
        found.setdefault("ms/it", float(match[1] or match[2]))
    return {unit: value for unit, value in found.items() if 0 < value < math.inf}


def _add_time(found: dict[str, float], value: float, unit: str) -> None:
    if unit in ("s", "sec"):
        found.setdefault("s/it", value)
    else:
        found.setdefault("ms/it", value if unit == "ms" else value / 1000)


def is_iteration_time(lower: str) -> bool:
    """Return whether `time` in a line is the seconds of one iteration, as in mmengine and detectron2."""
    return any(word in lower for word in _BESIDE_TIME)
