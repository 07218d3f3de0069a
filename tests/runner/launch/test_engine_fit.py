"""Tests that a job which asks for more than an engine can do is refused when it is submitted."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rung.jobs.model.engine import DOCKER, ENGINES, PROCESS, SLURM, Ask
from rung.jobs.model.errors import UsageError
from rung.jobs.model.host import Host
from rung.jobs.site.settings import Site, Start
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.launch.engine_fit import ASKED, refuse_too_much, too_much, why_unfit
from rung.runner.launch.submit import refuse_impossible

ID = f"sha256:{'0' * 64}"
IMAGE = f"train@{ID}"
ASKS: dict[Ask, dict[str, Any]] = {
    Ask.VOLUMES: {"volumes": ["/data:/data"]},
    Ask.NO_NETWORK: {"network": "none"},
    Ask.PIDS: {"resources": {"pids": 100}},
    Ask.GPU_TRAITS: {"resources": {"gpu": [{"capability": ">=8.0"}]}},
    Ask.TIME: {"resources": {"time": "12h"}},
    Ask.NODES: {"resources": {"nodes": 2}},
    Ask.SLURM: {"slurm": {}},
}
OF_CONTAINERS = (Ask.VOLUMES, Ask.NO_NETWORK, Ask.PIDS)
OF_SITES = (Ask.TIME, Ask.NODES, Ask.SLURM)
HERE, DOCKED = Host("localhost", "localhost", engine=PROCESS), Host("box", "box")


def site(start: Start, **settings: Any) -> Host:
    return Host("lab", "lab", engine=SLURM, site=Site(start=start, **settings))


def spec(**fields: Any) -> JobSpec:
    return JobSpec.model_validate({"name": "a", "run": "x", **fields})


def test_every_ask_is_read_from_the_job_file() -> None:
    assert set(ASKED) == set(Ask) == set(ASKS)


@pytest.mark.parametrize("ask", OF_CONTAINERS)
def test_a_process_cannot_do_what_only_a_container_can(ask: Ask) -> None:
    assert too_much(spec(**ASKS[ask]), HERE) == [ask]
    assert too_much(spec(image=IMAGE, **ASKS[ask]), DOCKED) == []
    with pytest.raises(UsageError, match=f"^a: {ask} needs an image: .*name an image, or take it out of the job file$"):
        refuse_too_much(spec(**ASKS[ask]), [HERE])


@pytest.mark.parametrize("image", [None, IMAGE])
@pytest.mark.parametrize("ask", OF_SITES)
def test_only_a_site_can_do_what_a_queue_of_batch_jobs_can(ask: Ask, image: str | None) -> None:
    asking = spec(image=image, **ASKS[ask])
    assert too_much(asking, HERE) == too_much(asking, DOCKED) == [ask]
    assert too_much(asking, site(Start.APPTAINER if image else Start.PLAIN)) == []
    with pytest.raises(
        UsageError, match=f"^a: {ask}: no host of the list can do that(?: .+)?; take it out of the job file$"
    ):
        refuse_too_much(asking, [DOCKED])


SHARING = [Host(name, name, shared="/srv/rung", shares_with=tuple({"a", "b"} - {name})) for name in "ab"]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, None),
        ({"resources": {"nodes": 3}}, "a shares its folder with 1 other host, and the job asks for 3 nodes"),
        ({"ranks": None}, "a starts a job on several hosts only with `ranks`"),
        ({"network": "none"}, "a cannot run it on several hosts with `network: none`"),
        ({"volumes": ["/data:/data"], "checkpoint": {"dir": "/data/c"}}, "a cannot tell whether /data/c is shared"),
    ],
)
def test_hosts_that_share_a_folder_take_a_job_on_several_of_them(fields: dict[str, Any], why: str | None) -> None:
    asking = spec(**{"image": IMAGE, "run": "python x.py", "ranks": 1, "resources": {"nodes": 2}, **fields})
    if why is None:
        refuse_too_much(asking, SHARING)
        # Nobody else takes it, and one that takes it is enough.
        refuse_too_much(asking, [DOCKED, *SHARING])
        return
    with pytest.raises(UsageError, match=f"^a: no host of the list takes it: {re.escape(why)}"):
        refuse_too_much(asking, SHARING)


def test_a_process_does_not_run_on_several_hosts() -> None:
    """It is refused with what to do, whatever the list has; on this machine alone it would need no host at all."""
    several = spec(run="python x.py", ranks=1, resources={"nodes": 2})
    with pytest.raises(UsageError, match="a runs a job on several hosts only in containers: name an image, or take"):
        refuse_too_much(several, SHARING)
    with pytest.raises(UsageError, match=r"share a file system can, with an image: .+; a Slurm site can, too"):
        refuse_too_much(several, [DOCKED])
    with pytest.raises(UsageError, match="a job on several hosts runs on a host, and the list of hosts is empty"):
        refuse_impossible(several, Path("/"), list)
    # A site that runs jobs without containers takes it.
    refuse_too_much(several, [*SHARING, site(Start.PLAIN)])


@pytest.mark.parametrize("start", Start)
def test_what_a_site_can_do_depends_on_how_it_starts_jobs(start: Start) -> None:
    able = {ask for ask, fields in ASKS.items() if not too_much(spec(**fields), site(start))}
    more = {Start.PLAIN: set(), Start.PODMAN: {Ask.VOLUMES, Ask.NO_NETWORK}}.get(start, {Ask.VOLUMES})
    assert able == {*OF_SITES, *more}


@pytest.mark.parametrize(
    ("host", "fields", "why"),
    [
        (site(Start.PLAIN), {}, None),
        (site(Start.PLAIN), {"image": IMAGE}, "starts jobs without a container .*, so leave the image out"),
        (site(Start.PODMAN), {"image": IMAGE}, None),
        (site(Start.PODMAN), {}, "starts jobs in containers .start: podman., so name an image"),
        (site(Start.PODMAN), {"image": ID}, "can pull no image by its id"),
        (site(Start.PODMAN, images=((ID, "/a.tar"),)), {"image": ID}, None),
        (site(Start.PODMAN), {"image": {"A100": IMAGE}, "resources": {"gpu": ["A100:1", "P100:1"]}}, None),
        (
            site(Start.PODMAN),
            {"image": {"P100": IMAGE}, "resources": {"gpu": ["A100:1", "P100:1"]}},
            "gets the first GPU",
        ),
        (
            site(Start.PLAIN),
            {"resources": {"gpu": [{"type": "A100", "memory": ">=80g"}]}},
            "cannot do resources.gpu without a type, or by",
        ),
    ],
)
def test_a_job_that_a_site_cannot_start_is_refused_with_the_reason(
    host: Host, fields: dict[str, Any], why: str | None
) -> None:
    asking = spec(**{"slurm": {}, **fields})
    found = why_unfit(asking, host)
    if why is None:
        assert found is None
        refuse_too_much(asking, [host])
    else:
        assert found is not None and re.match(why, found)
        with pytest.raises(UsageError, match=r"^a: (no host of the list takes it: lab |resources.gpu without a type)"):
            refuse_too_much(asking, [host])


@pytest.mark.parametrize("start", Start)
def test_a_site_takes_jobs_as_it_starts_them(start: Start) -> None:
    assert [site(start).takes(image=image) for image in (True, False)] == [start.contains, not start.contains]
    assert [DOCKED.takes(image=image) for image in (True, False)] == [True, False]


@pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))
def test_what_only_repeats_the_defaults_is_asked_of_nobody(engine: Any) -> None:
    repeated = spec(network="own", resources={"pids": 4096, "shm": "8g", "nodes": 1, "gpu": "A100:1"})
    assert too_much(repeated, Host("x", "x", engine=engine)) == []


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


def test_a_job_for_slurm_without_a_site_is_refused_in_one_line(tmp_path: Path, run_rung: Callable[..., Any]) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("name: far\nrun: 'true'\nresources: {time: 12h}\n")
    code, _, errors = run_rung("launch", job)
    assert code == 2 and errors.count("\n") == 1
    assert "far: a job for Slurm runs on a host, and the list of hosts is empty" in errors
