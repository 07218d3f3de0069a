"""Tests the slots of this machine with a fake survey: who gets one, who waits and why, and what a trial may take."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.engine import PROCESS
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.hosts.survey import GpuState, Report
from rung.runner.hosts.this_machine import HERE
from rung.runner.launch.submit import submit
from rung.runner.placement.local_slots import SURVEY_KEY, gpu_view, place_here, slot_view, waiting_here
from rung.runner.placement.places import MustWait, Placed
from rung.runner.state.store import Store
from tests.support.pretend import World, worlds

GPUS = tuple(Gpu("NVIDIA TITAN RTX", (7, 5), index, f"GPU-{index}", 24 << 30) for index in range(2))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with worlds(tmp_path) as build:
        made = build()
        made.engines.gpus_here = GPUS
        yield made


def spec(name: str = "a", **fields: Any) -> JobSpec:
    return JobSpec.model_validate({"name": name, "run": "true", **fields})


def submitted(world: World, name: str, **fields: Any) -> str:
    return submit(world.store, spec(name, **fields), world.folder, at=world.now).id


def on_gpu(kind: str = "TITANRTX", **fields: Any) -> dict[str, Any]:
    return {"resources": {"gpu": kind}, **fields}


def test_a_process_leases_its_gpu_and_sees_no_other(world: World) -> None:
    first, second, third = (submitted(world, name, **on_gpu()) for name in "abc")
    # Written in one turn, and started in the next one.
    world.until(world.leases)
    assert world.leases() == {"GPU-0": f"{first}/1", "GPU-1": f"{second}/1"}
    assert world.job(third).state is JobState.QUEUED
    assert world.job(third).reason == (
        f"waits for a TITANRTX: localhost's TITANRTX 0 is in use by {first}; "
        f"localhost's TITANRTX 1 is in use by {second}"
    )
    context = world.controller._context
    request = context.request(world.job(second), world.last(second))
    assert request.env["CUDA_VISIBLE_DEVICES"] == "GPU-1" and world.last(second).image is None
    decided = next(event for event in world.store.events(second) if event.kind == "decided")
    assert (decided.data["host"], decided.data["gpus"]) == ("localhost", ["GPU-1"])


def test_no_job_overtakes_another_while_the_gpus_are_looked_at(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = world.controller._context.tasks
    submit_task = tasks.submit

    def done_at_once(key: str, *words: Any, **options: Any) -> None:
        submit_task(key, *words, **options)
        concurrent.futures.wait([tasks._tasks[key].future])

    monkeypatch.setattr(tasks, "submit", done_at_once)
    first, second, _ = (submitted(world, name, **on_gpu()) for name in "abc")
    world.until(world.leases)
    assert world.leases() == {"GPU-0": f"{first}/1", "GPU-1": f"{second}/1"}


def test_a_new_controller_leases_nothing_twice(world: World) -> None:
    third = [submitted(world, name, **on_gpu()) for name in "abc"][-1]
    world.until(world.leases)
    world.restart()
    slots, jobs, tasks = (
        world.controller._chores._local_slots,
        world.store.jobs(active=True),
        world.controller._context.tasks,
    )
    assert slots.results([world.job(third)], jobs) == []  # first the GPUs are looked at
    concurrent.futures.wait([tasks._tasks[SURVEY_KEY].future])
    # No process computes on them yet, but the store has the leases.
    ((_, result),) = slots.results([world.job(third)], jobs)
    assert isinstance(result, MustWait) and result.reason.startswith(
        "waits for a TITANRTX: localhost's TITANRTX 0 is in"
    )


def test_trials_of_a_process_stay_in_its_own_slot(world: World) -> None:
    job = submitted(world, "a", **on_gpu())
    world.until(world.leases)
    # The other GPU is free, but two processes would share a folder and the ports of this machine.
    assert world.controller._placer.spare_gpus(world.job(job), world.last(job), 3) == []


def test_a_wait_for_gpus_does_not_keep_a_job_without_one(world: World) -> None:
    lacking, without = submitted(world, "a", **on_gpu("A100")), submitted(world, "b")
    world.until(lambda: world.job(lacking).reason == "waits for an A100: localhost has none")
    assert world.store.attempts(without) and not world.store.attempts(lacking)


def test_the_reason_says_what_is_in_the_way() -> None:
    job = waiting_here(spec(**on_gpu()), "a-1")
    used = Report(HERE, engine="x", gpus=(GpuState(GPUS[0], "b-2"), GpuState(GPUS[1], None, ("pid 7 python",))))
    broken, missing = Report(HERE, engine="x", gpu_troubles=("it hangs",)), Report(HERE, driver_missing=True)
    expected = {
        used: "localhost's TITANRTX 0 is in use by someone else (job b-2); "
        "localhost's TITANRTX 1 is in use by someone else (pid 7 python)",
        broken: "localhost has no GPU to give (it hangs)",
        missing: "localhost has no GPU to give (no nvidia-smi)",
    }
    for report, why in expected.items():
        (found,) = place_here([job], (gpu_view(report), slot_view(1, 0)), {})
        assert found == MustWait("a-1", f"waits for a TITANRTX: {why}")


def test_slots_go_by_priority_and_then_by_order_and_gpus_do_not_count() -> None:
    jobs = [waiting_here(spec(), "a"), waiting_here(spec(**on_gpu()), "b"), waiting_here(spec(priority=1), "c")]
    views = (gpu_view(Report(HERE, engine="x", gpus=(GpuState(GPUS[0]),))), slot_view(3, 2))
    waits, with_gpu, first = place_here(jobs, views, {})
    assert waits == MustWait("a", "waits for a slot: localhost runs 3 of at most 3 without a GPU")
    assert with_gpu == Placed("b", "localhost", GPUS[:1], None, PROCESS)
    assert first == Placed("c", "localhost", (), None, PROCESS)
    (later,) = place_here([replace(jobs[0], priority=0)], (views[0], slot_view(3, 5)), {})
    assert isinstance(later, MustWait) and later.reason.endswith("runs 5 of at most 3 without a GPU")


@pytest.mark.parametrize("gpu", [None, "TITANRTX"])
def test_what_is_set_aside_is_asked_for_once_for_all_jobs_that_wait(
    world: World, monkeypatch: pytest.MonkeyPatch, gpu: str | None
) -> None:
    for number in range(20):
        submitted(world, f"j{number}", **(on_gpu(gpu) if gpu else {}))
    world.until(lambda: world.leases() or not gpu)
    asked, newest_end = list[int](), Store.newest_end
    monkeypatch.setattr(Store, "newest_end", lambda self: asked.append(1) or newest_end(self))
    slots = world.controller._chores._local_slots
    jobs = world.store.jobs(active=True)
    waiting = [job for job in jobs if job.state is JobState.QUEUED]
    assert len(waiting) >= 10 and len(slots.results(waiting, jobs)) == len(waiting)
    assert len(asked) <= 2
