"""Tests what one job avoids: GPUs that it takes last, and nodes that a site must not choose for it."""

from __future__ import annotations

import pytest

from rung.jobs.job import Job
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.recovery.nodes.avoid import MOST_NODES, gpus_to_use_last, nodes_to_exclude
from rung.recovery.nodes.bad_places import find_bad_places
from tests.support.places import HOUR, died, ended

NOW = 1_000_000.0


def job(job_id: str) -> Job:
    spec = JobSpec.model_validate({"name": "a", "run": "true"})
    return Job(job_id, spec, JobState.RECOVERING, "", created_at=1.0, updated_at=1.0, knobs=Knobs())


def at(node: str, site: str = "site") -> dict[str, str]:
    return {"node": node, "host": site}


def test_a_job_takes_the_gpu_where_it_died_last_and_others_do_not_mind() -> None:
    bad = find_bad_places([died("a-1", NOW - 60, gpus=(0, 1)), died("b-2", NOW - 50, host="ampere")], NOW)
    assert gpus_to_use_last("a-1", bad) == {("turing", "GPU-turing-0"), ("turing", "GPU-turing-1")}
    assert gpus_to_use_last("b-2", bad) == {("ampere", "GPU-ampere-0")}
    assert gpus_to_use_last("c-3", bad) == frozenset()


def test_a_site_excludes_where_the_job_died_and_what_is_set_aside_for_all() -> None:
    attempts = [
        died("a-1", NOW - 60, **at("n1")),
        died("b-2", NOW - 50, **at("n9")),
        died("c-3", NOW - 40, **at("n9")),
        died("c-3", NOW - 30, **at("n5", "other")),
        died("d-4", NOW - 30, **at("n3")),
        ended("e-5", NOW - 20, **at("n3")),
        died("a-1", NOW - 10),
    ]
    assert nodes_to_exclude(job("a-1"), attempts, NOW) == ("n1", "n9")
    assert nodes_to_exclude(job("c-3"), attempts, NOW) == ("n5", "n9")
    assert nodes_to_exclude(job("c-3"), attempts, NOW, site="site") == ("n9",)
    assert nodes_to_exclude(job("x-7"), attempts, NOW, site="site") == ("n9",)
    assert nodes_to_exclude(job("x-7"), attempts, NOW, cleared={"n9": NOW}) == ()
    assert nodes_to_exclude(job("a-1"), attempts, NOW + HOUR) == ()


@pytest.mark.parametrize("name", ["--comment=x", "n1,n2", "n[1-9]", "n1 n2", "", "n1\n", "n" * 256])
def test_what_is_no_name_of_a_node_is_left_out(name: str) -> None:
    attempts = [died("a-1", NOW - 60, **at(name)), died("a-1", NOW - 50, **at("gpu-7.site"))]
    assert nodes_to_exclude(job("a-1"), attempts, NOW) == ("gpu-7.site",)


def test_the_list_for_a_site_is_bounded_and_keeps_the_newest() -> None:
    attempts = [died("a-1", NOW - 1000 + number, **at(f"n{number:03}")) for number in range(200)]
    assert nodes_to_exclude(job("a-1"), attempts, NOW) == tuple(f"n{number}" for number in range(150, 200))
    assert MOST_NODES == 50
