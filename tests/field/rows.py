"""The row of a job in the table, and whether it failed and recovered as its report says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.field.reports import LEVEL, Report
from tests.field.usage import of_last_attempt

History = Mapping[str, Any]
HEAD = (
    "job",
    "attempts",
    "fault",
    "rungs",
    "metric",
    "recovered",
    "reference",
    "difference",
    "steps lost",
    "minutes",
    "",
)


@dataclass(frozen=True)
class Row:
    """How a job failed and recovered, beside its reference; `troubles` is empty if all is as expected."""

    job: str
    where: str
    size: str
    attempts: int
    faults: tuple[str, ...]
    evidence: str
    rungs: tuple[str, ...]
    metric: str
    value: float | None
    against: str
    reference: float | None
    steps_lost: int
    minutes: float
    host: str
    troubles: tuple[str, ...] = ()
    # What the last attempt and the reference have measured of themselves (tests/field/usage.py).
    usage: Mapping[str, float] = field(default_factory=dict)
    reference_usage: Mapping[str, float] = field(default_factory=dict)

    @property
    def difference(self) -> float | None:
        """Return how far the recovered run is from its reference, as a share of it."""
        if self.value is None or not self.reference:
            return None
        return (self.value - self.reference) / abs(self.reference)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "difference": self.difference}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Row:
        lists = {name: tuple(data[name]) for name in ("faults", "rungs", "troubles")}
        return cls(**{name: value for name, value in data.items() if name != "difference"} | lists)

    def cells(self) -> tuple[str, ...]:
        apart = "-" if self.difference is None else f"{100 * self.difference:+.2f} %"
        return (
            *(self.job, str(self.attempts), ", ".join(self.faults) or "none", ", ".join(self.rungs) or "none"),
            *(self.metric, number(self.value), f"{number(self.reference)} ({self.against})", apart),
            *(str(self.steps_lost), f"{self.minutes:.1f}", "; ".join(self.troubles) or "ok"),
        )


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def judge(report: Report, ran: History, reference: History, against: str, place: tuple[str, str]) -> Row:
    """Return the row of a job, from its history with its first log, and the history of its reference."""
    attempts = ran["attempts"]
    metric = (ran["job"].get("success") or {}).get("metric", "")
    seen = [attempt["fault"] for attempt in attempts if attempt["fault"]]
    times = [attempt["ended_at"] for attempt in attempts if attempt["ended_at"]]
    row = Row(
        report.job,
        *place,
        attempts=len(attempts),
        faults=tuple(fault["kind"] for fault in seen),
        evidence=str(seen[0]["evidence"])[:200] if seen else "",
        rungs=tuple(attempt["rung"] for attempt in attempts if attempt["rung"]),
        metric=metric,
        value=final(ran, metric),
        against=against,
        reference=final(reference, metric),
        steps_lost=sum(attempt["steps_lost"] or 0 for attempt in attempts),
        minutes=(max(times) - attempts[0]["started_at"]) / 60 if times and attempts[0]["started_at"] else 0.0,
        host=str(attempts[-1]["host"]) if attempts else "",
        usage=of_last_attempt(ran) if attempts else {},
        reference_usage=of_last_attempt(reference) if reference["attempts"] else {},
    )
    return Row.from_dict({**row.to_dict(), "troubles": tuple(troubles(report, row, ran, reference))})


def final(history: History, metric: str) -> float | None:
    found = history["attempts"][-1]["metrics"].get(metric) if history["attempts"] else None
    return float(found) if isinstance(found, int | float) else None


def troubles(report: Report, row: Row, ran: History, reference: History) -> Iterable[str]:
    for history in (ran, reference):
        job = history["job"]
        if job["state"] != "SUCCEEDED":
            yield f"{job['name']} is {job['state']}: {job['reason']}"
    first = first_trouble(ran)
    if first not in report.faults:
        yield f"failed first with {first}, not with {' or '.join(report.faults)}"
    elif report.words not in Path(ran["attempts"][0]["log"]).read_text(encoding="utf-8", errors="replace"):
        yield f"its first log does not say what the report's did: {report.words}"
    if any(attempt["fault"] for attempt in reference["attempts"]):
        yield f"its reference ({row.against}) fails too"
    if row.difference is None:
        yield f"no {row.metric} to compare"
    elif (row.difference if report.may_be_lower else abs(row.difference)) >= report.near_enough:
        yield f"not within {100 * report.near_enough:g} % of its reference"


def first_trouble(ran: History) -> str:
    """Return the fault of a job's first attempt, or `level` if only its loss was seen to be level."""
    first = ran["attempts"][0]
    if first["fault"]:
        return str(first["fault"]["kind"])
    levels = (event for event in ran["events"] if event["kind"] == LEVEL)
    return LEVEL if any(event["attempt"] == first["number"] for event in levels) else "no fault"


def text_line(row: Row) -> str:
    return "  ".join(cell for cell in row.cells() if cell)


def markdown(rows: Iterable[Row]) -> str:
    lines = [HEAD, ("---",) * len(HEAD), *(row.cells() for row in rows)]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)
