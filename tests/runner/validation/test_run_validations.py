"""Tests where the two runs of a validation go: at once on two hosts, one after the other on one."""

from dataclasses import replace

import pytest

from rung.runner.launch.submit import cancel, retry
from tests.support.pretend import World

METRICS = {"fp32": 0.8863, "amp_fp16": 0.7816}
FIELDS = {
    "run": "x {precision}",
    "success": {"metric": "hmean", "above": 0.5},
    "recovery": {"validate": "before"},
}


@pytest.fixture
def world(tmp_path):
    made = []

    def make(hosts):
        made.append(World(tmp_path, hosts))
        return made[-1]

    yield make
    for each in made:
        each.close()


def running(world):
    return sorted(name for engine in world.engines.made.values() for name in engine.running())


def finish(world, name, host):
    """End an attempt with success and the metric of its precision."""
    job_id = name.partition("/")[0]
    metric = METRICS[world.last(job_id).asked.precision]
    world.engine(host).append_log(name, f"step 2 loss 1.{job_id[-1]}\nhmean: {metric}\n".encode())
    world.engine(host).end(name)


def host_of(world, name):
    return world.last(name.partition("/")[0]).host


def test_two_hosts_run_both_at_once_and_the_job_waits_for_the_verdict(world):
    lab = world({"one": ["A100"], "two": ["A100"]})
    job = lab.submit("ocr", "A100:1", **FIELDS)
    lab.until(lambda: len(running(lab)) == 2)
    assert {host_of(lab, name) for name in running(lab)} == {"one", "two"}
    assert [lab.last(name.partition("/")[0]).asked.precision for name in running(lab)] == ["amp_fp16", "fp32"]
    assert lab.job(job).state == "QUEUED" and "waits for its validation v1" in lab.job(job).reason
    lab.restart()
    for name in running(lab):
        finish(lab, name, host_of(lab, name))
    lab.until(lambda: lab.job(job).state == "RUNNING")
    assert lab.last(job).asked.precision == "fp32" and "11.81 % apart" in lab.last(job).because
    assert len(lab.store.jobs()) == 3


def test_on_one_host_they_run_one_after_the_other_also_where_two_gpus_are_free(world):
    lab = world({"one": ["A100", "A100"]})
    job = lab.submit("ocr", "A100:1", **FIELDS)
    (first,) = lab.until(lambda: running(lab))
    lab.turn(5)
    assert running(lab) == [first] and lab.last(first.partition("/")[0]).asked.precision == "fp32"
    finish(lab, first, "one")
    (second,) = lab.until(lambda: [name for name in running(lab) if name != first])
    assert lab.last(second.partition("/")[0]).asked.precision == "amp_fp16"
    finish(lab, second, "one")
    lab.until(lambda: lab.job(job).state == "RUNNING")
    assert lab.last(job).asked.precision == "fp32"


def test_a_job_without_validation_does_not_wait(world):
    lab = world({"one": ["A100"]})
    job = lab.submit("ocr", "A100:1", **{**FIELDS, "recovery": {}})
    lab.until(lambda: lab.job(job).state == "RUNNING")
    assert lab.last(job).because == "as submitted" and len(lab.store.jobs()) == 1


def test_two_jobs_of_the_same_content_wait_for_one_validation(world):
    lab = world({"one": ["A100", "A100", "A100"]})
    jobs = [lab.submit("ocr", "A100:1", **FIELDS) for _ in range(2)]
    for _ in range(2):
        (name,) = lab.until(lambda: running(lab))
        finish(lab, name, "one")
        lab.until(lambda name=name: name not in running(lab))
        lab.turn(3)
    lab.until(lambda: all(lab.job(job).state == "RUNNING" for job in jobs))
    assert {lab.last(job).asked.precision for job in jobs} == {"fp32"}
    assert len(lab.store.jobs()) == 4 and len(lab.store.validations()) == 1


def test_a_host_that_is_lost_decides_nothing_and_the_job_runs_as_asked(world):
    lab = world({"one": ["A100"]})
    job = lab.submit("ocr", "A100:1", **{**FIELDS, "recovery": {"validate": "before", "infra_retries": 0}})
    (first,) = lab.until(lambda: running(lab))
    lab.engine("one").lose(first)
    lab.until(lambda: lab.job(job).state == "RUNNING")
    assert lab.last(job).asked.precision == "amp_fp16" and "UNDECIDED" in lab.last(job).because


def test_a_job_that_was_cancelled_while_it_waited_starts_a_new_validation_on_retry(world):
    lab = world({"one": ["A100"]})
    job = lab.submit("ocr", "A100:1", **FIELDS)
    lab.until(lambda: running(lab))
    cancel(lab.store, lab.job(job), at=lab.now)
    lab.until(lambda: all(each.ended for each in lab.store.jobs()))
    lab.until(lambda: [row[2]["verdict"] for row in lab.store.validations()] == ["UNDECIDED"])
    retry(lab.store, lab.job(job), {}, at=lab.now)
    lab.until(lambda: running(lab))
    assert lab.job(job).state == "QUEUED" and "waits for its validation v2" in lab.job(job).reason


def test_runs_that_ended_before_their_log_was_read_have_no_time_per_step(world, tmp_path):
    """The first progress is seen after the end, and the time between them would be negative."""
    lab = world({"one": ["A100"]})
    job = lab.submit("ocr", "A100:1", **FIELDS)
    for _ in range(2):
        (name,) = lab.until(lambda: running(lab))
        engine, metric = lab.engine("one"), METRICS[lab.last(name.partition("/")[0]).asked.precision]
        engine.append_log(name, f"step 1 loss 2.0\nstep 2 loss 1.0\nhmean: {metric}\n".encode())
        engine.end(name)
        engine.there[name] = replace(engine.there[name], ended_at=lab.now - 5)
        lab.until(lambda name=name: name not in running(lab))
        lab.turn(3)
    lab.until(lambda: lab.job(job).state == "RUNNING")
    (report,) = tmp_path.rglob("report.md")
    assert "| time per step | not known | not known |" in report.read_text()
