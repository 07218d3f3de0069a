"""Tests the three words for a run: survived, recovered, not_learning, and what follows from each."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from rung.jobs.job import Outcome, Verdict
from rung.jobs.model.state import JobState
from rung.runner.controller import judge_run
from tests.support.pretend import Build, World

KNOBS = {"mode": "inside", "lr": 0.1, "precision": "amp_fp16"}


def falling(first: int, last: int, loss: float = 2.0) -> list[tuple[int, float]]:
    return [(step, loss * 0.99 ** (step - first)) for step in range(first, last + 1)]


def flat(first: int, last: int, loss: float = 2.0) -> list[tuple[int, float]]:
    noise = random.Random(first)
    return [(step, loss * noise.gauss(1, 0.02)) for step in range(first, last + 1)]


def submitted(world: World, **fields: Any) -> str:
    recovery = {"trials": "off", **fields.pop("recovery", {})}
    job = world.submit("a", "A100", knobs=KNOBS, recovery=recovery, **fields)
    world.until(lambda: world.is_running(job))
    return job


def write(world: World, job: str, readings: Iterable[tuple[int, float]], more: str = "") -> None:
    name = f"{job}/{world.last(job).number}"
    text = "".join(f"step {step} loss {loss:.6g}\n" for step, loss in readings)
    world.engine("ampere").append_log(name, (text + more).encode())


def fails(world: World, job: str, step: int = 40) -> None:
    """Let the attempt come to NaN, and wait for the next one."""
    number = world.last(job).number
    write(world, job, [*flat(2, step - 1), (step, float("nan")), (step + 1, float("nan")), (step + 2, float("nan"))])
    world.until(lambda: world.last(job).number > number and world.is_running(job))


def ends(world: World, job: str) -> None:
    attempt = world.last(job)
    world.turn(3)
    world.engine("ampere").end(f"{job}/{attempt.number}")
    world.until(lambda: world.job(job).ended or world.last(job).number > attempt.number)


def test_a_loss_that_falls_past_the_fault_is_recovered_with_its_readings(build: Build) -> None:
    world = build(ampere=["A100"])
    job = submitted(world)
    fails(world, job)
    write(world, job, falling(2, 400))
    ends(world, job)
    last = world.last(job)
    assert last.verdict is Verdict.RECOVERED and last.verdict_why.startswith("the loss fell from ")
    assert "recovered" in world.event_kinds(job)
    assert world.job(job).reason == f"finished; recovered: {last.verdict_why}"


def test_a_loss_that_stays_flat_past_an_early_fault_has_only_survived(build: Build) -> None:
    """In 0.1.0 this was told as "learning again"."""
    world = build(ampere=["A100"])
    job = submitted(world)
    fails(world, job)
    write(world, job, flat(2, 400, 1.9))
    ends(world, job)
    assert world.last(job).verdict is Verdict.SURVIVED and world.job(job).state is JobState.SUCCEEDED
    assert "whether it learns as well as a healthy run is not known" in world.job(job).reason
    assert "recovered" not in world.event_kinds(job)


def test_a_run_that_meets_its_success_after_a_fault_has_recovered(build: Build) -> None:
    world = build(ampere=["A100"])
    job = submitted(world, success={"metric": "val_loss", "below": 0.6})
    fails(world, job)
    write(world, job, flat(2, 60), "val_loss 0.5\n")
    ends(world, job)
    assert world.job(job).state is JobState.SUCCEEDED and world.last(job).verdict is Verdict.RECOVERED


def test_a_run_that_ends_short_of_its_success_is_taken_up_again_while_rungs_are_left(build: Build) -> None:
    """In 0.1.0 it was FAILED, with rungs left and `recovered: true` in the JSON."""
    world = build(ampere=["A100"])
    job = submitted(world, success={"metric": "val_loss", "below": 0.6})
    fails(world, job)
    first_rung = world.last(job).rung
    write(world, job, falling(2, 400), "val_loss 0.9\n")
    ends(world, job)
    short, again = world.store.attempts(job)[-2:]
    assert short.fault is not None and "val_loss is 0.9, not below 0.6" in short.fault.evidence
    assert short.verdict is Verdict.NOT_LEARNING and not short.recovered
    assert again.rung != first_rung and world.job(job).state is not JobState.FAILED


def test_a_run_short_of_its_success_without_a_fault_has_failed(build: Build) -> None:
    world = build(ampere=["A100"])
    job = submitted(world, success={"metric": "val_loss", "below": 0.6})
    write(world, job, falling(2, 400), "val_loss 0.9\n")
    ends(world, job)
    assert world.job(job).state is JobState.FAILED and world.last(job).outcome is Outcome.FELL_SHORT


def test_a_run_without_a_fault_that_never_learned_ends_with_a_warning(build: Build) -> None:
    world = build(ampere=["A100"])
    job = submitted(world)
    write(world, job, flat(2, 300))
    ends(world, job)
    assert world.job(job).state is JobState.SUCCEEDED
    assert "not_learning: the loss is 2.0" in world.job(job).reason.replace("1.99", "2.0")
    assert world.event_kinds(job).count("not_learning") == 1


def test_with_act_a_run_that_never_learned_is_a_fault_and_begins_anew(build: Build) -> None:
    world = build(ampere=["A100"])
    job = submitted(world, recovery={"not_learning": "act"})
    write(world, job, flat(2, 300))
    ends(world, job)
    first, second = world.store.attempts(job)
    assert first.fault is not None and first.fault.kind == "not_learning"
    assert second.rung is not None and second.resumed_from is None


def test_a_healthy_run_has_no_word(build: Build) -> None:
    world = build(ampere=["A100"])
    job = submitted(world)
    write(world, job, falling(2, 300))
    ends(world, job)
    assert (world.job(job).reason, world.last(job).verdict) == ("finished", None)


def test_of_a_run_without_a_fault_before_no_cure_is_judged(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, incident_after = list[int](), judge_run.incident_after
    monkeypatch.setattr(
        judge_run, "incident_after", lambda line, knobs: asked.append(len(line)) or incident_after(line, knobs)
    )
    world = build(ampere=["A100"])
    job = submitted(world)
    write(world, job, falling(2, 30))
    world.turn(10)
    assert world.last(job).furthest_step == 30 and not asked
    fails(world, job)
    write(world, job, falling(2, 60))
    world.turn(10)
    assert 1 in asked
