"""Puts together what the page of one job shows, from the same data as `rung history` and the story."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rung.jobs.job import Job
from rung.jobs.model.event import EventKind
from rung.jobs.model.knobs import no_value_text
from rung.jobs.model.paths import HomePaths
from rung.runner.report.checkpoint_list import KnownCheckpoint, known_checkpoints
from rung.runner.state.store import Store
from rung.runner.views.history import history
from rung.runner.views.live_line import describe_now
from rung.runner.views.story import StoryLine, whole_story
from rung.runner.views.tables import attempt_title, knob_pairs, knob_text, progress_facts, time_facts, whole_cost

# A job that was relaunched for weeks has a long story; `rung history --json` has all of it.
MOST_STORY = 200


@dataclass(frozen=True)
class AttemptView:
    """One attempt, laid out for the page."""

    row: Mapping[str, Any]
    title: str
    # Name, value before, value after.
    changed: tuple[tuple[str, str, str], ...]
    # Name, asked, effective, and whether the change did not take.
    knobs: tuple[tuple[str, str, str, bool], ...]
    # Label, text, and the colour that a terminal would have.
    facts: tuple[tuple[str, str, str | None], ...]
    # The trials that were decided after it, and what they show.
    trials: Mapping[str, Any] | None

    @property
    def number(self) -> int:
        return int(self.row["number"])


@dataclass(frozen=True)
class JobView:
    """One job, laid out for the page."""

    job: Job
    row: Mapping[str, Any]
    cost: str
    doing: str
    attempts: tuple[AttemptView, ...]
    story: tuple[StoryLine, ...]
    story_left_out: int
    checkpoints: tuple[KnownCheckpoint, ...]
    knobs: Mapping[str, str]

    @property
    def newest(self) -> AttemptView | None:
        return self.attempts[0] if self.attempts else None


def job_view(store: Store, job: Job, paths: HomePaths, now: float) -> JobView:
    """Return everything that the page of a job shows, but its log."""
    data, attempts, events = history(store, job, paths, now), store.attempts(job.id), store.events(job.id)
    zero_edit = job.spec.knobs.mode == "zero-edit"
    trials = {event["attempt"]: event["data"] for event in data["events"] if event["kind"] == EventKind.TRIALS}
    views = [_attempt(row, trials.get(row["number"]), zero_edit=zero_edit) for row in data["attempts"]]
    lines = whole_story(events, attempts)
    return JobView(
        job=job,
        row=data["job"],
        cost=whole_cost(data["summary"]),
        doing="" if job.ended else describe_now(job, attempts, None, now),
        attempts=tuple(reversed(views)),
        story=tuple(lines[-MOST_STORY:]),
        story_left_out=max(0, len(lines) - MOST_STORY),
        checkpoints=tuple(known_checkpoints(events, attempts)),
        knobs={name: knob_text(value, "") for name, value in job.knobs.to_dict().items()},
    )


def _attempt(row: Mapping[str, Any], trials: Mapping[str, Any] | None, *, zero_edit: bool) -> AttemptView:
    changed = []
    for name, (old, new) in row["changed"].items():
        nothing = no_value_text(name, zero_edit=zero_edit)
        changed.append((name, knob_text(old, nothing), knob_text(new, nothing)))
    pairs = knob_pairs(row, zero_edit=zero_edit)
    return AttemptView(
        row=row,
        title=attempt_title(row),
        changed=tuple(changed),
        knobs=tuple((name, asked, live, name in row["not_taken"]) for name, asked, live in pairs),
        facts=(*time_facts(row), *progress_facts(row)),
        trials=trials,
    )
