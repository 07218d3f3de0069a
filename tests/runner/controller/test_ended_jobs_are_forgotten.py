"""Tests that a controller keeps nothing of jobs that have ended, and does not read them again and again."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.errors import EngineError
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.launch.submit import cancel, retry
from rung.runner.state import codec
from tests.support.pretend import IMAGE, Build, World

JOB: dict[str, Any] = {
    "run": "x {lr} {clip}",
    "knobs": {"lr": 1e-3, "clip": 5.0},
    "recovery": {"ladder": ["raise_clip"], "trials": "off"},
}
NAN = b"".join(b"step %d loss nan\n" % step for step in range(50, 80))
GPUS = [f"GPU-ampere-{number}" for number in range(4)]
CONTAINERS = (dict, list, set, frozenset, tuple, deque)
# Longer than anything is left alone or waits for its turn, in steps in which no controller notices a gap.
LONG = [25.0] * 5


def entries(kept: object, path: str = "controller", seen: set[int] | None = None) -> Iterator[tuple[str, int]]:
    """Yield every container that can be reached, by its path, and how many entries it has."""
    seen = set() if seen is None else seen
    if id(kept) in seen:
        return
    seen.add(id(kept))
    if isinstance(kept, CONTAINERS):
        yield path, len(kept)
        values = kept.values() if isinstance(kept, Mapping) else kept
        for value in list(values):
            yield from entries(value, f"{path}[]", seen)
    elif type(kept).__module__.startswith("rung."):
        for name, value in vars(kept).items() if hasattr(kept, "__dict__") else ():
            yield from entries(value, f"{path}.{name}", seen)


def kept_by(world: World) -> Counter[str]:
    """Return how many entries everything in the controller has when no job is left."""
    assert not world.store.jobs(active=True)
    for seconds in LONG:
        world.pass_time(seconds)
        world.turn()
    # The least over a few turns: now and then a host is swept.
    found = counted(world)
    for _ in range(3):
        world.turn()
        found &= counted(world)
    return found


def counted(world: World) -> Counter[str]:
    for host in world.engines.made:
        # Its last report stays until a job needs it.
        world.controller._context.tasks.take(f"host {host}")
    found: Counter[str] = Counter()
    for path, count in entries(world.controller):
        found[path] += count
    return found


def end_well(world: World) -> None:
    job = launched(world)
    world.engine("ampere").end(f"{job}/1")
    world.until(lambda: world.job(job).ended)


def launched(world: World, **fields: Any) -> str:
    job = world.submit("a", "A100", **JOB, **fields)
    world.until(lambda: world.is_running(job))
    return job


def cancelled(world: World, job: str) -> None:
    cancel(world.store, world.job(job), at=world.now)
    world.until(lambda: world.job(job).ended)


def fail_once(world: World) -> None:
    """Let a job fail after it has saved a checkpoint, and end well after that."""
    job, engine = launched(world), world.engine("ampere")
    engine.save(f"{job}/1", 10, 20)
    engine.append_log(f"{job}/1", NAN)
    world.until(lambda: engine.running() == [f"{job}/2"])
    engine.append_log(f"{job}/2", b"step 60 loss 0.5\n")
    world.until(lambda: world.is_running(job))
    engine.end(f"{job}/2")
    world.until(lambda: world.job(job).ended)


def fail_for_good(world: World) -> str:
    job, engine = launched(world), world.engine("ampere")
    while not world.job(job).ended:
        for name in engine.running():
            engine.append_log(name, NAN)
        world.turn()
    return job


def be_cancelled(world: World) -> None:
    job = launched(world)
    cancelled(world, job)


def be_lost_and_found(world: World) -> None:
    """Cut the host of a job off for a while, and then its power: the job is delayed and launched once more."""
    job, engine = launched(world), world.engine("ampere")
    engine.away = True
    world.turn(10)
    engine.away = False
    engine.lose(f"{job}/1")
    world.until(lambda: engine.running() == [f"{job}/2"])
    engine.end(f"{job}/2")
    world.until(lambda: world.job(job).ended)


def be_refused(world: World) -> None:
    """Let a host refuse to start a job, until it fails."""
    world.engine("ampere").refuses = "no"
    job = world.submit("a", "A100", **JOB)
    world.until(lambda: world.job(job).ended, turns=300)
    world.engine("ampere").refuses = ""


def wait_for_another_host(world: World) -> None:
    """Let a job lose its host, and be cancelled while another job has the GPU of the only other one."""
    recovery = {**JOB["recovery"], "host_lost_after": "30s"}
    other = world.submit("b", "P100", **JOB)
    job = world.submit("a", "A100", "P100", **{**JOB, "recovery": recovery})
    world.until(lambda: world.is_running(job) and world.is_running(other))
    world.engine("ampere").away = True
    world.until(lambda: "in use by" in world.job(job).reason)
    cancelled(world, job)
    cancelled(world, other)
    world.engine("ampere").away = False
    world.until(lambda: not world.store.orphans())


def break_down(world: World) -> None:
    """Let an error that nobody expects happen with a job."""
    engine = world.engine("ampere")
    job = launched(world)
    engine.breaks = ZeroDivisionError()
    world.turn(5)
    engine.breaks = None
    cancelled(world, job)


def end_beside_a_trial(world: World) -> None:
    """Let a job be cancelled while two trials run beside it."""
    trials = {"trials": {"steps": 100, "cost": "100%"}}
    job = world.submit("a", "A100", recovery=trials, knobs={"mode": "inside", "lr": 0.1, "precision": "amp_fp16"})
    world.until(lambda: world.is_running(job))
    engine = world.engine("ampere")
    engine.append_log(f"{job}/1", b"".join(b"step %d loss 2.0\n" % step for step in range(2, 50)) + NAN)
    world.until(lambda: len(engine.running()) > 2)
    cancelled(world, job)


def lack_a_secret(world: World) -> None:
    job = world.submit("a", "A100", **JOB, secrets=["NOT_THERE"])
    world.until(lambda: world.job(job).ended)


def get_no_image(world: World) -> None:
    engine = world.engine("ampere")
    engine.breaks = EngineError("no room for the image")
    job = world.submit("a", "A100", **JOB, image=f"other@sha256:{'1' * 64}")
    world.turn(5)
    engine.breaks = None
    cancelled(world, job)


def end_when_a_copy_has_failed(world: World) -> None:
    job, engine = launched(world, checkpoint={"mirror_every": 60}), world.engine("ampere")
    engine.save(f"{job}/1", 10)
    world.until(lambda: "not_mirrored" in world.event_kinds(job))
    engine.end(f"{job}/1")
    world.until(lambda: world.job(job).ended)


def wait_for_a_gpu_after_a_retry(world: World) -> None:
    """Let a person try a failed job again, and cancel it while other people's processes have all the GPUs."""
    job = fail_for_good(world)
    world.engine("ampere").foreign_processes = dict.fromkeys(GPUS, "somebody's")
    world.controller._host_pool.forget("ampere")
    retry(world.store, world.job(job), {}, at=world.now)
    world.until(lambda: "somebody's" in world.job(job).reason)
    cancelled(world, job)
    world.engine("ampere").foreign_processes = {}


LIVES = [
    *(end_well, end_beside_a_trial, end_when_a_copy_has_failed, fail_once, fail_for_good, lack_a_secret, get_no_image),
    *(be_cancelled, be_lost_and_found, be_refused, break_down, wait_for_another_host),
    wait_for_a_gpu_after_a_retry,
]


@pytest.mark.parametrize("live", LIVES)
def test_what_a_controller_keeps_does_not_grow_with_the_jobs_that_have_ended(build: Build, live: Any) -> None:
    world = build(ampere=["A100"] * 4, pascal=["P100"])
    live(world)
    before = kept_by(world)
    for _ in range(3):
        live(world)
    assert kept_by(world) - before == Counter()


@pytest.mark.parametrize("remote", [False, True])
def test_what_a_controller_reads_does_not_grow_with_the_jobs_that_have_ended(
    build: Build, monkeypatch: pytest.MonkeyPatch, remote: bool
) -> None:
    """Read at once, they would all be in memory: with their parsed job files that is 15 kB each."""
    world, read = build(), list[str]()
    for name in ("job_from_row", "attempt_from_row"):
        made = getattr(codec, name)
        monkeypatch.setattr(codec, name, lambda row, name=name, made=made: (read.append(name), made(row))[1])

    def reads(ended: int) -> list[str]:
        """Return what a new controller reads in its first minutes, after so many more jobs have ended."""
        spec = {"name": "a", "run": "true", **({"image": IMAGE} if remote else {})}
        for _ in range(ended):
            with world.store.transaction():
                job = world.store.add_job(JobSpec.model_validate(spec), world.folder, at=1.0)
                world.store.put_attempt(Attempt(job.id, 1, "ampere", Knobs(), None, "as submitted"))
                world.store.move(job.id, JobState.CANCELLED, reason="", at=2.0)
        read.clear()
        world.restart()
        for _ in range(8):
            world.pass_time(25.0)
            world.turn()
        return list(read)

    assert reads(3) == reads(30)
