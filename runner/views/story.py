"""Turns the events of a job into its story: launch, fault, decision, trials, resume, result. Prints nothing.

Every event is told once and in few words; `rung history` has the details. All text is cleaned when it is laid out.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from rung.jobs.job import Attempt
from rung.jobs.model.event import EventKind, find_kind
from rung.jobs.model.fault import Fault
from rung.jobs.model.knobs import no_value_text
from rung.jobs.model.state import ENDED, JobState
from rung.jobs.model.terminal_text import clean
from rung.recovery.decide.wording import describe_fault
from rung.runner.state.store import Event
from rung.runner.views.tables import STATE_COLOURS, terminal_width, trial_table

# The widest that a person reads well; a pipe has no width of its own.
WIDTH = 100
# A line of a log can be very long. The history shows all of it.
MOST_ROWS = 6
# Time, label and the spaces between; shorter lines are no longer readable beside them.
INDENT, LABEL, LEAST_TEXT = 20, 10, 20
# The marker and the step of a record: the sentence before it names the step.
RECORD = re.compile(r"^.*?rung\| step (?:step=\S+ )?")
WHY_RECOVERED = re.compile(r"(?<=; recovered): .*")
LOSSES = re.compile(r" \(.*\)")
# Each decision brings most of its own sentences, so few are needed to leave out repetitions.
MOST_SENTENCES = 8
LONGEST = 1e8

Attempts = Mapping[int, Attempt]


@dataclass(frozen=True)
class StoryLine:
    """One thing that happened, for a person."""

    at: float
    label: str
    text: str
    colour: str | None = None
    # The rows of a table of trials.
    table: tuple[Mapping[str, Any], ...] = ()
    most_rows: int = MOST_ROWS


@dataclass(frozen=True)
class Told:
    """What the story has said so far, so that nothing is said twice."""

    # The newest attempt that the events name; a change of state names none.
    attempt: int = 0
    sentences: tuple[str, ...] = ()
    last: tuple[str, str] = ("", "")
    recovered: bool = False

    def without_repetition(self, text: str) -> str:
        """Return a sentence without the beginning that was already said."""
        for said in self.sentences:
            for mark in (": ", "; "):
                text = text.removeprefix(said + mark)
        return text

    def shortened(self, text: str) -> str:
        """Return a result without the reason at its end that was already said; one for a recovery is enough."""
        if self.recovered:
            return WHY_RECOVERED.sub("", text)
        for said in self.sentences:
            text = text.removesuffix(f": {said}")
        return text


def tell(told: Told, event: Event, attempts: Attempts) -> tuple[Told, StoryLine | None]:
    """Return what an event adds to the story, if anything, and what has been said then."""
    kind = find_kind(event.kind)
    if event.attempt is not None:
        told = replace(told, attempt=max(told.attempt, event.attempt))
    line = TELLERS.get(kind, _tell_any)(told, event, attempts) if kind is not None else None
    told = replace(
        told,
        sentences=(*told.sentences, *_sentences(kind, event))[-MOST_SENTENCES:],
        recovered=told.recovered or kind is EventKind.RECOVERED,
    )
    if line is None or (line.label, line.text) == told.last:
        return told, None
    return replace(told, last=(line.label, line.text)), line


def whole_story(events: Iterable[Event], attempts: Sequence[Attempt]) -> list[StoryLine]:
    """Return the story of a job so far."""
    told, numbered, lines = Told(), {each.number: each for each in attempts}, []
    for event in events:
        told, line = tell(told, event, numbered)
        lines += [line] if line else []
    return lines


def _sentences(kind: EventKind | None, event: Event) -> tuple[str, ...]:
    """Return what later events repeat of this one."""
    if kind is EventKind.FAULT:
        return (describe_fault(Fault.from_dict(event.data)),)
    if kind is EventKind.INTERRUPTED:
        return (f"interrupted: {event.data['because']}",)
    if kind in (EventKind.TRIALS, EventKind.RECOVERED, EventKind.SURVIVED, EventKind.NOT_LEARNING):
        return (str(event.data["because"]),)
    return ()


def _tell_any(told: Told, event: Event, attempts: Attempts) -> StoryLine | None:
    kind = find_kind(event.kind)
    if kind is None or not kind.followed:
        return None
    return StoryLine(event.at, kind.replace("_", " "), kind.describe(event.data), kind.colour)


def _tell_nothing(told: Told, event: Event, attempts: Attempts) -> StoryLine | None:
    return None


def _tell_start(told: Told, event: Event, attempts: Attempts) -> StoryLine | None:
    """Tell whose checkpoint a job begins with. The command has said that it is submitted."""
    start = event.data.get("from")
    return StoryLine(event.at, "begins", f"at step {start['step']} of {start['job']}") if start else None


def _tell_launch(told: Told, event: Event, attempts: Attempts) -> StoryLine | None:
    """Tell the launches that a person asked for; those of Rung are told when they are decided and when they run."""
    attempt = attempts.get(event.attempt or 0)
    if attempt is None or not attempt.by_person:
        return None
    command = EventKind.STARTED.describe(event.data)
    return StoryLine(event.at, "launched", f"on {attempt.where}: {command}", "cyan", most_rows=1)


def _knob(name: str, value: Any) -> Any:
    return no_value_text(name, zero_edit=False) if value is None else value


def _tell_retry(told: Told, event: Event, attempts: Attempts) -> StoryLine | None:
    changes = [
        f"{name} {_knob(name, old)} -> {_knob(name, new)}" for name, (old, new) in event.data.get("knobs", {}).items()
    ]
    return StoryLine(event.at, "retried", f"with {', '.join(changes)}" if changes else "with the same knobs")


def _tell_fault(told: Told, event: Event, attempts: Attempts) -> StoryLine | None:
    fault = Fault.from_dict(event.data)
    numbers = RECORD.sub("", fault.evidence)
    # A note says in words what the numbers of a record show.
    shown = "" if fault.note and numbers != fault.evidence else numbers
    text = f"{describe_fault(fault)}: {shown}" if shown else describe_fault(fault)
    return StoryLine(event.at, "fault", f"{_trial_name(event, attempts)}{text}", "red")


def _trial_name(event: Event, attempts: Attempts) -> str:
    attempt = attempts.get(event.attempt or 0)
    if attempt is None or attempt.trial is None or not attempt.is_trial:
        return ""
    return f"in the trial of {attempt.trial.candidate.label}: "


def _tell_decision(told: Told, event: Event, attempts: Attempts) -> StoryLine | None:
    attempt = attempts.get(event.attempt or 0)
    if attempt is not None and attempt.by_person and attempt.resumed_from is None:
        return None
    label = "trial" if attempt is not None and attempt.trial is not None else "decided"
    text = told.without_repetition(str(event.data["because"])).removeprefix("trial ")
    return StoryLine(event.at, label, text, "yellow")


def _tell_interruption(told: Told, event: Event, attempts: Attempts) -> StoryLine | None:
    attempt = attempts.get(event.attempt or 0)
    at = f" at step {attempt.furthest_step}" if attempt is not None and attempt.furthest_step is not None else ""
    return StoryLine(event.at, "interrupted", f"{event.data['because']}{at}", EventKind.INTERRUPTED.colour)


def _tell_trials(told: Told, event: Event, attempts: Attempts) -> StoryLine | None:
    # The losses in brackets are those of the table.
    text = LOSSES.sub("", str(event.data["because"]))
    return StoryLine(event.at, "trials", text, "cyan", tuple(event.data["table"]))


def _tell_checkpoint(told: Told, event: Event, attempts: Attempts) -> StoryLine | None:
    """Tell the checkpoints that cannot be used; the decision names the one that is."""
    return None if event.data["verdict"] == "healthy" else _tell_any(told, event, attempts)


def _tell_state(told: Told, event: Event, attempts: Attempts) -> StoryLine | None:
    to, reason = event.data["to"], str(event.data["reason"])
    if to in ENDED:
        return StoryLine(event.at, to, told.shortened(reason), STATE_COLOURS.get(to))
    attempt = attempts.get(told.attempt)
    if to != JobState.RUNNING or attempt is None or attempt.trial is not None:
        return None
    if (attempt.by_person and attempt.resumed_from is None) or attempt.not_resumed:
        return None  # the first line says that it starts; and that it did not resume is an event of its own
    where = f" on {attempt.where}" if attempt.is_remote else ""
    label = "resumed" if attempt.resumed_from else "running"
    return StoryLine(event.at, label, f"{_resume_point(attempt)}{where}: {reason}", "green")


def _resume_point(attempt: Attempt) -> str:
    """Return where an attempt resumed; only the job's own words prove it."""
    if attempt.resumed_from is None:
        return "from scratch"
    if attempt.resumed_step is None:
        return f"with {attempt.resumed_from}"
    return f"at step {attempt.resumed_step}"


TELLERS: dict[EventKind, Callable[[Told, Event, Attempts], StoryLine | None]] = {
    EventKind.SUBMITTED: _tell_start,
    EventKind.STARTED: _tell_launch,
    EventKind.RETRIED: _tell_retry,
    EventKind.FAULT: _tell_fault,
    EventKind.INTERRUPTED: _tell_interruption,
    EventKind.DECIDED: _tell_decision,
    EventKind.TRIALS: _tell_trials,
    EventKind.CHECKPOINT: _tell_checkpoint,
    # One comes with every checkpoint.
    EventKind.MIRRORED: _tell_nothing,
    # The state FAILED, which follows, has the same words.
    EventKind.STOPPED: _tell_nothing,
    EventKind.STATE: _tell_state,
}


def lay_out(line: StoryLine, began: float, width: int) -> str:
    """Return a line of the story in as many rows as the width takes, without control codes."""
    room, label = max(LEAST_TEXT, width - INDENT), clean(line.label).ljust(LABEL)
    rows = _wrap(clean(line.text), room, line.most_rows, taken=len(label) - LABEL)
    rows += trial_table(line.table, room).split("\n") if line.table else []
    label = click.style(label, fg=line.colour, bold=True)
    first = f"{duration(line.at - began):>6}  {label}  {rows[0]}".rstrip()
    return "\n".join([first, *(" " * INDENT + row for row in rows[1:])])


def _wrap(text: str, room: int, most: int, taken: int) -> list[str]:
    """Return the rows of a text; a long label has taken some of the first one."""
    # A change, `lr 2.0 -> 0.2`, is read in one piece: the wrapping breaks at no such space, and clean() leaves none.
    whole = text.replace(" -> ", "\xa0->\xa0")
    rows = textwrap.wrap(
        whole, room, initial_indent=" " * taken, break_on_hyphens=False, max_lines=most, placeholder=" …"
    ) or [""]
    return [row.replace("\xa0", " ") for row in (rows[0][taken:], *rows[1:])]


def story_width() -> int:
    """Return how wide the story may be: as the terminal, but not so wide that it is hard to read."""
    return min(terminal_width(), WIDTH)


def duration(seconds: float) -> str:
    """Return a time as 0:42, 12:05 or 3:20:00."""
    # A host that lies may report a time that no calendar has.
    if not abs(seconds) < LONGEST:
        return "?:??"
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
