"""Says which event becomes which message, and which messages it takes back. Touches no disk and no clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rung.jobs.job import Attempt, Job, main_line
from rung.jobs.model.event import EventKind, Occasion, find_kind
from rung.jobs.model.fault import Fault
from rung.jobs.model.state import ENDED, JobState
from rung.jobs.model.terminal_text import clean
from rung.recovery.attention.needs import AWAY_SECONDS, Need, failed, host_awaited, host_away
from rung.runner.state.store import Event
from rung.runner.views.times import with_since

# The first line stands alone, on the lock screen of a telephone.
LONGEST_LINE = 300
HIDDEN = "***"
# Hiding every `1` would hide nothing but the step.
SHORTEST_SECRET = 3


@dataclass(frozen=True)
class Message:
    """What people are told, `after` so many seconds if nothing takes its topic back until then."""

    occasions: tuple[Occasion, ...]
    text: str
    after: float = 0.0
    topic: str = ""


@dataclass(frozen=True)
class Reaction:
    """What an event leads to: messages to add, and topics whose unsent messages are no longer true."""

    messages: tuple[Message, ...] = ()
    takes_back: tuple[str, ...] = ()


@dataclass(frozen=True)
class Story:
    """What is known of the job of an event: all its attempts, and its events up to this one."""

    job: Job
    attempts: Sequence[Attempt]
    events: Sequence[Event]
    # The values of the job's secrets, which a line of its log may show.
    secrets: Sequence[str] = ()

    def attempt(self, number: int | None) -> Attempt | None:
        return next((each for each in self.attempts if each.number == number), None)

    def last(self, kind: EventKind, attempt: int | None) -> Event | None:
        return next((each for each in reversed(self.events) if each.kind == kind and each.attempt == attempt), None)


NOTHING = Reaction()


def may_matter(event: Event) -> bool:
    """Tell whether events of this kind can lead to a message, or take one back. Most do not."""
    return find_kind(event.kind) in REACTIONS


def react(event: Event, story: Story) -> Reaction:
    """Return what an event that may matter leads to."""
    return REACTIONS[find_kind(event.kind)](event, story)


def _message(occasions: tuple[Occasion, ...], first: str, event: Event, story: Story) -> Message:
    """Return a message of two lines, without secrets, control codes and what is too long, in this order."""
    for value in story.secrets:
        first = first.replace(value, HIDDEN) if len(value) >= SHORTEST_SECRET else first
    first = clean(first)
    first = first if len(first) <= LONGEST_LINE else f"{first[: LONGEST_LINE - 1]}…"
    number = f", attempt {event.attempt}" if event.attempt is not None else ""
    return Message(occasions, f"{first}\njob {story.job.id}{number}; see: rung history {story.job.id}")


def _needs_you(need: Need, event: Event, story: Story, *also: Occasion) -> Message:
    """Return the message that a job needs a person, to be sent when that is due, unless something changes by then."""
    text = f"{story.job.spec.name} needs you: {with_since(need.why, need.since)}"
    made = _message((Occasion.NEEDS_YOU, *also), text, event, story)
    wait = (need.due or event.at) - event.at
    return replace(made, after=wait, topic=_stuck(story.job)) if wait else made


def _recovering(event: Event, story: Story) -> Reaction:
    """Tell a relaunch after a fault: what happened, what comes next, and from where. Of trials, tell the first."""
    attempt, fault = story.attempt(event.attempt), _fault_before(event, story)
    if attempt is None or attempt.by_person or fault is None:
        return NOTHING
    before = main_line([each for each in story.attempts if each.number < attempt.number])[-1]
    if attempt.trial is not None and before.number != attempt.number - 1:
        return NOTHING
    what = "trials decide what is" if attempt.trial is not None else attempt.rung or "the same knobs"
    moved = f" on {attempt.where}" if attempt.where != before.where else ""
    start = f"from step {attempt.planned_step}" if attempt.planned_step is not None else "from scratch"
    text = f"{story.job.spec.name}: {_fault_text(fault)}, {what} next{moved}, {start}"
    return Reaction((_message((Occasion.RECOVERING,), text, event, story),))


def _trials(event: Event, story: Story) -> Reaction:
    """Tell which trial goes on as the job's own run. Where another launch follows, its decision is told."""
    attempt = story.attempt(event.attempt)
    if attempt is None or attempt.trial is None or not attempt.trial.goes_on or _fault_before(event, story) is None:
        return NOTHING
    text = f"{story.job.spec.name}: {attempt.trial.candidate.label} wins the trials and goes on"
    return Reaction((_message((Occasion.RECOVERING,), text, event, story),))


def _fault_before(event: Event, story: Story) -> Fault | None:
    """Return the fault that an attempt, or a round of trials, came after; None if it did not come after a fault."""
    earlier = main_line([each for each in story.attempts if each.number < (event.attempt or 0)])
    return earlier[-1].fault if earlier else None


def _fault_text(fault: Fault) -> str:
    return f"{fault.kind} at step {fault.step}" if fault.step is not None else fault.kind.value


def _state(event: Event, story: Story) -> Reaction:
    """Tell how a job ended. Who cancels a job knows it."""
    to, reason, name = event.data["to"], str(event.data["reason"]), story.job.spec.name
    messages: tuple[Message, ...] = ()
    if to == JobState.SUCCEEDED:
        messages = (_message((Occasion.SUCCEEDED,), f"{name} succeeded: {reason}", event, story),)
    elif to == JobState.FAILED:
        messages = (_needs_you(failed(story.job.id, reason, event.at), event, story, Occasion.FAILED),)
    moves = to in ENDED or to == JobState.LAUNCHING
    return Reaction(messages, (_stuck(story.job), *([_away(story.job)] if to in ENDED else [])) if moves else ())


def _unreachable(event: Event, story: Story) -> Reaction:
    """Tell that a host does not answer, and later that the job still waits for it, unless something changes by then."""
    attempt, job = story.attempt(event.attempt), story.job
    host = attempt.some_host if attempt is not None else "its host"
    need = host_away(job, host, event.at)
    text = f"{job.spec.name}: {with_since(need.why, need.since)}; the job is left as it is"
    lost = _message((Occasion.HOST_LOST,), text, event, story)
    return Reaction((replace(lost, after=AWAY_SECONDS, topic=_away(job)), _needs_you(need, event, story)))


def _host_lost(event: Event, story: Story) -> Reaction:
    if _told_away(event, story):
        return Reaction((), (_stuck(story.job),))
    text = f"{story.job.spec.name}: {event.data['because']}"
    return Reaction((_message((Occasion.HOST_LOST,), text, event, story),), (_away(story.job), _stuck(story.job)))


def _reachable(event: Event, story: Story) -> Reaction:
    """Tell that a host is back, if it was told that it was away."""
    if not _told_away(event, story):
        return Reaction((), (_away(story.job), _stuck(story.job)))
    text = f"{story.job.spec.name}: {event.data['because']}"
    return Reaction((_message((Occasion.HOST_BACK,), text, event, story),), (_stuck(story.job),))


def _stale_gone(event: Event, story: Story) -> Reaction:
    """Tell that a host is back that was given up."""
    attempt = story.attempt(event.attempt)
    if attempt is None or not attempt.host_lost:
        return NOTHING
    text = f"{story.job.spec.name}: {attempt.some_host} answers again; the job had left it"
    return Reaction((_message((Occasion.HOST_BACK,), text, event, story),))


def _waiting(event: Event, story: Story) -> Reaction:
    need = host_awaited(story.job.id, str(event.data["because"]), event.at)
    return Reaction((_needs_you(need, event, story),))


def _told_away(event: Event, story: Story) -> bool:
    away = story.last(EventKind.UNREACHABLE, event.attempt)
    return away is not None and event.at - away.at >= AWAY_SECONDS


def _away(job: Job) -> str:
    return f"away {job.id}"


def _stuck(job: Job) -> str:
    return f"stuck {job.id}"


REACTIONS: dict[EventKind | None, Callable[[Event, Story], Reaction]] = {
    EventKind.DECIDED: _recovering,
    EventKind.TRIALS: _trials,
    EventKind.STATE: _state,
    EventKind.UNREACHABLE: _unreachable,
    EventKind.REACHABLE: _reachable,
    EventKind.HOST_LOST: _host_lost,
    EventKind.STALE_GONE: _stale_gone,
    EventKind.WAITING_FOR_HOST: _waiting,
}
