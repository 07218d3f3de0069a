"""Tests which engine an attempt gets, and how long it is kept."""

from __future__ import annotations

from pathlib import Path

from rung.jobs.job import Attempt
from rung.jobs.model.engine import DOCKER
from rung.jobs.model.gpu import Member
from rung.jobs.model.knobs import Knobs
from rung.runner.engine_pool import RealEngines


def test_the_engine_of_several_hosts_is_kept_while_the_job_is_active(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.yml"
    hosts.write_text("all: {hosts: {turing: {}, pascal: {}}}\n")
    engines = RealEngines({"RUNG_HOSTS": str(hosts)}, tmp_path, "store")
    attempt = Attempt("a-1", 1, "turing", Knobs(), None, "", engine=DOCKER, members=(Member("pascal", ()),))
    first = engines.of(attempt)
    assert engines.of(attempt) is first
    engines.job_ended("b-2")
    assert engines.of(attempt) is first
    engines.job_ended("a-1")
    assert engines._groups == {}
    engines.close()
