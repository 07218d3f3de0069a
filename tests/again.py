"""Runs the tests that failed a second time, one at a time, and names those that then pass.

`python -m tests.again plan PART...` names the parts of a test run and drops the reports of earlier ones. `python -m
tests.again first PART WORDS...` runs pytest with WORDS and keeps a report under the name of that part; `make test`
starts each of its parts this way. `python -m tests.again` takes up the reports: it runs what failed once more without
parallel workers, and prints `FLAKY: <test>` for a test that passes and `FAILED TWICE: <test>` for one that does not. It
ends with 0 only if every planned part came to its end and no test failed twice.

pytest loads this file as a plugin, too: that is how the failed tests get into the report. It also prints the test files
that took longest, with all their tests, set-ups and tear-downs: where a test run's time goes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

# In pytest's cache folder; `make clean` removes it.
REPORTS = Path(".pytest_cache") / "parts"
REPORT = "RUNG_TEST_REPORT"
# The exit codes of pytest when all tests ran. Every other code means that it did not run all of them.
PASSED, SOME_FAILED = 0, 1
LONGEST = 25
NOTHING_YET: dict[str, Any] = {"ended": None, "passed": [], "failed": []}


def main(words: list[str]) -> int:
    match words:
        case ["first", part, *options]:
            return run(REPORTS / f"{part}.json", options)
        case ["plan", *parts]:
            plan(parts)
            return 0
        case []:
            return again()
    sys.stderr.write(f"{__doc__}\n")
    return 2


def plan(parts: list[str]) -> None:
    """Write a report without an end for each part, so that a part which never starts is noticed."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    for path in REPORTS.glob("*.json"):
        path.unlink()
    for part in parts:
        write(REPORTS / f"{part}.json", NOTHING_YET)


def run(report: Path, options: list[str]) -> int:
    """Run pytest to its end and return its exit code; how it ended and what failed is then in the report."""
    report.parent.mkdir(parents=True, exist_ok=True)
    # A run that is killed leaves a report without an end.
    write(report, NOTHING_YET)
    command = [sys.executable, "-m", "pytest", "-p", "tests.again", *options]
    ended = subprocess.run(command, env={**os.environ, REPORT: str(report.resolve())}, check=False).returncode
    write(report, {**read(report), "ended": ended})
    return ended


def again() -> int:
    """Run every failed test of the kept reports once more; 0 if all of them pass now."""
    reports = {path.stem: read(path) for path in sorted(REPORTS.glob("*.json"))}
    plan([])
    if not reports:
        say("there is no report of a test run, so nothing can be run again")
        return 1
    red = [part for part, report in reports.items() if is_red(part, report)]
    return int(bool(red))


def is_red(part: str, report: dict[str, Any]) -> bool:
    """Run a part's failed tests again and name them; return whether the part is still red."""
    cut_short = report["ended"] not in (PASSED, SOME_FAILED) or bool(report["failed"]) != bool(report["ended"])
    if cut_short:
        how = "did not come to its end" if report["ended"] is None else f"ended with {report['ended']}"
        say(f"{part}: pytest itself {how}, so not all tests have run")
    if not report["failed"]:
        return cut_short
    say(f"{part}: {len(report['failed'])} failed; running them again, one at a time")
    second = REPORTS / f"{part}.second"
    # The tests are named one by one, so no marker may leave any of them out.
    run(second, ["-m", "", *report["failed"]])
    passed = [test for test in report["failed"] if test in read(second)["passed"]]
    twice = [test for test in report["failed"] if test not in passed]
    second.unlink()
    for test in passed:
        say(f"FLAKY: {test}")
    for test in twice:
        say(f"FAILED TWICE: {test}")
    return cut_short or bool(twice)


def read(report: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(report.read_text())
    return data


def write(report: Path, data: dict[str, Any]) -> None:
    report.write_text(json.dumps(data))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Outcomes:
    """Collects the outcomes of each test in set-up, call and tear-down, and writes them at the end."""

    def __init__(self, report: Path) -> None:
        self._report = report
        self._outcomes: dict[str, set[str]] = {}
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._outcomes.setdefault(report.nodeid, set()).add(report.outcome)
        self._seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.write_sep("=", f"the longest test files of {sum(self._seconds.values()):.0f} s in all")
        for name, seconds in self._seconds.most_common(LONGEST):
            terminalreporter.write_line(f"{seconds:6.0f} s  {name}")

    def pytest_sessionfinish(self) -> None:
        failed = [test for test, outcomes in self._outcomes.items() if "failed" in outcomes]
        passed = [test for test, outcomes in self._outcomes.items() if outcomes == {"passed"}]
        write(self._report, {**read(self._report), "passed": passed, "failed": failed})


def pytest_configure(config: Any) -> None:
    # With parallel workers, their parent process gets the result of every test.
    if REPORT in os.environ and not hasattr(config, "workerinput"):
        # A test that runs pytest itself must not write into this report.
        config.pluginmanager.register(Outcomes(Path(os.environ.pop(REPORT))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
