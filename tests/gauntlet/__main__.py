"""The command of the gauntlet: `python -m tests.gauntlet` runs real failing trainings under each regimen."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.gauntlet import qualifying, table
from tests.gauntlet.case import Case
from tests.gauntlet.catalog import CATALOG, SIDES, chosen
from tests.gauntlet.judging import REFERENCE, Result, Verdict, judge, read_results
from tests.gauntlet.regimens import REGIMENS, Trial, reference

LONG = 10
RUNS = {**REGIMENS, qualifying.CLIPPED: qualifying.clipped}
# A few cases of different kinds, for a quick look.
SHORT = (
    "mask_constant",
    "exploding_lr_sgd",
    "half_params_with_scaler",
    "growth_thrash",
    "gradient_spikes",
    "sqrt_at_zero",
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.gauntlet", description=__doc__)
    parser.add_argument("case", nargs="*", help="cases by name (default: all)")
    parser.add_argument("--regimen", action="append", choices=[*REGIMENS], help="may be given several times")
    parser.add_argument("--side", choices=SIDES, help="one side: rules may be changed for tune, never for blind")
    parser.add_argument("--fresh", action="store_true", help="the newest list only")
    parser.add_argument("--family", help="one family only")
    parser.add_argument("--short", action="store_true", help="a few cases only")
    parser.add_argument("--long", action="store_true", help=f"at {LONG} times the steps: is it durable?")
    parser.add_argument("--results", type=Path, help="a file to add each result to, as a JSON line")
    parser.add_argument("--resume", action="store_true", help="leave out what is in that file already")
    parser.add_argument("--table", action="store_true", help="run nothing, print that file's tables as markdown")
    parser.add_argument("--references", action="store_true", help="run without Rung, say which cases do not qualify")
    parser.add_argument("--scratch", type=Path, help="keep homes and checkpoints of all runs in this folder")
    parser.add_argument("--workers", type=int, default=1, help="runs at a time")
    return parser.parse_args()


class Gauntlet:
    """Runs cases under regimens, stores the results, and prints each verdict."""

    def __init__(self, results: Path, scratch: Path | None, known: list[Result]) -> None:
        self._file, self._scratch, self._known = results, scratch, known

    def has(self, case: Case, regimen: str, times: int) -> bool:
        return any((r.case, r.regimen, r.times) == (case.name, regimen, times) for r in self._known)

    def run(self, case: Case, regimen: str, times: int) -> None:
        if not self.has(case, REFERENCE, times):
            self._keep(self._in_a_folder(case, REFERENCE, times, reference))
        result = self._in_a_folder(case, regimen, times, RUNS[regimen])
        self._keep(result)
        for verdict in judge(self._known, [case]):
            if verdict.result is result:
                _print_verdict(verdict)

    def _in_a_folder(self, case: Case, regimen: str, times: int, run: Callable[[Trial], Result]) -> Result:
        if self._scratch is None:
            with tempfile.TemporaryDirectory() as folder:
                return run(Trial(case, times, Path(folder)))
        folder = self._scratch.absolute() / f"{case.name}-{regimen}-{times}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return run(Trial(case, times, folder))

    def _keep(self, result: Result) -> None:
        self._known.append(result)
        with self._file.open("a", encoding="utf-8") as stream:
            stream.write(result.to_json() + "\n")

    def verdicts(self, cases: tuple[Case, ...]) -> list[Verdict]:
        return judge(read_results(self._file), cases)


def _print_verdict(verdict: Verdict) -> None:
    print(table.line(verdict), flush=True)
    if not verdict.right:
        for text in (*verdict.result.story, f"end: {verdict.result.said}"):
            print(f"    {text}", flush=True)


def _fits(case: Case, regimen: str, times: int) -> bool:
    """Return whether the case's script can be run so: only some have the flag of arc-training."""
    return regimen != "arc" or case.arc


def main() -> None:
    args = arguments()
    try:
        cases = chosen(SHORT if args.short else tuple(args.case), args.side, args.family, fresh=args.fresh)
    except KeyError as error:
        sys.exit(f"gauntlet: there is no case {error}; there are: {', '.join(case.name for case in CATALOG)}")
    results = args.results or Path(tempfile.mkdtemp()) / "results.jsonl"
    results.parent.mkdir(parents=True, exist_ok=True)
    gauntlet = Gauntlet(results, args.scratch, read_results(results))
    if not args.table:
        times = LONG if args.long else 1
        wanted = [(case, regimen, times) for case, regimen in _wanted(args, cases)]
        todo = [each for each in wanted if _fits(*each) and not (args.resume and gauntlet.has(*each))]
        with ThreadPoolExecutor(args.workers) as workers:
            list(workers.map(lambda each: gauntlet.run(*each), todo))
    show = _print_left_out if args.references else _print_tables
    show(cases, gauntlet.verdicts(cases))


def _wanted(args: argparse.Namespace, cases: tuple[Case, ...]) -> list[tuple[Case, str]]:
    if args.references:
        return qualifying.wanted(cases)
    return [(case, regimen) for regimen in args.regimen or REGIMENS for case in cases]


def _print_left_out(cases: tuple[Case, ...], verdicts: list[Verdict]) -> None:
    found = list(qualifying.left_out(cases, verdicts))
    print(f"\n{len(cases) - len(found)} of {len(cases)} qualify; leave out:")
    for case, reason in found:
        print(f"{case.name} {reason}")


def _print_tables(cases: tuple[Case, ...], verdicts: list[Verdict]) -> None:
    shown = [verdict for verdict in verdicts if verdict.result.regimen in REGIMENS]
    print(f"\n{table.regimens(shown)}\n\n{table.summary(shown)}\n\n{table.cases(shown)}")


if __name__ == "__main__":
    main()
