"""Tests that a stored job that a newer rule refuses does not break the others.

0.1.0 read stored specs by the rules for new job files: one refused row broke `rung queue` for all jobs.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import UsageError
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.stored import read_stored
from rung.runner.launch.submit import retry
from rung.runner.state.store import Store
from tests.support.pretend import World
from tests.support.random_inputs import FEW, MANY, each, text, value

Rung = Callable[..., Any]
IMAGE = f"r/t@sha256:{'0' * 64}"
OLD_VOLUMES = ["/etc:/e", "/home/rung:/data", "/var/run/docker.sock:/s"]


def change(home: Path, job_id: str, **fields: Any) -> None:
    """Change the stored spec of a job, as an older or newer Rung would have written it."""
    store = sqlite3.connect(home / "rung.db")
    (text,) = store.execute("SELECT spec FROM jobs WHERE id = ?", (job_id,)).fetchone()
    store.execute("UPDATE jobs SET spec = ? WHERE id = ?", (json.dumps({**json.loads(text), **fields}), job_id))
    store.commit()
    store.close()


def add(home: Path, *names: str) -> list[str]:
    home.mkdir(exist_ok=True)
    store = Store(home / "rung.db")
    with store.transaction():
        specs = [JobSpec.model_validate({"name": name, "run": "true", "image": IMAGE}) for name in names]
        ids = [store.add_job(spec, home, at=1.0).id for spec in specs]
    store.close()
    return ids


def test_volumes_and_names_that_were_accepted_once_are_read_as_they_are() -> None:
    spec = JobSpec.model_validate({"name": "a", "run": "x", "image": IMAGE})
    data = {**json.loads(spec.model_dump_json()), "volumes": OLD_VOLUMES, "name": "a\u202eb", "network": "bridge"}
    stored = read_stored(json.dumps(data))
    assert (stored.refused, stored.spec.name, stored.spec.network) == ("", "a\u202eb", "own")
    assert [volume.text for volume in stored.spec.mounted] == OLD_VOLUMES


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"volumes": ["nothing"]}, "volumes[0]: write it as host:container"),
        ({"image": "train:latest"}, "image: pin the image by digest"),
        ({"shape_of_2031": {"x": 1}}, "shape_of_2031: "),
        ({"checkpoint": {"dir": "/lost", "pattern": "*"}}, "checkpoint.dir: /lost would be lost"),
        ({"run": [], "name": "", "secrets": ["a b"], "resources": 7}, "and 1 more"),
    ],
)
def test_a_spec_that_cannot_be_read_has_a_reason_and_leaves_the_others_alone(
    home: Path, fields: dict[str, Any], words: str
) -> None:
    good, bad, other = add(home, "good", "bad", "other")
    change(home, bad, **fields)
    store = Store(home / "rung.db")
    jobs = store.jobs()
    store.close()
    assert [job.id for job in jobs] == [good, bad, other]
    assert jobs[1].reason.startswith("its stored job file is refused now: ") and words in jobs[1].reason
    assert not jobs[0].refused and not jobs[2].refused


def test_a_deep_text_is_no_spec() -> None:
    with pytest.raises(ValueError, match="no mapping"):
        read_stored('{"a":' * 3000 + "1" + "}" * 3000)


def test_every_command_works_and_the_refused_job_can_be_cancelled(home: Path, rung: Rung) -> None:
    words = "volumes[0]: write it as host:container"
    good, bad, other = add(home, "good", "bad", "other")
    change(home, bad, volumes=["nothing"])
    rows = json.loads(rung("queue", "--json").out)
    assert [row["id"] for row in rows] == [good, bad, other]
    assert rows[1]["reason"].startswith("its stored job file is refused now: ")
    assert words in rows[1]["reason"]
    assert words in rung("history", bad).out
    retried = rung("retry", bad)
    assert (retried.code, retried.out) == (2, "")
    assert rung("cancel", bad).out == f"{bad} is CANCELLED\n"
    assert rung("logs", bad).code == 2  # it never ran, as any other job without an attempt


def test_logs_and_history_of_a_refused_job_still_work(tmp_path: Path, home: Path, rung: Rung) -> None:
    (tmp_path / "job.yaml").write_text("name: a\nrun: echo what it printed\n", encoding="utf-8")
    assert rung("launch", "-f", tmp_path / "job.yaml").code == 0
    change(home, "a-1", volumes=["nothing"], image="train:latest")
    assert rung("logs", "a").out == "what it printed\n"
    shown = json.loads(rung("history", "a", "--json").out)
    assert (shown["job"]["state"], shown["attempts"][0]["outcome"]) == ("SUCCEEDED", "succeeded")


def test_the_controller_leaves_a_refused_job_alone_and_runs_the_others(tmp_path: Path) -> None:
    world = World(tmp_path, {"ampere": ["A100"]})
    bad, good = world.submit("bad", "A100"), world.submit("good", "A100")
    change(tmp_path, bad, volumes=["nothing"])
    world.until(lambda: world.is_running(good))
    job = world.job(bad)
    assert (job.state, world.store.attempts(bad)) == (JobState.QUEUED, [])
    assert job.reason == job.refused and "volumes[0]" in job.reason
    with pytest.raises(UsageError, match="cannot be retried: its stored job file is refused now"):
        retry(world.store, job, {}, at=1.0)
    world.close()


def test_an_attempt_that_was_written_and_not_started_fails_with_the_reason(tmp_path: Path) -> None:
    world = World(tmp_path, {"ampere": ["A100"]})
    job = world.submit("job", "A100")
    world.until(lambda: world.job(job).state is JobState.LAUNCHING)
    assert world.engine("ampere").requests == {}
    change(tmp_path, job, volumes=["nothing"])
    world.until(lambda: world.job(job).ended)
    assert world.job(job).state is JobState.FAILED
    assert world.job(job).reason.startswith("its stored job file is refused now")
    assert world.engine("ampere").requests == {}
    world.close()


FIELDS = sorted(JobSpec.model_fields)


def is_read(rng: random.Random) -> None:
    data = {rng.choice([*FIELDS, text(rng)]): value(rng) for _ in range(rng.randrange(6))}
    stored = read_stored(json.dumps(data))
    assert stored.spec.name and stored.spec.run
    assert stored.refused or {"name", "run"} <= set(data)


def is_read_or_refused(rng: random.Random) -> None:
    with suppress(ValueError):
        assert read_stored(rng.choice([text(rng), json.dumps(value(rng))])).spec.run


def test_text_that_is_no_unicode_is_refused_with_a_reason() -> None:
    stored = read_stored(r'{"name": "a", "run": "x", "volumes": ["\ud800: /"]}')
    assert stored.refused and stored.spec.name


@pytest.mark.parametrize("check", [is_read, is_read_or_refused])
@pytest.mark.parametrize("many", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
def test_any_stored_text_is_a_spec_with_a_reason_or_a_value_error(many: int, check: Any) -> None:
    each(many, check)
