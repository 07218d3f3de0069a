"""The command `rung validate`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rung.jobs.model.errors import UsageError
from rung.jobs.model.event import EventKind
from rung.jobs.model.terminal_text import clean
from rung.runner.cli.review.watched import refuse_bad_setting

if TYPE_CHECKING:
    from rung.runner.session.session import Session
    from rung.runner.state.store import Event
    from rung.runner.validation.record import Validation

# 2 is bad input, as in every command.
EXIT_CODES = {"PASS": 0, "FAIL": 1, "MARGINAL": 3, "UNDECIDED": 4}
COLOURS = {"PASS": "green", "FAIL": "red", "MARGINAL": "yellow", "UNDECIDED": "magenta"}
REMOVED = "its report was removed by `rung prune`; --again runs it anew"
_K = EventKind
SHOWN = {_K.VALIDATING, _K.STATE, _K.FAULT, _K.UNREACHABLE, _K.REACHABLE, _K.HOST_LOST, _K.NOT_TAKEN}
SHOWN |= {_K.UNEXPECTED_ERROR}


@click.command()
@click.argument("target", metavar="FILE|JOB")
@click.option("--metric", metavar="NAME", help="Compare this number instead of success.metric or validation.metric.")
@click.option("--output", type=click.Path(path_type=Path), help="Copy the report into this folder as well.")
@click.option("--again", is_flag=True, help="Run it anew although the same thing has been validated before.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON and nothing else.")
def validate(target: str, metric: str | None, output: Path | None, again: bool, as_json: bool) -> None:
    """Compare a job's FP16 with FP32 before you trust it.

    It says PASS, MARGINAL or FAIL. It runs the job as asked and an FP32 baseline with the same seed and data, with
    nothing recovered, and compares metric, time per step, memory, losses that are not finite and gradient norms. FILE
    may be a folder with a job.yaml. Exit code 0: PASS, 3: MARGINAL, 1: FAIL, 4: it could not be decided.
    """
    from rung.runner.session.session import Session
    from rung.runner.session.validate_run import VerdictWait, find_subject, request_validation

    refuse_bad_setting()
    session = Session.open(create=True)
    validation = request_validation(session, find_subject(session, target), metric, again=again)
    if not as_json:
        _introduce(validation)
    try:
        decided = VerdictWait(session, (lambda event: None) if as_json else _show).wait(validation)
    except KeyboardInterrupt:
        how = "in the background" if session.controller_running() else "with the next controller"
        click.echo(f"\nvalidation {validation.id} goes on {how}; the same command resumes it", err=True)
        sys.exit(130)
    _finish(session, decided, output, as_json=as_json)


def _introduce(validation: Validation) -> None:
    if validation.verdict is not None:
        click.echo(f"validation {validation.id} has decided this before; --again runs it anew")
    else:
        began = "is under way and taken up" if validation.baseline else "begins"
        click.echo(f"validation {validation.id} of {clean(validation.spec.name)} {began}: fp32, then the run as asked")


def _show(event: Event) -> None:
    from rung.runner.views.tables import event_text

    if event.kind in SHOWN:
        click.echo(f"  {event.job_id}: {event.kind.replace('_', ' ')}: {event_text(event)}")


def _finish(session: Session, decided: Validation, output: Path | None, *, as_json: bool) -> None:
    """Print the report and leave with the exit code of its verdict."""
    from rung.runner.validation.report_files import copy_report, read_facts

    assert decided.verdict is not None
    folder = session.paths.validation(decided.id)
    there = folder.is_dir()
    if output is not None:
        if not there:
            raise UsageError(f"validation {decided.id}: {REMOVED}")
        copy_report(folder, output)
    facts = read_facts(folder) or {"line": f"verdict: {decided.verdict} {decided.spec.name}: {decided.because}"}
    report = {"markdown": str(folder / "report.md"), "html": str(folder / "report.html")} if there else None
    if as_json:
        code = EXIT_CODES[decided.verdict]
        click.echo(json.dumps({**facts, "verdict": decided.verdict, "exit_code": code, "report": report}, indent=2))
    else:
        _print(facts, f"{report['html']} (and report.md beside it)" if report else REMOVED)
    sys.exit(EXIT_CODES[decided.verdict])


def _print(facts: Mapping[str, Any], report: str) -> None:
    from rung.runner.views.tables import table

    rows = [[row[name] for name in ("what", "fp32", "asked", "difference")] for row in facts.get("table", ())]
    if rows:
        click.echo("\n" + table(("", "FP32", "AS ASKED", "DIFFERENCE"), rows, 10_000))
    for answer in facts.get("answers", ()):
        click.echo(f"\n{click.style(answer['question'], bold=True)} {clean(answer['answer'])}".rstrip())
        for cause in answer["causes"]:
            click.echo(f"  - {clean(cause)}")
    _print_near(facts.get("near_limit"))
    click.echo(f"\nreport: {report}")
    line = clean(facts["line"])
    verdict = line.removeprefix("verdict: ").partition(" ")[0]
    click.echo(click.style(line, fg=COLOURS.get(verdict), bold=True))


def _print_near(near: Mapping[str, Any] | None) -> None:
    """Print the modules that came near FP16's limit, where they were watched."""
    from rung.runner.validation.near_table import HEADERS, QUESTION
    from rung.runner.views.tables import table

    if near is None:
        return
    click.echo(f"\n{click.style(QUESTION, bold=True)}")
    rows = [[row["module"], row["activations"], row["gradients"]] for row in near["table"]]
    if rows:
        click.echo(table([each.upper() for each in HEADERS], rows, 10_000))
    for text in near["says"]:
        click.echo(f"  - {clean(text)}")
