"""Shows the gauntlet's verdicts: a line for each as it ends, and the tables of the docs."""

from __future__ import annotations

from collections.abc import Container, Sequence

from tests.gauntlet.catalog import SIDES
from tests.gauntlet.judging import Verdict

# A script that runs without Rung does not report its steps.
STEPS_UNKNOWN = ("restart", "arc")
# Rung's own regimens, and the others, which have no trials and call no run recovered.
BY_RUNG = ("trials", "on", "off", "default", "auto")
ORDER = (*BY_RUNG, "arc", "blind", "fp32", "restart")
# Trials have a least length, so their share of a shorter run says nothing.
LONG_RUN = 2000


def line(verdict: Verdict) -> str:
    """Return one verdict in one line for a terminal."""
    result = verdict.result
    judged = "right" if verdict.right else "WRONG"
    return (
        f"{result.regimen:8} x{result.times:<3} {result.case:28} {judged:6} {verdict.off:>8} against healthy, "
        f"{result.relaunches} relaunches, {result.steps_lost} steps lost, {result.seconds:.0f} s"
    )


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return the markdown table of all regimens; relaunches and steps are those of cases that can be cured.

    In 16 bit is the share of the steps of the cases whose script computes in 16 bit.
    """
    columns = ("regimen", "steps", "recovered", "named", "relaunches (most)", "steps lost", "seconds", "in 16 bit")
    rows = [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    narrow = {verdict.result.case for verdict in verdicts if verdict.result.half_steps}
    kinds = dict.fromkeys((verdict.result.regimen, verdict.result.times) for verdict in verdicts)
    for regimen, times in sorted(kinds, key=lambda kind: (kind[1], list(kinds).index(kind))):
        mine = [v for v in verdicts if (v.result.regimen, v.result.times) == (regimen, times)]
        rows.append(f"| {regimen} | x{times} | {_figures(mine, narrow)} |")
    return "\n".join(rows)


def _figures(mine: Sequence[Verdict], narrow: Container[str]) -> str:
    curable = [verdict for verdict in mine if verdict.case.curable]
    hopeless = [verdict for verdict in mine if verdict.case.diagnosis]
    recovered = f"{sum(verdict.cured for verdict in curable)} of {len(curable)}"
    named = f"{sum(verdict.named for verdict in hopeless)} of {len(hopeless)}" if hopeless else ""
    results = [verdict.result for verdict in curable]
    if not results:
        return f"{recovered} | {named} |  |  |  | "
    mean = sum(result.relaunches for result in results) / len(results)
    most = max(result.relaunches for result in results)
    lost = f"{sum(result.steps_lost for result in results) / len(results):.0f}"
    lost = "not known" if results[0].regimen in STEPS_UNKNOWN else lost
    seconds = sum(result.seconds for result in results) / len(results)
    steps = sum(result.steps for result in results if result.case in narrow)
    half = sum(result.half_steps for result in results) / max(1, steps)
    return f"{recovered} | {named} | {mean:.2f} ({most}) | {lost} | {seconds:.0f} | {half:.0%}"


def regimens(verdicts: Sequence[Verdict]) -> str:
    """Return the markdown table of each side and regimen: what was cured, left alone and falsely called recovered."""
    columns = ("side", "regimen", "cured", "healthy runs left alone", "called recovered and more than 10 % worse")
    columns += ("steps on trials", "launches, all", "launches without trials")
    rows = [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    kinds = {(v.case.side, v.result.times, v.result.regimen) for v in verdicts}
    for side, times, regimen in sorted(kinds, key=lambda kind: (SIDES.index(kind[0]), kind[1], ORDER.index(kind[2]))):
        mine = [v for v in verdicts if (v.case.side, v.result.times, v.result.regimen) == (side, times, regimen)]
        name = regimen if times == 1 else f"{regimen} x{times}"
        rows.append(f"| {side} | {name} | {_shares(mine, by_rung=regimen in BY_RUNG)} |")
    return "\n".join(rows)


def _shares(mine: Sequence[Verdict], *, by_rung: bool) -> str:
    """Return the figures of some verdicts; steps and launches are means over the cases that can be cured."""
    curable = [verdict for verdict in mine if verdict.case.curable]
    healthy = [verdict for verdict in mine if verdict.case.healthy]
    long = [verdict for verdict in curable if verdict.length >= LONG_RUN]
    return " | ".join(
        (
            _of(sum(verdict.cured for verdict in curable), len(curable)),
            _of(sum(verdict.left_alone for verdict in healthy), len(healthy)),
            str(sum(verdict.false_recovered for verdict in mine)) if by_rung else "",
            _mean([verdict.result.trial_steps / verdict.length for verdict in long], ".1%") if by_rung else "",
            _mean([verdict.result.launches for verdict in curable], ".2f"),
            _mean([verdict.result.launches_outside_trials for verdict in curable], ".2f"),
        )
    )


def _of(some: int, all_: int) -> str:
    return f"{some} of {all_} ({some / all_:.0%})" if all_ else ""


def _mean(values: Sequence[float], form: str) -> str:
    return format(sum(values) / len(values), form) if values else ""


def cases(verdicts: Sequence[Verdict]) -> str:
    """Return the markdown table of all cases: the held-out loss against the healthy run's, and the relaunches."""
    columns = list(dict.fromkeys((v.result.regimen, v.result.times) for v in verdicts))
    found = {(v.case.name, v.result.regimen, v.result.times): v for v in verdicts}
    names = " | ".join(f"{regimen} x{times}" for regimen, times in columns)
    rows = [f"| case | what is wrong | {names} |", f"| --- | --- |{' --- |' * len(columns)}"]
    for case in dict.fromkeys(verdict.case.name for verdict in verdicts):
        mine = [found.get((case, regimen, times)) for regimen, times in columns]
        wrong = next(verdict.case for verdict in mine if verdict).wrong
        rows.append(f"| `{case}` | {wrong} | {' | '.join(map(_cell, mine))} |")
    return "\n".join(rows)


def _cell(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    after = f"after {verdict.result.relaunches}"
    if verdict.case.healthy:
        return "left alone" if verdict.left_alone else f"**{verdict.off}** {after}"
    if not verdict.case.curable:
        return f"named {after}" if verdict.named else f"**not named** {after}"
    return f"{verdict.off} {after}" if verdict.cured else f"**{verdict.off}** {after}"
