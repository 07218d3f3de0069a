"""Says which cases may not be listed: those that do not fail without help, and those that may have no cure.

`python -m tests.gauntlet --references --results FILE` runs each case without its fault and as it is. An lr that is too
high has a cure: the tuned one. A case with another fault also runs clipped, which must cure it. How Rung treats a case
has no say in that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rung.runner.files.transfer import clear
from tests.gauntlet.case import Case, start_of
from tests.gauntlet.judging import Result, Verdict
from tests.gauntlet.regimens import NUMBER, Trial, restart

# A run fails if its held-out loss is worse than the healthy run's by more than this share.
WORSE = 0.25
AS_IT_IS, CLIPPED = "restart", "clipped"


def clipped(trial: Trial) -> Result:
    """Run the script with its gradients clipped at 1, from a checkpoint before a late fault or from the start."""
    case = trial.case
    if start := start_of(case):
        restart(trial)
        for path in trial.checkpoints.glob(case.pattern):
            if int(NUMBER.findall(path.name)[-1]) > start:
                clear(path)
    config = {**case.config, "clip": 1.0} if case.config else {}
    changed = replace(case, flags=f"{case.flags} --clip 1.0", config=config)
    return replace(restart(replace(trial, case=changed)), regimen=CLIPPED)


def wanted(cases: Sequence[Case]) -> list[tuple[Case, str]]:
    """Return the runs that say whether cases qualify."""
    clip = [(case, CLIPPED) for case in cases if case.curable and not case.lr]
    return [*((case, AS_IT_IS) for case in cases), *clip]


def left_out(cases: Iterable[Case], verdicts: Sequence[Verdict]) -> Iterator[tuple[Case, str]]:
    """Return the cases that do not qualify, and why."""
    for case in cases:
        mine = {verdict.result.regimen: verdict for verdict in verdicts if verdict.case.name == case.name}
        if reason := _reason(case, mine.get(AS_IT_IS), mine.get(CLIPPED)):
            yield case, reason


def _reason(case: Case, as_it_is: Verdict | None, clip: Verdict | None) -> str | None:
    if as_it_is is None:
        return "has not been run"
    if as_it_is.reference is None or not math.isfinite(as_it_is.reference):
        return "has no healthy run"
    if case.healthy:
        return None if as_it_is.left_alone else f"is not the same each time: {as_it_is.off}"
    if as_it_is.no_worse_than(WORSE):
        return f"does not fail: {as_it_is.off} without help"
    if case.lr:
        return None
    if clip is None:
        return "has not been run with a clip"
    return None if clip.cured else f"may have no cure: {clip.off} if clipped"
