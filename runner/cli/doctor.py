"""The command `rung doctor`."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rung.jobs.model.terminal_text import clean

if TYPE_CHECKING:
    from rung.recovery.doctor.rules.rule import LintFinding
    from rung.runner.session.doctor import LintRun
    from rung.runner.session.doctor_runs import SeenInRun

# Repeated here so that `rung --help` does not load the rules; a test compares the two.
LEVELS = ("error", "warning", "note")
COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--rules", is_flag=True, help="List the rules: what each looks for, why, and what to write instead.")
@click.option("--fp16", is_flag=True, help="Treat every file as FP16 code, whatever it contains.")
@click.option("--level", type=click.Choice(LEVELS), default="note", help="Show findings from this level up.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def doctor(paths: tuple[Path, ...], rules: bool, fp16: bool, level: str, as_json: bool) -> None:
    """Find what fails in FP16 in training scripts, without a run.

    PATHS are files or folders.

    Where a job in the store has run one of them, it also names the modules that its validation or a replay has found.

    Exit code: 0 without a finding of level error, 1 with one, 2 when a file could not be read. A comment
    `# rung: ignore[rule]` on a line silences a rule there.
    """
    from rung.jobs.model.errors import UsageError
    from rung.runner.session.doctor import lint

    if rules:
        _print_rules(as_json)
        return
    if not paths:
        raise UsageError("doctor: say which script or folder: rung doctor train.py")
    found = lint(paths, fp16=fp16)
    shown = [
        (file, finding) for file, finding in found.findings if LEVELS.index(finding.severity) <= LEVELS.index(level)
    ]
    seen = _seen_in_runs(paths)
    if as_json:
        _print_json(found, shown, seen)
    else:
        _print_text(found, shown, seen)
    sys.exit(found.exit_code)


def _seen_in_runs(paths: tuple[Path, ...]) -> list[SeenInRun]:
    """Return what runs of these scripts have shown; a store that cannot be read is no reason to say nothing else."""
    from rung.jobs.model.errors import RungError
    from rung.runner.session.doctor_runs import seen_in_runs

    try:
        return seen_in_runs(paths, os.environ)
    except RungError as error:
        click.echo(f"{click.style('rung:', fg='red')} what runs have shown is not known: {clean(str(error))}", err=True)
        return []


def _print_rules(as_json: bool) -> None:
    from rung.recovery.doctor.examine import RULES

    if as_json:
        click.echo(json.dumps([asdict(rule) for rule in RULES], indent=2))
        return
    for rule in RULES:
        click.echo(f"{click.style(rule.name, bold=True)}: {rule.what}")
        click.echo(f"    level: {rule.in_fp16} in FP16 code, {rule.elsewhere or 'silent'} elsewhere")
        click.echo(f"    why: {rule.why}\n    fix: {rule.fix}")


def _print_json(found: LintRun, shown: list[tuple[str, LintFinding]], seen: list[SeenInRun]) -> None:
    rows = [{"file": file, **asdict(finding)} for file, finding in shown]
    counts = {"files": found.files, "lines": found.lines, "files_in_fp16": found.in_fp16}
    runs = [asdict(each) for each in seen]
    click.echo(json.dumps({"findings": rows, "problems": found.problems, **counts, "seen_in_runs": runs}, indent=2))


def _print_text(found: LintRun, shown: list[tuple[str, LintFinding]], seen: list[SeenInRun]) -> None:
    explained: set[str] = set()
    for file, finding in shown:
        level = click.style(f"{finding.severity}:", fg=COLOURS[finding.severity])
        click.echo(f"{file}:{finding.line}: {level} {finding.what} [{finding.rule}]")
        if finding.rule not in explained:
            # Once per rule is enough.
            click.echo(f"    why: {finding.why}\n    fix: {finding.fix}")
            explained.add(finding.rule)
    for each in seen:
        title = click.style("seen in runs:", fg="cyan")
        click.echo(f"{title} {clean(each.job)}, {clean(each.source)}: {clean(each.says)}")
    for problem in found.problems:
        click.echo(f"{click.style('rung:', fg='red')} {problem}", err=True)
    counts = Counter(str(finding.severity) for _, finding in found.findings)
    summary = ", ".join(f"{counts[each]} {each}{'s' * (counts[each] != 1)}" for each in LEVELS)
    click.echo(f"{found.files} file{'s' * (found.files != 1)}, {found.in_fp16} in FP16: {summary}")
