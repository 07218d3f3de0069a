"""Takes the messages of a log: what a line says in words, whether a signature knows them or not."""

from __future__ import annotations

from dataclasses import dataclass

from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.spec.recovery_spec import Rule
from rung.recovery.detect.candidates import Certainty, FaultCandidates, certainty_of
from rung.recovery.detect.fault_builder import FaultBuilder
from rung.recovery.detect.last_exception import LastException, is_exception
from rung.recovery.detect.log_tail import Tail
from rung.recovery.detect.numeric_faults import NumericFaults
from rung.recovery.detect.quoted_loss import quotes_bad_loss
from rung.recovery.logs.progress import ProgressTracker
from rung.recovery.logs.reading import Reading
from rung.recovery.monitors.fault_groups import BAD_SCALE, BAD_VALUE
from rung.recovery.monitors.loss_scale import Backoff
from rung.recovery.signatures import Role, Signature
from rung.recovery.signatures.cuda import ASSERT_TRIGGERED, DEVICE_ASSERTION
from rung.recovery.signatures.memory import KILLED
from rung.recovery.signatures.search import Match, is_first_hand, search, search_assertion
from rung.recovery.signatures.user_rules import named_fault


@dataclass(frozen=True)
class Followed:
    """What is followed of one log."""

    candidates: FaultCandidates
    builder: FaultBuilder
    numbers: NumericFaults
    progress: ProgressTracker
    tail: Tail
    last_exception: LastException


class Messages:
    """Opens the candidates that messages show. `killed`: what it means that a line only says so of a process."""

    def __init__(self, followed: Followed, killed: FaultKind) -> None:
        self._log, self._killed = followed, killed

    def take(self, text: str, lower: str, reading: Reading | None, event: Backoff | None) -> list[Fault]:
        """Take a line, also in lower case, with its numbers and its back-off; return the faults to list now."""
        log = self._log
        if event:
            log.builder.number_line = log.builder.line
            if found := log.numbers.back_off(log.progress.step, event):
                return found
        match = search(text, lower) or search_assertion(text, log.builder.traceback.source)
        if match and (ASSERT_TRIGGERED in lower or match.signature.name == DEVICE_ASSERTION):
            log.numbers.confirm_by_assertion()
        # The back-off explains the bad gradients that its line tells of.
        found = self._take_match(match, reading) if match and not (event and match.signature.window) else []
        if log.builder.traceback.ends and is_exception(text):
            log.last_exception.end(self._exception_fault(match))
        if not match and not log.tail.unknown_exception and is_first_hand(text):
            log.tail.remember_exception(text, log.progress.step)
        return found

    def take_rule(self, rule: Rule) -> list[Fault]:
        """Take a line that a rule of the job file names."""
        fault = self._log.builder.build(named_fault(rule), note=f"the job's own rule {rule.name!r}")
        return self._log.candidates.add(fault, Certainty.RULE)

    def take_quotation(self, text: str) -> list[Fault]:
        """List a bad loss that a comment quotes, when there is nothing else."""
        log = self._log
        alone = not log.tail.unknown_exception and quotes_bad_loss(text)
        return log.candidates.add(log.builder.build(FaultKind.NAN_LOSS), Certainty.QUOTED) if alone else []

    def _exception_fault(self, match: Match | None) -> Fault:
        """Return the fault of an exception; one that is open already stays the first of its kind."""
        kind = self._kind_of(match.signature) if match else None
        known = self._log.candidates.get(kind) if kind else None
        return known.fault if known else self._log.builder.build(kind or FaultKind.UNKNOWN_EXIT)

    def _take_match(self, match: Match, reading: Reading | None) -> list[Fault]:
        log, row = self._log, match.signature
        kind = self._kind_of(row)
        assert kind is not None, "guards are no matches"
        if row.after_steps and not log.progress.has_begun:
            return []
        # An unknown exception before is the cause of the end; this line only follows from it.
        if (row.role is Role.CASCADE or match.quoted) and log.tail.unknown_exception:
            return []
        only_words = not match.raised and not match.quoted
        if only_words and log.progress.has_records and self._is_seen_inside(kind):
            return log.numbers.say(kind, about_one_batch=row.window is not None)
        if row.window is not None and only_words:
            # Where the numbers of the line are bad too, the message is about the same batch.
            return [] if reading is not None and reading.has_bad_number else log.numbers.hint(kind)
        certainty = certainty_of(match)
        if certainty is Certainty.DECISIVE and log.progress.reports_its_end:
            # A script that this exception ends says so before it. This one may have caught it and go on.
            certainty = Certainty.AT_END
        return log.candidates.add(log.builder.build(kind, match.start), certainty)

    def _is_seen_inside(self, kind: FaultKind) -> bool:
        """Return whether records would show this fault by their numbers."""
        return kind in BAD_VALUE or (kind in BAD_SCALE and self._log.numbers.has_scale)

    def _kind_of(self, row: Signature) -> FaultKind | None:
        return self._killed if row.name == KILLED else row.fault
