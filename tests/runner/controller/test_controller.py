"""Tests the controller with fake hosts: placement, leases, cancel, retry, restart and unexpected errors."""

from __future__ import annotations

from dataclasses import replace

from rung.jobs.job import Attempt, Outcome, Verdict
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.launch.submit import cancel, retry
from tests.support.pretend import Build

# Placement and leases


def test_a_job_is_placed_leased_and_run_and_its_gpu_is_free_when_it_has_ended(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100:1")
    world.until(lambda: world.is_running(job))
    assert world.leases() == {"GPU-ampere-0": f"{job}/1"}
    assert (world.last(job).host, world.last(job).gpus[0].type) == ("ampere", "A100")
    assert world.engine("ampere").requests[f"{job}/1"].container.gpus == ("GPU-ampere-0",)
    world.engine("ampere").end(f"{job}/1")
    world.until(lambda: world.job(job).state is JobState.SUCCEEDED)
    assert world.leases() == {}


def test_of_two_jobs_for_the_only_a100_the_second_waits_with_a_reason(build: Build) -> None:
    world = build()
    first, second = world.submit("a", "A100:1"), world.submit("b", "A100:1")
    world.until(lambda: world.is_running(first))
    world.turn(3)
    assert world.job(second).state is JobState.QUEUED
    assert world.job(second).reason == f"waits for an A100: ampere's only one is in use by {first}"
    world.engine("ampere").end(f"{first}/1")
    world.until(lambda: world.is_running(second))
    assert world.leases() == {"GPU-ampere-0": f"{second}/1"}


def test_twenty_jobs_on_three_hosts_all_end_and_no_gpu_ever_has_two(build: Build) -> None:
    world = build()
    jobs = [world.submit(f"j{i}", "TITANRTX:1", "P100:1", "A100:1") for i in range(20)]
    order: list[str] = []
    for _ in range(600):
        for engine in world.engines.made.values():
            assert len(engine.running()) <= 1, engine.running()
        for engine in world.engines.made.values():
            order += [name for name in engine.running() if name not in order]
            if len(order) % 2 == 0:
                for name in engine.running():
                    engine.end(name)
        world.turn()
        if all(world.job(job).ended for job in jobs):
            break
        for engine in world.engines.made.values():
            for name in engine.running():
                if world.is_running(name.split("/")[0]):
                    engine.end(name)
    assert {world.job(job).state for job in jobs} == {JobState.SUCCEEDED}
    assert sorted(order) == sorted(f"{job}/1" for job in jobs)
    assert world.leases() == {}


def test_priority_goes_before_age(build: Build) -> None:
    world = build(ampere=["A100"])
    world.until(lambda: True)
    first = world.submit("first", "A100")
    world.until(lambda: world.is_running(first))
    late, urgent = world.submit("late", "A100"), world.submit("urgent", "A100", priority=5)
    world.turn(2)
    world.engine("ampere").end(f"{first}/1")
    world.until(lambda: world.is_running(urgent))
    assert world.job(late).state is JobState.QUEUED


def test_a_job_that_requests_no_gpu_runs_without_a_lease(build: Build) -> None:
    world = build()
    job = world.submit("a")
    world.until(lambda: world.is_running(job))
    assert world.leases() == {} and world.last(job).gpus == ()


def test_a_gpu_with_a_foreign_process_is_not_used_until_the_process_ends(build: Build) -> None:
    world = build(ampere=["A100"])
    world.engine("ampere").foreign_processes["GPU-ampere-0"] = "pid 812 python"
    job = world.submit("a", "A100")
    world.until(lambda: "pid 812 python" in world.job(job).reason)
    assert world.engine("ampere").running() == [] and world.leases() == {}
    world.engine("ampere").foreign_processes.clear()
    world.until(lambda: world.is_running(job))


def test_an_image_that_no_accepted_gpu_can_run_is_refused_before_an_attempt(build: Build) -> None:
    world = build()
    world.engine("pascal").incompatibilities["P100"] = "it has no code for sm_60"
    job = world.submit("a", "P100")
    world.until(lambda: world.job(job).ended)
    assert world.job(job).state is JobState.FAILED
    assert "Tesla P100-PCIE-16GB cannot run the image: it has no code for sm_60" in world.job(job).reason
    assert world.store.attempts(job) == [] and world.leases() == {}


def test_with_an_incompatible_gpu_the_next_request_is_used(build: Build) -> None:
    world = build()
    world.engine("pascal").incompatibilities["P100"] = "it has no code for sm_60"
    job = world.submit("a", "P100", "A100")
    world.until(lambda: world.is_running(job))
    assert world.last(job).host == "ampere"


def test_the_lease_stays_with_the_job_while_it_recovers(build: Build) -> None:
    world = build(ampere=["A100"])
    job, other = world.submit("a", "A100"), world.submit("b", "A100")
    world.until(lambda: world.is_running(job))
    world.engine("ampere").lose(f"{job}/1")
    world.until(lambda: len(world.store.attempts(job)) == 2)
    assert world.leases() == {"GPU-ampere-0": f"{job}/2"}
    world.until(lambda: world.is_running(job))
    assert world.job(other).state is JobState.QUEUED
    assert (world.last(job).host, world.last(job).residence) == ("ampere", 1)


def test_with_ladder_auto_a_job_gets_the_rung_that_helped_other_jobs_on_that_gpu(build: Build) -> None:
    world = build(ampere=["A100"])
    knobs = {"run": "x {lr} {clip}", "knobs": {"lr": 1e-3, "clip": 1.0}}
    gpus, asked = world.engine("ampere").gpus, Knobs(lr=1e-3, clip=1.0)
    nan = Fault(FaultKind.NAN_LOSS, "loss nan", step=50)
    for number in range(9):
        earlier = world.submit(f"earlier{number}", "A100", **knobs)
        faulty = Attempt(earlier, 1, "ampere", asked, None, "as submitted", by_person=True, gpus=gpus, fault=nan)
        cured = replace(faulty, number=2, asked=asked.but(lr=1e-4), rung="lower_lr", by_person=False, fault=None)
        with world.store.transaction():
            for attempt in (faulty, replace(cured, outcome=Outcome.SUCCEEDED, verdict=Verdict.RECOVERED)):
                world.store.put_attempt(attempt)
            world.store.move(earlier, JobState.CANCELLED, reason="long ago", at=1.0)
    job = world.submit("a", "A100", **knobs, recovery={"ladder": "auto", "trials": "off"})
    world.until(lambda: world.is_running(job))
    world.engine("ampere").append_log(f"{job}/1", b"step 50 loss 1.0\nstep 51 loss nan\n")
    world.engine("ampere").end(f"{job}/1", code=1)
    world.until(lambda: len(world.store.attempts(job)) == 2)
    assert world.last(job).rung == "lower_lr"
    assert "9 of 9 runs with nan_loss on A100 recovered after lower_lr here (" in world.last(job).because


# Cancel, retry, restart, unexpected errors


def test_cancel_works_for_a_job_on_a_host(build: Build) -> None:
    world = build()
    job = world.submit("a", "A100")
    world.until(lambda: world.is_running(job))
    cancel(world.store, world.job(job), at=world.now)
    world.until(lambda: world.job(job).ended)
    assert world.job(job).state is JobState.CANCELLED
    assert world.engine("ampere").running() == [] and world.leases() == {}


def test_retry_starts_a_job_again_on_the_host_with_its_files(build: Build) -> None:
    world = build(first=["A100"], second=["A100"])
    job = world.submit("a", "A100")
    world.until(lambda: world.is_running(job))
    host = world.last(job).host
    cancel(world.store, world.job(job), at=world.now)
    world.until(lambda: world.job(job).ended)
    retry(world.store, world.job(job), {}, at=world.now)
    world.until(lambda: world.is_running(job))
    assert (world.last(job).number, world.last(job).host, world.last(job).residence) == (2, host, 1)


def test_a_restarted_controller_starts_nothing_twice(build: Build) -> None:
    world = build()
    jobs = [world.submit(f"j{i}", "TITANRTX", "P100", "A100") for i in range(5)]
    for turns in range(1, 30):
        world.turn(turns % 8 + 1)
        world.restart()
    started = [call[1] for engine in world.engines.made.values() for call in engine.calls if call[0] == "start"]
    assert len(started) == len(set(started)) == 3
    assert [world.job(job).state for job in jobs] == [JobState.RUNNING] * 3 + [JobState.QUEUED] * 2


def test_an_unexpected_error_is_shown_at_its_job_and_other_jobs_go_on(build: Build) -> None:
    world = build()
    broken, well = world.submit("broken", "A100"), world.submit("well", "P100")
    world.until(lambda: world.is_running(broken) and world.is_running(well))
    world.engine("ampere").breaks = ZeroDivisionError("oh")
    world.turn(30)
    assert "unexpected error with this job: ZeroDivisionError" in world.job(broken).reason
    errors = world.event_kinds(broken).count("stumbled")
    assert 1 <= errors <= 6, "the pause is longer each time"
    world.engine("pascal").end(f"{well}/1")
    world.until(lambda: world.job(well).state is JobState.SUCCEEDED)
    world.engine("ampere").breaks = None
    world.engine("ampere").end(f"{broken}/1")
    world.until(lambda: world.job(broken).state is JobState.SUCCEEDED)


# Temporary containers


def test_every_host_is_swept_at_the_start_and_then_every_minute_also_after_it_was_away(build: Build) -> None:
    world = build()
    world.engine("pascal").away = True
    world.submit("a", "A100")

    def sweeps(host: str) -> int:
        return [what for what, _ in world.engine(host).calls].count("sweep")

    world.turn(3)
    assert (sweeps("ampere"), sweeps("turing"), sweeps("pascal")) == (1, 1, 0)
    world.engine("pascal").away = False
    world.turn(70)
    assert (sweeps("ampere"), sweeps("turing"), sweeps("pascal")) == (2, 2, 1)


def test_no_host_is_asked_for_the_sake_of_local_jobs(build: Build) -> None:
    world = build()
    with world.store.transaction():
        world.store.add_job(JobSpec.model_validate({"name": "a", "run": "true"}), world.folder, at=1.0)
    world.turn(3)
    assert [engine.calls for engine in world.engines.made.values()] == [[], [], []]
