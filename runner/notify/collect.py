"""Turns events into messages in the outbox, each event once: the messages and the cursor are written together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from rung.jobs.model.errors import EngineError
from rung.jobs.model.paths import HomePaths
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.launch.request import find_secrets
from rung.runner.notify.messages import NOTHING, Reaction, Story, may_matter, react
from rung.runner.notify.settings import Settings
from rung.runner.state.outbox_rows import NewMessage
from rung.runner.state.store import Event, Store

# Events that become messages in one transaction: few, so that the controller never waits long for the store.
MOST_EVENTS = 200


def begin(store: Store) -> None:
    """Remember that later events have to be told, if that is not known yet."""
    if store.outbox_cursor() is None:
        with store.transaction():
            store.set_outbox_cursor(store.last_event())


def forget(store: Store) -> None:
    """Forget where the events were read to: what happens while nobody is to be told is not told later."""
    if store.outbox_cursor() is not None:
        with store.transaction():
            store.set_outbox_cursor(None)


def collect(store: Store, settings: Settings, paths: HomePaths, environ: Mapping[str, str]) -> bool:
    """Turn the next events into messages; True if there may be more. The first time, only later events count."""
    begin(store)
    events = store.events(after=store.outbox_cursor() or 0)[:MOST_EVENTS]
    if not events:
        return False
    reactions = [(event, _reaction(store, event, paths, environ)) for event in events if may_matter(event)]
    made = [(reaction.takes_back, _addressed(store, event, reaction, settings)) for event, reaction in reactions]
    with store.transaction():
        for takes_back, messages in made:
            for topic in takes_back:
                store.drop_topic(topic)
            for message in messages:
                store.add_message(message)
        store.set_outbox_cursor(events[-1].seq)
        store.bound_outbox([*settings.targets])
    return True


def _reaction(store: Store, event: Event, paths: HomePaths, environ: Mapping[str, str]) -> Reaction:
    job = store.job(event.job_id)
    past = [each for each in store.events(job.id) if each.seq <= event.seq]
    story = Story(job, store.attempts(job.id), past, _secrets(job.spec, paths, environ))
    try:
        return react(event, story)
    except (LookupError, TypeError, ValueError, AttributeError):
        return NOTHING  # an event that another version wrote must not hold back all that come after it


def _secrets(spec: JobSpec, paths: HomePaths, environ: Mapping[str, str]) -> list[str]:
    values: list[str] = []
    for name in spec.secrets:
        with suppress(EngineError):
            values += find_secrets((name,), paths, environ).values()
    return values


def _addressed(store: Store, event: Event, reaction: Reaction, settings: Settings) -> Sequence[NewMessage]:
    spec = store.job(event.job_id).spec
    return [
        NewMessage(event.seq, name, each.topic, each.occasions, each.text, event.at + each.after)
        for each in reaction.messages
        for name in settings.recipients(spec, each.occasions)
    ]
