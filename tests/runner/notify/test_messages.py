"""Tests which event becomes which message, and which ones are taken back."""

from __future__ import annotations

from typing import Any

import pytest

from rung.jobs.job import Attempt, Job
from rung.jobs.model.event import EventKind, Occasion
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.jobs.model.trial import Candidate, Trial
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.notify.messages import AWAY_SECONDS, LONGEST_LINE, Reaction, Story, may_matter, react
from rung.runner.state.store import Event

SPEC = JobSpec(name="mmgcn", run=("true",))
JOB = Job("mmgcn-7", SPEC, JobState.RUNNING, "", 0.0, 0.0, Knobs())
OVERFLOW = Fault(FaultKind.FP16_OVERFLOW, "value cannot be converted", step=520)


def attempt(number: int, **fields: Any) -> Attempt:
    return Attempt(**{"job_id": JOB.id, "number": number, "host": "ampere", "asked": Knobs(), "rung": None,
                      "because": "", **fields})  # fmt: skip


FIRST = attempt(1, by_person=True, fault=OVERFLOW)


def told(kind: EventKind, data: dict[str, Any], attempts: list[Attempt], *past: Event, at: float = 1000.0,
         number: int | None = None, secrets: tuple[str, ...] = ()) -> Reaction:  # fmt: skip
    event = Event(50, at, JOB.id, number if number is not None else attempts[-1].number, kind.value, data)
    return react(event, Story(JOB, attempts, [*past, event], secrets))


def first_lines(reaction: Reaction) -> list[str]:
    return [message.text.partition("\n")[0] for message in reaction.messages]


def test_a_relaunch_tells_fault_rung_and_step_in_one_line() -> None:
    second = attempt(2, rung="native_fp16", planned_step=500, resumed_from="step_500.pt")
    reaction = told(EventKind.DECIDED, {}, [FIRST, second])
    assert first_lines(reaction) == ["mmgcn: fp16_overflow at step 520, native_fp16 next, from step 500"]
    assert reaction.messages[0].occasions == (Occasion.RECOVERING,)
    assert reaction.messages[0].text.endswith("\njob mmgcn-7, attempt 2; see: rung history mmgcn-7")


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"host": "titan"}, "mmgcn: fp16_overflow at step 520, the same knobs next on titan, from scratch"),
        ({"rung": "fp32", "planned_step": 0}, "mmgcn: fp16_overflow at step 520, fp32 next, from step 0"),
    ],
)
def test_a_relaunch_names_what_changes(fields: dict[str, Any], line: str) -> None:
    assert first_lines(told(EventKind.DECIDED, {}, [FIRST, attempt(2, **fields)])) == [line]


def test_launches_of_a_person_and_steps_back_in_health_are_not_told() -> None:
    assert told(EventKind.DECIDED, {}, [attempt(1, by_person=True)]) == Reaction()
    assert told(EventKind.DECIDED, {}, [FIRST, attempt(2, by_person=True)]) == Reaction()
    assert told(EventKind.DECIDED, {}, [attempt(1, by_person=True), attempt(2, stepped_back=True)]) == Reaction()


def trial(number: int, **fields: Any) -> Attempt:
    candidates = (Candidate("lower_lr", Knobs(lr=0.1), 0.1),)
    made = Trial(1, 0, candidates, start=500, fault_step=520, until=560, bound=100, **fields)
    return attempt(number, trial=made, planned_step=500)


def test_of_the_trials_of_a_round_the_first_and_the_winner_are_told() -> None:
    first, second = trial(2), trial(3)
    (line,) = first_lines(told(EventKind.DECIDED, {}, [FIRST, first]))
    assert line == "mmgcn: fp16_overflow at step 520, trials decide what is next, from step 500"
    assert told(EventKind.DECIDED, {}, [FIRST, first, second]) == Reaction()
    assert told(EventKind.TRIALS, {"because": ""}, [FIRST, first, second]) == Reaction()
    winner = trial(3, won=True, goes_on=True)
    (line,) = first_lines(told(EventKind.TRIALS, {"because": ""}, [FIRST, first, winner]))
    assert line == "mmgcn: lower_lr x0.1 wins the trials and goes on"


def state(before: JobState, after: JobState, reason: str) -> dict[str, Any]:
    return {"from": before, "to": after, "reason": reason}


@pytest.mark.parametrize(
    ("before", "after", "line", "occasions"),
    [
        (JobState.RECOVERING, JobState.FAILED, "mmgcn needs you: why", (Occasion.NEEDS_YOU, Occasion.FAILED)),
        (JobState.LAUNCHING, JobState.FAILED, "mmgcn needs you: why", (Occasion.NEEDS_YOU, Occasion.FAILED)),
        (JobState.RUNNING, JobState.SUCCEEDED, "mmgcn succeeded: why", (Occasion.SUCCEEDED,)),
    ],
)
def test_the_end_of_a_job_is_told(
    before: JobState, after: JobState, line: str, occasions: tuple[Occasion, ...]
) -> None:
    reaction = told(EventKind.STATE, state(before, after, "why"), [FIRST])
    assert first_lines(reaction) == [line]
    assert reaction.messages[0].occasions == occasions


def test_a_job_that_a_person_cancelled_is_not_told() -> None:
    assert told(EventKind.STATE, state(JobState.STOPPING, JobState.CANCELLED, "by a person"), [FIRST]).messages == ()


def test_a_host_that_is_away_is_told_later_and_taken_back_if_it_answers_before() -> None:
    lost, stuck = told(EventKind.UNREACHABLE, {"because": ""}, [FIRST], number=1).messages
    assert lost.occasions == (Occasion.HOST_LOST,) and lost.after == AWAY_SECONDS
    assert stuck.occasions == (Occasion.NEEDS_YOU,) and stuck.after == 1800.0 + AWAY_SECONDS
    away = Event(49, 1000.0, JOB.id, 1, EventKind.UNREACHABLE.value, {})
    data = {"because": "ampere answers again after 20 s"}
    soon = told(EventKind.REACHABLE, data, [FIRST], away, at=1020.0)
    assert soon == Reaction((), (lost.topic, stuck.topic))
    late = told(EventKind.REACHABLE, data, [FIRST], away, at=1000.0 + AWAY_SECONDS)
    assert first_lines(late) == ["mmgcn: ampere answers again after 20 s"] and late.takes_back == (stuck.topic,)
    assert late.messages[0].occasions == (Occasion.HOST_BACK,)


def test_a_host_that_is_given_up_is_told_once() -> None:
    away = Event(49, 1000.0, JOB.id, 1, EventKind.UNREACHABLE.value, {})
    data = {"because": "ampere has been unreachable for 60 s"}
    early = told(EventKind.HOST_LOST, data, [FIRST], away, at=1060.0)
    assert first_lines(early) == ["mmgcn: ampere has been unreachable for 60 s"]
    assert len(early.takes_back) == 2
    assert told(EventKind.HOST_LOST, data, [FIRST], away, at=5000.0).messages == ()
    back = told(EventKind.STALE_GONE, {"because": ""}, [attempt(1, host_lost=True)])
    assert first_lines(back) == ["mmgcn: ampere answers again; the job had left it"]


def test_a_job_that_waits_for_a_host_needs_a_person_only_if_that_lasts() -> None:
    (message,) = told(EventKind.WAITING_FOR_HOST, {"because": "waits for ampere"}, [FIRST]).messages
    assert message.occasions == (Occasion.NEEDS_YOU,) and message.after == 1800.0
    goes_on = told(EventKind.STATE, state(JobState.RECOVERING, JobState.LAUNCHING, ""), [FIRST])
    assert goes_on == Reaction((), (message.topic,))


def test_text_of_logs_is_cleaned_and_cut_and_shows_no_secret() -> None:
    secret = "hf_" + "x" * 40
    reason = f"\x1b]0;title\x07exit code 1:\nlogin\u202e with {secret} {'y' * LONGEST_LINE}"
    cut = told(EventKind.STATE, state(JobState.RUNNING, JobState.FAILED, reason), [FIRST], secrets=(secret,))
    (line,) = first_lines(cut)
    assert line.startswith("mmgcn needs you: exit code 1:login with *** yyy") and line.endswith("y…")
    assert len(line) == LONGEST_LINE
    # The cut does not go through a secret that it would leave a part of.
    edge = "z" * (LONGEST_LINE - 30)
    reaction = told(
        EventKind.STATE, state(JobState.RUNNING, JobState.FAILED, edge + secret), [FIRST], secrets=(secret,)
    )
    assert "hf_x" not in reaction.messages[0].text


def test_most_events_are_not_even_looked_at() -> None:
    matter = {kind for kind in EventKind if may_matter(Event(1, 0.0, "a", None, kind.value, {}))}
    assert EventKind.MIRRORED not in matter and EventKind.CHECKPOINT not in matter and len(matter) == 8
