"""Matches a line against the rules of the job file, which come before all signatures."""

from __future__ import annotations

from collections.abc import Sequence

from rung.jobs.model.fault import FaultKind
from rung.jobs.spec.recovery_spec import Rule, RuleAction, compile_rule
from rung.recovery.signatures.quoted_text import is_program, without_comment

# Only this much of a line is matched.
MAX_RULE_TEXT = 4096
_ACTIONS = {RuleAction.STOP: FaultKind.RULE_STOP, RuleAction.RETRY: FaultKind.RULE_RETRY}


class Rules:
    """The rules of one job file, in order: the first that matches a line decides."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = [(rule, compile_rule(rule.pattern)) for rule in rules]

    def __bool__(self) -> bool:
        return bool(self._rules)

    def match(self, text: str) -> Rule | None:
        if not self._rules:
            return None
        text = text[:MAX_RULE_TEXT]
        for rule, pattern in self._rules:
            if pattern.search(text):
                # A job file that is printed into the log must not match its own rule.
                return None if is_program(text) or without_comment(text) is not None else rule
        return None


def named_fault(rule: Rule) -> FaultKind:
    """Return the fault that a rule names, or the one for its action."""
    return rule.fault or _ACTIONS[rule.action or RuleAction.STOP]
