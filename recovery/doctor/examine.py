"""Applies all rules to one script and returns the findings that its comments do not silence, by line."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from itertools import islice

from rung.jobs.model.terminal_text import clean
from rung.recovery.doctor.analysis.script import Script
from rung.recovery.doctor.rules import (
    checkpointing,
    half_with_scaler,
    logs,
    masks,
    nan_guard,
    parameters,
    powers,
    roots,
    unscale_order,
)
from rung.recovery.doctor.rules.rule import ORDER, Hit, LintFinding, Rule, Severity, severity_of

FAMILIES = (half_with_scaler, unscale_order, masks, logs, roots, powers, parameters, nan_guard, checkpointing)
RULES: tuple[Rule, ...] = tuple(rule for family in FAMILIES for rule in family.RULES)
NAMES = frozenset(rule.name for rule in RULES)
# Most hits of one family in one file, so that the time for a hostile script is bounded.
MOST = 1000
_IGNORE = re.compile(r"#\s*rung:\s*ignore\[([\w\s,-]{1,500})\]")


@dataclass(frozen=True)
class Examined:
    """The findings in one script, for the case that it runs in FP16 and for the case that it does not."""

    in_fp16: tuple[LintFinding, ...] = ()
    elsewhere: tuple[LintFinding, ...] = ()


def examine(script: Script) -> Examined:
    """Return what the rules find in a script; which of the two cases applies can depend on other files."""
    if not script.uses_torch:
        return Examined()
    hits = [hit for family in FAMILIES for hit in islice(family.check(script), MOST) if not _is_silenced(script, hit)]
    return Examined(_findings(hits, fp16=True), _findings(hits, fp16=False))


def _findings(hits: list[Hit], *, fp16: bool) -> tuple[LintFinding, ...]:
    found = {_finding(hit, severity) for hit in hits if (severity := severity_of(hit, fp16=fp16)) is not None}
    return tuple(
        sorted(found, key=lambda each: (each.line, each.column, ORDER.index(each.severity), each.rule, each.what))
    )


def unknown_rules(script: Script) -> list[tuple[int, str]]:
    """Return the names in `# rung: ignore[...]` that are not rules, with their lines."""
    ignored = ((number, name) for number, line in enumerate(script.lines, 1) for name in sorted(_ignored(line)))
    return [(number, clean(name)) for number, name in ignored if name not in NAMES]


def _finding(hit: Hit, severity: Severity) -> LintFinding:
    line, column = getattr(hit.node, "lineno", 1), getattr(hit.node, "col_offset", 0) + 1
    return LintFinding(
        line, column, hit.rule.name, severity, clean(hit.what or hit.rule.what), hit.rule.why, hit.rule.fix
    )


def _is_silenced(script: Script, hit: Hit) -> bool:
    """Return whether a comment on any line of the expression names the rule."""
    first = getattr(hit.node, "lineno", 1)
    last = getattr(hit.node, "end_lineno", None) or first
    if isinstance(hit.node, ast.stmt) and hasattr(hit.node, "body"):
        last = first
    return any(hit.rule.name in _ignored(line) for line in script.lines[first - 1 : last])


def _ignored(line: str) -> frozenset[str]:
    if "rung:" not in line:
        return frozenset()
    return frozenset(name.strip() for names in _IGNORE.findall(line) for name in names.split(",") if name.strip())
