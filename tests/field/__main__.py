"""Runs the jobs of the field reports and says whether each fails and recovers as reported.

    python -m tests.field [--jobs NAME ...] [--where here|fleet|gpu] [--size cpu|gpu] [--reference fp32|fixed]
                          [--zero-edit] [--results FOLDER] [--resume] [--markdown FILE]

Rows are printed and stored as jobs end; a failed job does not stop the others. Exit code 1: a job has troubles.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.field import usage
from tests.field.jobfile import OWN, VARIANTS, ZERO_EDIT, prepare
from tests.field.places import Place, place
from tests.field.reports import REPORTS, Report
from tests.field.rows import HEAD, Row, judge, markdown, text_line
from tests.field.runs import ROOT, Runs
from tests.fleet.patience import FleetError


def main() -> int:
    options = parsed()
    # Clean up after SIGTERM too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    kept = options.results / "rows.jsonl"
    rows = {row.job: row for row in read(kept)} if options.resume else {}
    jobs = [job for job in options.jobs if job not in rows]
    options.results.mkdir(parents=True, exist_ok=True)
    lines = ["  ".join(cell for cell in HEAD if cell), *map(text_line, rows.values())]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
    try:
        for row in run_there(jobs, options):
            rows[row.job] = row
            sys.stdout.write(text_line(row) + "\n")
            sys.stdout.flush()
            with kept.open("a") as file:
                file.write(json.dumps(row.to_dict()) + "\n")
    except FleetError as error:
        sys.stderr.write(f"rung: {error}\n")
        return 2
    listed = [rows[job] for job in options.jobs if job in rows]
    if options.markdown:
        options.markdown.write_text(f"{markdown(listed)}\n{usage.markdown(listed)}", encoding="utf-8")
    return 0 if len(listed) == len(options.jobs) and not any(row.troubles for row in listed) else 1


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.field", description="The jobs of the field reports.")
    there = [job for job, report in REPORTS.items() if (report.folder / "job.yaml").exists()]
    parser.add_argument("--jobs", nargs="*", choices=there, metavar="NAME", help=f"of {', '.join(there)}; all of them")
    parser.add_argument("--where", choices=("here", "fleet", "gpu"), default="here", help="default: here")
    parser.add_argument("--size", choices=("cpu", "gpu"), default="cpu", help="default: cpu")
    parser.add_argument("--reference", choices=VARIANTS, default="fp32", help="default: fp32")
    parser.add_argument(
        "--zero-edit", action="store_true", help="reach jobs by zero-edit that have a zero-edit.yaml too"
    )
    parser.add_argument(
        "--results", type=Path, help="the folder for rows, histories and logs; default: .bench/field/WHERE"
    )
    parser.add_argument("--resume", action="store_true", help="leave out jobs that have a row in the results")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there")
    options = parser.parse_args()
    options.jobs = options.jobs or there
    options.results = (options.results or ROOT / ".bench" / "field" / options.where).absolute()
    return options


def run_there(jobs: list[str], options: argparse.Namespace) -> Iterator[Row]:
    """Prepare the place and run the jobs; without jobs, prepare nothing."""
    if jobs:
        with place(options.where, jobs) as where:
            yield from run(jobs, where, options)


def run(jobs: list[str], where: Place, options: argparse.Namespace) -> Iterator[Row]:
    """Run each job and its reference at the place, and yield its row when both have ended."""
    reports = {job: REPORTS[job].seen_inside() if options.zero_edit else REPORTS[job] for job in jobs}
    references = {job: report.reference or options.reference for job, report in reports.items()}
    files = {job: prepared(report, references[job], where, options) for job, report in reports.items()}
    runs = Runs(where.home or options.results / "home", where.env)
    ended = {}
    with runs.controlled():
        # Jobs that share a GPU would show each other's time.
        at_once = 1 if options.size == "gpu" else where.at_once
        for file, history in runs.each([file for pair in files.values() for file in pair], at_once):
            runs.keep(history, options.results / "kept")
            ended[file] = history
            for job, pair in files.items():
                if file in pair and all(each in ended for each in pair):
                    ran, reference = (ended[each] for each in pair)
                    yield judge(reports[job], ran, reference, references[job], (where.name, options.size))


def prepared(report: Report, reference: str, where: Place, options: argparse.Namespace) -> list[Path]:
    """Return the job file of a report and that of its reference, which is always the job's own."""
    source = ZERO_EDIT if options.zero_edit and report.inside else OWN
    each = ((None, source), (reference, OWN))
    fields, to = where.fields_for(report.job), options.results / "jobs"
    return [prepare(report.folder, to, options.size, variant, fields, file) for variant, file in each]


def read(kept: Path) -> list[Row]:
    return [Row.from_dict(json.loads(line)) for line in kept.read_text().splitlines()] if kept.exists() else []


if __name__ == "__main__":
    sys.exit(main())
