"""Draws the names of new cases by lot: `python -m tests.gauntlet.draw` prints them.

Rules that were made with one list of cases are judged with another that nobody has chosen. Each part of a name is
drawn on its own. Names that are listed already are drawn again, and so are those that cannot be: a silent log where
Rung may see nothing but the log, and FP16 elsewhere than in the recommender or where no channel reaches it.
"""

from __future__ import annotations

import random

from tests.gauntlet.cases.tuned import LR
from tests.gauntlet.families import FAMILIES, KINDS
from tests.gauntlet.fifth_list import FIFTH
from tests.gauntlet.fourth_list import FOURTH
from tests.gauntlet.second_list import SECOND
from tests.gauntlet.third_list import THIRD

# All names of healthy kinds have been drawn for earlier lists.
SEED, FAULTY, HEALTHY, KINDS_DRAWN = 6, 66, 15, 0
TIMES = ("10", "15", "20", "30", "50", "70", "100", "150", "200", "300", "500", "700", "1000")
LATE = ("20", "30", "50", "100", "200", "300")
LOGS = ("every1", "every10", "epoch", "silent")
# How Rung reaches a plain loop and the script of each framework, and how they log.
REACHED = {
    "": (("zero", "flags", "config", "attach"), LOGS),
    "hf": (("zero",), LOGS),
    "lightning": (("zero",), ("silent",)),
    "accelerate": (("zero", "flags", "config"), LOGS),
}
IN_A_FRAMEWORK = 0.15


def draw(seed: int = SEED) -> list[str]:
    """Return the names of the newest list, before those that do not qualify are left out."""
    lot, taken = random.Random(seed), {case.name for case in (*FAMILIES, *SECOND, *THIRD, *FOURTH, *FIFTH)}
    found: list[str] = []
    for count, one in ((FAULTY, _faulty), (HEALTHY, _healthy), (KINDS_DRAWN, _kind)):
        wanted = len(found) + count
        while len(found) < wanted:
            name = one(lot)
            if name is not None and name not in taken:
                taken.add(name)
                found.append(name)
    return found


def _faulty(lot: random.Random) -> str | None:
    kind = lot.choices(("lr", "late", "outliers", "burst"), (7, 2, 1, 1))[0]
    fault = {"lr": f"lr{lot.choice(TIMES)}", "late": f"late{lot.choice(LATE)}"}.get(kind, kind)
    extras = [each for each in ("warmup", "cosine", "clip", "amp") if lot.random() < 0.2]
    if kind != "lr":
        # A late restart has a schedule of its own, and a clip would cure the others.
        extras = [each for each in extras if each not in ("clip", *(["cosine"] if kind == "late" else []))]
    return _name(lot, fault, extras)


def _healthy(lot: random.Random) -> str | None:
    return _name(lot, lot.choice(("lr1", "noise")), [each for each in ("warmup", "cosine") if lot.random() < 0.3])


def _kind(lot: random.Random) -> str | None:
    log = lot.choice(LOGS)
    return f"healthy_{lot.choice([*KINDS])}_{'zero' if log == 'silent' else lot.choice(('zero', 'flags'))}_{log}"


def _name(lot: random.Random, fault: str, extras: list[str]) -> str | None:
    framework = lot.choice([*REACHED][1:]) if lot.random() < IN_A_FRAMEWORK else ""
    channels, logs = REACHED[framework]
    model, optimizer = lot.choice([*LR]), lot.choice(("sgd", "momentum", "adam"))
    channel, log = lot.choice(channels), lot.choice(logs)
    unseen = log == "silent" and channel in ("flags", "config")
    if unseen or ("amp" in extras and (model != "recommender" or channel == "config")):
        return None
    return "_".join([*filter(None, [framework]), model, optimizer, fault, *extras, channel, log])


if __name__ == "__main__":
    print("\n".join(draw()))
