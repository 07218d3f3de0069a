"""Formats the ledger and its calibration as text and as JSON data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rung.recovery.evidence.calibration import Calibration, Group, Prediction
from rung.recovery.ledger.chance import Chance
from rung.recovery.ledger.row import Row
from rung.runner.views.tables import table

NO_TRIES = (
    "no rung has been tried to its end yet: what each one does for each fault is counted from the jobs of this store"
)
NO_PREDICTIONS = (
    "no rung has been taken yet whose run is known to have recovered or not: there is nothing to compare a chance with"
)
COUNTS = ("TRIES", "TOOK", "SURVIVED", "RECOVERED", "FELL SHORT", "FAILED", "LOST")
LEDGER_HEADERS = ("FAULT", "GPU", "RUNG", *COUNTS, "TRIALS WON", "LEAD", "CHANCE")
# The columns are few and short, so nothing is cut.
WIDTH = 10_000
# From this lead on it is shown as a factor.
FACTOR = 9


def ledger_text(rows: Sequence[Row]) -> str:
    """Return the ledger as a table, and a second one that shows which rung won trials against which."""
    if not rows:
        return NO_TRIES
    text = table(LEDGER_HEADERS, [ledger_cells(row) for row in rows], WIDTH)
    pairs = [
        (row.fault, row.gpu, row.rung, each.rung, each.rounds, each.failed, _lead(each.lead))
        for row in rows
        for each in row.won_against
    ]
    if not pairs:
        return text
    return f"{text}\n\n{table(('FAULT', 'GPU', 'WON TRIALS', 'AGAINST', 'ROUNDS', 'FAILED', 'LEAD'), pairs, WIDTH)}"


def ledger_cells(row: Row) -> list[Any]:
    """Return a row of the ledger, one cell for each of LEDGER_HEADERS."""
    results = (row.survived, row.recovered, row.fell_short, row.failed, row.lost)
    trials = f"{row.wins} of {row.trials}" if row.trials else None
    return [row.fault, row.gpu, row.rung, row.tries, _took(row), *results, trials, _lead(row.lead), _chance(row)]


def _took(row: Row) -> str:
    if not row.not_known:
        return str(row.took)
    return f"{row.took}, {row.not_known} not known" if row.took or row.not_taken else "not known"


def _chance(row: Row) -> str | None:
    found = row.chance()
    return f"{_percent(found.mean)} ({100 * found.low:.0f}-{100 * found.high:.0f})" if found.runs else None


def _lead(share: float | None) -> str | None:
    """Return a lead as a percentage, or as a factor where it is large: a loss can be a million times too high."""
    return f"x{1 + share:.0f}" if share is not None and share >= FACTOR else _percent(share)


def _percent(share: float | None) -> str | None:
    return f"{100 * share:.0f} %" if share is not None else None


def calibration_text(found: Calibration) -> str:
    """Return what was predicted and what came, by ranges of predictions and in all."""
    total = found.all
    if total is None:
        return "\n".join([NO_PREDICTIONS, *_not_known(found)])
    groups: list[tuple[str, Group | None]] = [
        *((f"{100 * low:.0f} to {100 * high:.0f} %", group) for low, high, group in found.ranges()),
        ("all", total),
        ("from the ladder", found.chosen(by_trials=False)),
        ("won its trials", found.chosen(by_trials=True)),
    ]
    headers = ("PREDICTED", "RUNGS", "MEAN", "RECOVERED", "BRIER")
    rows = [
        (name, each.rungs, _percent(each.predicted), _percent(each.recovered), f"{each.brier:.3f}")
        for name, each in groups
        if each
    ]
    score = (
        f"Brier score {total.brier:.3f} over {total.rungs} rungs: 0 is perfect, and saying {_percent(total.recovered)} "
        f"every time would score {total.brier_of_mean:.3f}."
    )
    how = "Each chance is computed from the runs that had ended when the rung was taken."
    return "\n".join([table(headers, rows, WIDTH), "", score, how, *_not_known(found)])


def _not_known(found: Calibration) -> list[str]:
    if not found.not_known:
        return []
    return [f"Not counted: {found.not_known} that only survived, because whether they learn is not known."]


def calibration_data(found: Calibration) -> dict[str, Any]:
    total = found.all
    return {
        "rungs": total.rungs if total else 0,
        "brier": round(total.brier, 4) if total else None,
        "brier_of_mean": round(total.brier_of_mean, 4) if total else None,
        "not_known": found.not_known,
        "ranges": [{"from": low, "to": high, **_group_data(group)} for low, high, group in found.ranges()],
        "from_the_ladder": _group_data(found.chosen(by_trials=False)),
        "won_trials": _group_data(found.chosen(by_trials=True)),
        "predictions": [_prediction_data(each) for each in found.predictions],
    }


def _group_data(group: Group | None) -> dict[str, Any]:
    return {name: round(value, 4) for name, value in asdict(group).items()} if group else {"rungs": 0}


def _prediction_data(prediction: Prediction) -> dict[str, Any]:
    return {**asdict(prediction), "chance": _chance_data(prediction.chance)}


def _chance_data(chance: Chance) -> dict[str, Any]:
    return {name: round(value, 4) for name, value in asdict(chance).items()}
