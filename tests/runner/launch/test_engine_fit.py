"""Tests that a job which asks for more than an engine can do is refused when it is submitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rung.jobs.model.engine import DOCKER, ENGINES, PROCESS, Ask
from rung.jobs.model.errors import UsageError
from rung.jobs.model.host import Host
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.launch.engine_fit import ASKED, refuse_too_much, too_much

IMAGE = f"train@sha256:{'0' * 64}"
ASKS: dict[Ask, dict[str, Any]] = {
    Ask.VOLUMES: {"volumes": ["/data:/data"]},
    Ask.NO_NETWORK: {"network": "none"},
    Ask.PIDS: {"resources": {"pids": 100}},
}


def spec(**fields: Any) -> JobSpec:
    return JobSpec.model_validate({"name": "a", "run": "x", **fields})


def test_every_ask_is_read_from_the_job_file() -> None:
    assert set(ASKED) == set(Ask) == set(ASKS)


@pytest.mark.parametrize("ask", Ask)
def test_a_process_cannot_do_what_only_a_container_can(ask: Ask) -> None:
    assert too_much(spec(**ASKS[ask]), PROCESS) == [ask]
    assert too_much(spec(image=IMAGE, **ASKS[ask]), DOCKER) == []
    with pytest.raises(UsageError, match=f"^a: {ask} needs an image: .*name an image, or take it out of the job file$"):
        refuse_too_much(spec(**ASKS[ask]), [Host("localhost", "localhost", engine=PROCESS)])


@pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))
def test_what_only_repeats_the_defaults_is_asked_of_nobody(engine: Any) -> None:
    assert too_much(spec(network="own", resources={"pids": 4096, "shm": "8g"}), engine) == []


def test_a_job_is_refused_only_if_no_host_can_do_what_it_asks() -> None:
    weak = Host("weak", "weak", engine=replace(DOCKER, can_do=frozenset()))
    asking = spec(image=IMAGE, network="none")
    refuse_too_much(asking, [weak, Host("able", "able")])
    with pytest.raises(UsageError, match=r"^a: network: none: no host of the list can do that; take it out"):
        refuse_too_much(asking, [weak])


def test_the_refusal_is_one_line_and_exit_code_2_and_nothing_is_queued(
    tmp_path: Path, run_rung: Callable[..., Any]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump({"name": "sealed", "run": "true", "network": "none"}))
    code, _, errors = run_rung("launch", job)
    assert code == 2 and errors.count("\n") == 1 and "sealed: network: none needs an image" in errors
    assert "sealed" not in run_rung("queue")[1]
