"""Counts what each rung did for each fault on each GPU, from the attempts of all jobs. Nothing is stored."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import median, median_low

from rung.jobs.job import Attempt
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.gpu import Gpu
from rung.recovery.evidence.rounds import Entry, Round, rounds
from rung.recovery.evidence.tries import Result, Try, tries
from rung.recovery.ledger.ledger import Ledger
from rung.recovery.ledger.row import Row, WonAgainst

Key = tuple[FaultKind, str, str]


def read_ledger(jobs: Iterable[Sequence[Attempt]], here: Gpu | None = None) -> Ledger:
    """Return the ledger of all jobs, each given by its attempts, oldest first."""
    tried: dict[Key, list[Try]] = defaultdict(list)
    compared: dict[Key, list[tuple[Round, Entry]]] = defaultdict(list)
    for attempts in jobs:
        for each in tries(attempts, here):
            tried[each.fault, each.gpu, each.rung].append(each)
        for found in rounds(attempts, here):
            for entry in found.entries:
                compared[found.fault, found.gpu, entry.rung].append((found, entry))
    return Ledger(tuple(_row(key, tried[key], compared[key]) for key in sorted({*tried, *compared})))


def _row(key: Key, tried: Sequence[Try], compared: Sequence[tuple[Round, Entry]]) -> Row:
    results = Counter(each.result for each in tried if each.took is not False)
    took = Counter(each.took for each in tried)
    won = [found for found, entry in compared if entry.won]
    return Row(
        *key,
        tries=len(tried),
        took=took[True],
        not_known=took[None],
        not_taken=took[False],
        survived=results[Result.SURVIVED],
        recovered=results[Result.RECOVERED],
        fell_short=results[Result.FELL_SHORT],
        failed=results[Result.FAILED],
        lost=median_low(each.lost for each in tried) if tried else None,
        trials=len(compared),
        wins=len(won),
        beaten=sum(entry.beaten for _, entry in compared),
        lead=_median([each.lead for each in won]),
        won_against=_won_against(won),
    )


def _won_against(won: Sequence[Round]) -> tuple[WonAgainst, ...]:
    found: dict[str, list[Entry]] = defaultdict(list)
    for each in won:
        for entry in each.entries:
            if not entry.won:
                found[entry.rung].append(entry)
    return tuple(
        WonAgainst(rung, len(others), sum(each.failed for each in others), _median([each.above for each in others]))
        for rung, others in sorted(found.items())
    )


def _median(shares: Sequence[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return round(median(known), 4) if known else None
