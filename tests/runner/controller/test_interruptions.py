"""Tests runs that their site ends at a time limit or for another job: they go on, and nothing is counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rung.jobs.job import Attempt, Outcome, Verdict
from rung.jobs.model.engine import DOCKER, ENGINES, INTERRUPTIONS, SAVE_SIGNAL, SAVED_EXIT, EndedBy, PlacedBy
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.recovery.attention.needs import find_needs
from rung.runner.launch.submit import cancel
from rung.runner.report.summary import recoveries, summary_line
from rung.runner.views.history import history
from rung.runner.views.queue import job_row
from rung.runner.views.story import whole_story
from rung.runner.views.tables import attempt_title
from rung.runner.views.timeline import timeline
from tests.support.pretend import Build, PretendEngine, World

SITE = replace(DOCKER, name="site", placed_by=PlacedBy.SITE, ends=frozenset(EndedBy), warns_before=INTERRUPTIONS)
KNOBS = {"mode": "inside", "lr": 0.1, "precision": "amp_fp16"}
NAN = "".join(f"step {step} loss nan\n" for step in range(250, 254)).encode()


@pytest.fixture
def world(build: Build, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setitem(ENGINES, SITE.name, SITE)  # type: ignore[arg-type]
    world = build(cluster=["A100"])
    world.engines.hosts = [replace(host, engine=SITE) for host in world.engines.hosts]
    world.engine("cluster").node = "n1"
    return world


def cluster(world: World) -> PretendEngine:
    return world.engine("cluster")


def submitted(world: World, **recovery: Any) -> str:
    return world.submit("a", "A100", knobs=KNOBS, recovery={"trials": "off", **recovery})


def attempts(world: World, job: str) -> list[Attempt]:
    return world.store.attempts(job)


def launched(world: World, job: str, number: int) -> str:
    """Wait until an attempt runs and has said where it resumed; return its name."""
    name = f"{job}/{number}"
    world.until(lambda: len(attempts(world, job)) == number and name in cluster(world).there)
    step = world.last(job).planned_step
    if step is not None:
        cluster(world).append_log(name, f"rung| resumed step={step} file=step_{step}.pt\n".encode())
    world.until(lambda: world.is_running(job))
    return name


def interrupt(world: World, name: str, by: EndedBy = EndedBy.TIME_LIMIT, code: int = SAVED_EXIT) -> None:
    world.turn(2)  # what it wrote before is read
    engine = cluster(world)
    engine.end(name, code)
    engine.there[name] = replace(engine.there[name], ended_by=by)


def falling(first: int, last: int) -> bytes:
    return "".join(f"step {step} loss {2.0 / (1 + step / 100):.6g}\n" for step in range(first, last + 1)).encode()


def told(world: World, job: str) -> dict[str, Any]:
    return history(world.store, world.job(job), HomePaths(world.folder), world.now)


def nothing(world: World, job: str, number: int) -> None: ...


def kill_controllers(world: World, job: str, number: int) -> None:
    """Kill the controller when the end is written, and its successor when the next attempt is."""
    world.until(lambda: world.job(job).state is JobState.RECOVERING)
    world.restart()
    world.until(lambda: len(attempts(world, job)) == number + 1)
    world.restart()


@pytest.mark.parametrize("meanwhile", [nothing, kill_controllers], ids=["one controller", "killed controllers"])
def test_five_links_are_one_job_that_succeeds_without_a_recovery(
    world: World, meanwhile: Callable[[World, str, int], None]
) -> None:
    job = submitted(world, max_attempts=2, infra_retries=0)
    for number in range(1, 6):
        name = launched(world, job, number)
        assert find_needs(world.job(job), attempts(world, job), {}) == []
        cluster(world).save(name, 100 * number)
        if number < 5:
            cluster(world).append_log(name, f"step {100 * number + 30} loss 0.9\n".encode())
            interrupt(world, name, EndedBy.PREEMPTION if number == 4 else EndedBy.TIME_LIMIT)
            meanwhile(world, job, number)
    cluster(world).end(name)
    world.until(lambda: world.job(job).ended)
    found = attempts(world, job)
    assert world.job(job).state is JobState.SUCCEEDED
    assert [each.outcome for each in found] == [Outcome.INTERRUPTED] * 4 + [Outcome.SUCCEEDED]
    assert [each.planned_step for each in found] == [None, 100, 200, 300, 400]
    assert [call for call in cluster(world).calls if call[0] == "start"] == [
        ("start", f"{job}/{number}") for number in range(1, 6)
    ]
    assert found[1].because.startswith("interrupted: its time limit was reached; goes on from step 100: step_100.pt is")
    assert found[4].because.startswith("interrupted: it was preempted; goes on from step 400: ")
    data = told(world, job)
    assert (job_row(world.job(job), found, world.now)["recoveries"], recoveries(data["attempts"])) == (0, [])
    # What was repeated was repeated.
    assert (data["summary"]["interruptions"], data["summary"]["steps_lost"]) == (4, 4 * 30)
    assert summary_line(data).startswith("a finished after 4 interruptions: 19 % of steps run again")


def test_every_view_says_it_in_plain_words(world: World) -> None:
    job = submitted(world)
    name = launched(world, job, 1)
    assert cluster(world).requests[name].env["RUNG_SAVE_SIGNAL"] == str(SAVE_SIGNAL)
    cluster(world).save(name, 100)
    interrupt(world, name)
    world.until(lambda: world.job(job).state is JobState.RECOVERING)
    assert world.job(job).reason == "interrupted: its time limit was reached"
    launched(world, job, 2)
    data = told(world, job)
    first, second = data["attempts"]
    assert (first["outcome"], first["ended_by"], first["interrupted"]) == (
        *("interrupted", "time_limit"),
        "its time limit was reached",
    )
    assert (first["goes_on"], second["goes_on"], attempt_title(second).rpartition(": ")[2]) == (False, True, "goes on")
    shown = timeline({**data, "attempts": [{**row, "series": []} for row in data["attempts"]]}, "a", 200)
    assert "interrupted: its time limit was reached" in shown and "goes on running" in shown
    story = [(line.label, line.text) for line in whole_story(world.store.events(job), attempts(world, job))]
    assert ("interrupted", "its time limit was reached at step 100") in story
    assert ("decided", "goes on from step 100: step_100.pt is verified and the newest") in story


def test_three_in_vain_are_one_fault_of_the_machine_that_the_history_shows(world: World) -> None:
    job = submitted(world, infra_retries=1)
    for number in range(1, 7):
        interrupt(world, launched(world, job, number))
    world.until(lambda: world.job(job).ended)
    found = attempts(world, job)
    assert [each.outcome.value for each in found] == ["interrupted", "interrupted", "fault"] * 2
    assert [each.fault.kind for each in found if each.fault] == [FaultKind.INFRA_FAULT] * 2
    assert (found[3].after_fault, found[3].not_before is not None, found[1].not_before) == ("infra_fault", True, None)
    assert world.event_kinds(job).count("fault") == 2 and world.event_kinds(job).count("interrupted") == 6
    assert (recoveries(told(world, job)["attempts"]), world.job(job).state) == (["same knobs"], JobState.FAILED)
    reason = world.job(job).reason
    assert "interrupted 3 times in a row without a newer healthy checkpoint: save a checkpoint at the signal" in reason
    assert "came 2 times" in reason


def test_a_numeric_fault_in_the_middle_of_a_chain_climbs_the_ladder_and_its_rung_goes_on(world: World) -> None:
    job = submitted(world, max_attempts=2)
    for number in (1, 2):
        name = launched(world, job, number)
        cluster(world).save(name, 100 * number)
        if number == 1:
            interrupt(world, name)
    world.turn(2)
    cluster(world).append_log(name, NAN)
    name = launched(world, job, 3)
    cured = world.last(job)
    assert attempts(world, job)[1].fault is not None and (cured.rung, cured.after_fault) == ("raise_clip", "nan_loss")
    # After the time of the faulty attempt, whose later checkpoints do not count.
    cluster(world).save(name, 300, at=world.now)
    interrupt(world, name)
    launched(world, job, 4)
    assert (world.last(job).rung, world.last(job).asked) == (None, cured.asked)
    assert world.last(job).planned_step == 300 and recoveries(told(world, job)["attempts"]) == ["raise_clip"]
    # The launch after the interruption is not one of the two that max_attempts allows.
    assert [need.why for need in find_needs(world.job(job), attempts(world, job), {})] == [
        "this is launch 2, the last that max_attempts allows"
    ]


def test_a_cured_run_that_is_interrupted_has_still_recovered(world: World) -> None:
    job = submitted(world)
    name = launched(world, job, 1)
    cluster(world).append_log(name, falling(2, 249) + NAN)
    name = launched(world, job, 2)
    cluster(world).append_log(name, falling(2, 1200))
    cluster(world).save(name, 1201)
    world.until(lambda: world.last(job).recovered)
    interrupt(world, name)
    name = launched(world, job, 3)
    assert world.last(job).verdict is None
    cluster(world).append_log(name, falling(1202, 1210))
    world.turn(2)
    cluster(world).end(name)
    world.until(lambda: world.job(job).ended)
    assert (world.job(job).state, world.last(job).verdict) == (JobState.SUCCEEDED, Verdict.RECOVERED)
    assert world.last(job).verdict_why == attempts(world, job)[1].verdict_why


def test_bad_numbers_before_the_time_limit_are_a_fault(world: World) -> None:
    job = submitted(world)
    name = launched(world, job, 1)
    cluster(world).save(name, 100)
    world.turn(2)
    cluster(world).append_log(name, NAN)
    cluster(world).end(name, SAVED_EXIT)
    cluster(world).there[name] = replace(cluster(world).there[name], ended_by=EndedBy.TIME_LIMIT)
    launched(world, job, 2)
    first = attempts(world, job)[0]
    assert (first.outcome, first.ended_by) == (Outcome.FAULT, EndedBy.TIME_LIMIT)
    assert first.fault is not None and first.fault.kind is FaultKind.NAN_LOSS


def test_a_job_that_a_person_cancelled_does_not_go_on(world: World) -> None:
    job = submitted(world)
    name = launched(world, job, 1)
    interrupt(world, name, code=0)
    cancel(world.store, world.job(job), at=world.now)
    world.until(lambda: world.job(job).ended)
    assert (world.job(job).state, len(attempts(world, job))) == (JobState.CANCELLED, 1)
    assert world.last(job).outcome is Outcome.CANCELLED


def test_a_trial_that_is_interrupted_is_run_again(world: World) -> None:
    job = submitted(world, trials={"steps": 100, "cost": "100%"})
    name = launched(world, job, 1)
    lines = "".join(f"step {step} loss {2.0 if step < 450 else 2.0 * 3 ** (step - 449)}\n" for step in range(2, 455))
    cluster(world).append_log(name, lines.encode())
    cluster(world).save(name, 440)
    cluster(world).append_log(name, b"".join(b"step %d loss nan\n" % step for step in range(455, 458)))
    name = launched(world, job, 2)
    assert world.last(job).is_trial
    interrupt(world, name)
    launched(world, job, 3)
    first, second = attempts(world, job)[1:]
    assert first.fault is not None and first.fault.evidence == "interrupted: its time limit was reached"
    assert first.trial is not None and second.trial is not None and first.trial.index == second.trial.index
