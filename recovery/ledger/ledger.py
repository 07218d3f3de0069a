"""The `Ledger`: what each rung did for each fault on each GPU, the order that follows from it, and the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from rung.jobs.model.fault import FaultKind
from rung.jobs.model.knobs import RungName
from rung.recovery.ledger.chance import Chance, mean_chance
from rung.recovery.ledger.row import CPU, OPEN, Row

# A diagnosed rung cured 8 of 9 faults; without a diagnosis a rung is a guess, and each further one a worse guess.
DIAGNOSED, FURTHER = 0.85, 0.9


@dataclass(frozen=True)
class RulesOrder:
    """The rungs in the order of the rules. `diagnosed`: the first of them is what the diagnosis names."""

    rungs: Sequence[RungName]
    diagnosed: bool

    def prior(self, rung: str) -> float:
        """Return how likely a rung is to end in a recovery by the rules alone."""
        place = next((place for place, each in enumerate(self.rungs) if each == rung), len(self.rungs))
        return DIAGNOSED if self.diagnosed and place == 0 else OPEN * FURTHER**place


@dataclass(frozen=True)
class Ledger:
    rows: tuple[Row, ...] = ()

    @cached_property
    def _by_key(self) -> dict[tuple[str, str, str], Row]:
        return {(row.fault.value, row.gpu, row.rung): row for row in self.rows}

    def row(self, fault: FaultKind, gpu: str, rung: str) -> Row:
        """Return the row of a rung for this fault on this GPU; all zeros when it was never tried."""
        return self._by_key.get((fault.value, gpu, str(rung))) or Row(fault, gpu, str(rung))

    def ranked(self, fault: FaultKind, gpu: str, order: RulesOrder) -> list[RungName]:
        """Sort the rungs by how likely each is to end in a recovery from this fault."""

        def mean(rung: RungName) -> float:
            row = self.row(fault, gpu, rung)
            return mean_chance(order.prior(rung), row.recovered, row.judged + row.beaten)

        return sorted(order.rungs, key=mean, reverse=True)  # equal ones keep the order of the rules

    def because(self, fault: FaultKind, gpu: str, order: RulesOrder, chosen: RungName, by_rules: RungName) -> str:
        """Say how likely the chosen rung is to help, from how many runs, and the one that the rules would take."""
        row = self.row(fault, gpu, chosen)
        text = f"{_counted(row)} ({_with_doubts(row, row.chance(order.prior(chosen)))})"
        if by_rules is chosen:
            return text
        other = self.row(fault, gpu, by_rules)
        return f"{text}, {_counted_briefly(other)} ({other.chance(order.prior(by_rules)).describe()})"


EMPTY = Ledger()


def _counted(row: Row) -> str:
    where = f"with {row.fault} {'on the CPU' if row.gpu == CPU else f'on {row.gpu}'}"
    if row.judged:
        lost = f", and it lost {row.beaten} of {row.trials} trials" if row.beaten else ""
        return f"{row.recovered} of {row.judged} runs {where} recovered after {row.rung} here{lost}"
    if row.beaten:
        return f"{row.rung} lost {row.beaten} of {row.trials} trials of runs {where} here"
    return f"no run {where} has shown yet what {row.rung} does here"


def _counted_briefly(row: Row) -> str:
    runs = f"{row.recovered} of {row.judged} after {row.rung}" if row.judged else ""
    lost = f"{row.rung} lost {row.beaten} of {row.trials} trials" if row.beaten else ""
    return " and ".join(filter(None, (runs, lost))) or f"none yet after {row.rung}"


def _with_doubts(row: Row, found: Chance) -> str:
    """Add what is not known about the runs behind a chance."""
    parts = [found.describe()]
    if not found.runs:
        parts.append("from the rules alone")
    if row.survived:
        parts.append(f"{row.survived} more survived, and whether they learn is not known")
    if row.not_known:
        parts.append(f"in {row.not_known} nothing shows whether it took")
    return "; ".join(parts)
