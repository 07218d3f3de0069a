"""Defines a rule of the doctor, what it reports, and the finding that a person reads."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How likely a training in FP16 fails: it will, it can, or it is worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


# What helps without a change of the script, in the words of a job file.
CLAMPED = "or leave the script as it is: knobs: {constants: clamp}, the rung clamp_constants"
IN_FP32 = "or keep the module in FP32: knobs: {fp32_modules: [its name]}, the rung fp32_modules"

ORDER = (Severity.ERROR, Severity.WARNING, Severity.NOTE)


@dataclass(frozen=True)
class Rule:
    """A known cause of failures. `elsewhere` is the severity in code without FP16; None: it is not reported."""

    name: str
    what: str
    why: str
    fix: str
    in_fp16: Severity
    elsewhere: Severity | None


@dataclass(frozen=True)
class Hit:
    """A place where a rule applies. `softer` makes an error a warning and a warning a note."""

    rule: Rule
    node: ast.AST
    what: str = ""
    # The value was cast to FP32 before, or autocast is off: the severity is that of code without FP16.
    in_fp32: bool = False
    softer: bool = False


@dataclass(frozen=True)
class LintFinding:
    """What the user reads: where, what, why, and what to write instead."""

    line: int
    column: int
    rule: str
    severity: Severity
    what: str
    why: str
    fix: str


def severity_of(hit: Hit, *, fp16: bool) -> Severity | None:
    """Return the severity of a hit in this file; None when it is not reported here."""
    found = hit.rule.in_fp16 if fp16 and not hit.in_fp32 else hit.rule.elsewhere
    if found is None or not hit.softer:
        return found
    return ORDER[min(ORDER.index(found) + 1, len(ORDER) - 1)]
