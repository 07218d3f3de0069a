"""Tests that a launch refuses what the last survey of the sites has shown to be impossible, without asking anybody."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rung.jobs.model.engine import SLURM
from rung.jobs.model.host import Host
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.jobs.site.partitions import Nodes, Partition
from rung.jobs.site.settings import Site, Start
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.hosts.survey import Report
from rung.runner.launch.known_sites import KEEP_SECONDS, KEPT_SECONDS, keep_sites, keep_sites_of_home, why_nowhere
from rung.runner.state.store import Store
from tests.support.pretend import worlds

IMAGE = f"x@sha256:{'0' * 64}"
NOW = 1_000_000.0
GPU = Partition("gpu", (Nodes(3, (("a100", 4),), 8),), is_default=True, time=86_400, most_nodes=2)
PARTITIONS = (GPU, Partition("cpu", (Nodes(9),)))
LAB = Host("lab", "127.0.0.1", engine=SLURM, site=Site())
NEVER = [
    ({"slurm": {"partition": "none"}}, "lab has no partition none (it has cpu, gpu)"),
    ({"resources": {"gpu": "H100:1"}}, "lab has no h100 in its partition gpu (it has a100)"),
    ({"resources": {"gpu": "A100:5"}}, "lab has no node with 5 a100 in its partition gpu: ask for at most 4"),
    ({"resources": {"nodes": 4}}, "lab has 3 nodes in its partition gpu, and the job asks for 4"),
    ({"resources": {"nodes": 3}}, "lab gives a job at most 2 nodes in its partition gpu"),
    ({"resources": {"time": "3d"}}, "lab ends a job of its partition gpu after 1-00:00:00"),
]


@dataclass
class Lab:
    """A home and a list with one site, whose login node only counts who calls."""

    home: Path
    run_rung: Callable[..., Any]
    login: socket.socket

    def __post_init__(self) -> None:
        port = self.login.getsockname()[1]
        self.list_hosts({"lab": {"ansible_host": "127.0.0.1", "ansible_port": port, "rung_engine": "slurm"}})

    def list_hosts(self, hosts: dict[str, Any]) -> None:
        (self.home.parent / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))

    def keep(self, *partitions: Partition, age: float = 60.0, host: Host = LAB) -> None:
        self.home.mkdir(mode=0o700, exist_ok=True)
        with closing(Store(self.home / "rung.db")) as store:
            keep_sites(store, [Report(host, engine="slurm 22.05", partitions=partitions)], at=NOW - age)

    def launch(self, *words: str, **fields: Any) -> Any:
        file = self.home.parent / "job.yaml"
        file.write_text(yaml.safe_dump({"name": "far", "run": "true", "slurm": {}, **fields}))
        return self.run_rung("launch", file, *words)

    def refused(self, ran: Any, why: str) -> None:
        """Check that it was refused in one line, that nobody was asked, and that nothing new is in the store."""
        code, out, errors = ran
        assert (code, out, errors.count("\n")) == (2, "", 1), (out, errors)
        assert errors.startswith("rung: far") and f": no host of the list can ever run it: {why}" in errors
        assert "change the job file or the settings of the site" in errors and "`rung hosts` looks again" in errors
        self.nobody_was_asked()

    def nobody_was_asked(self) -> None:
        with pytest.raises(BlockingIOError):
            self.login.accept()


@pytest.fixture
def lab(home: Path, run_rung: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("RUNG_HOSTS", str(home.parent / "hosts.yml"))
    monkeypatch.setattr("time.time", lambda: NOW)
    with socket.create_server(("127.0.0.1", 0)) as login:
        login.setblocking(False)
        yield Lab(home, run_rung, login)


@pytest.mark.parametrize(("fields", "why"), NEVER, ids=["partition", "type", "GPUs", "nodes", "nodes of a job", "time"])
def test_what_no_site_can_ever_give_is_refused_at_the_launch(lab: Lab, fields: dict[str, Any], why: str) -> None:
    lab.keep(*PARTITIONS)
    ran = lab.launch(**fields)
    lab.refused(ran, why)
    assert "(surveyed 1 min ago;" in ran[2]
    assert json.loads(lab.run_rung("queue", "--json")[1]) == []


def test_what_a_site_can_give_is_launched_and_nobody_is_asked(lab: Lab) -> None:
    lab.keep(*PARTITIONS)
    code, out, _ = lab.launch(resources={"gpu": "A100:4", "nodes": 2, "time": "1d"})
    assert code == 0 and out.startswith("submitted far-1\n")
    lab.nobody_was_asked()


@pytest.mark.parametrize(
    "kept",
    [
        {"age": KEPT_SECONDS},
        # The clock of this machine was set back.
        {"age": -1.0},
        {"host": replace(LAB, address="192.0.2.7")},
        {"host": replace(LAB, name="other")},
    ],
    ids=["old", "from the future", "of another cluster", "of another site"],
)
def test_a_survey_that_says_nothing_about_the_site_now_refuses_nothing(lab: Lab, kept: dict[str, Any]) -> None:
    lab.keep(*PARTITIONS, **kept)
    assert lab.launch(slurm={"partition": "none"})[0] == 0


def test_without_any_survey_a_job_is_launched_as_ever(lab: Lab) -> None:
    assert lab.launch(slurm={"partition": "none"})[0] == 0
    lab.nobody_was_asked()


def test_every_job_of_a_grid_is_looked_at_and_none_is_queued(lab: Lab) -> None:
    lab.keep(*PARTITIONS)
    ran = lab.launch("--grid", "resources.nodes=1,4", resources={"nodes": 1})
    lab.refused(ran, "lab has 3 nodes")
    assert json.loads(lab.run_rung("queue", "--json")[1]) == []


def test_a_retry_is_refused_too_with_the_stored_file_and_with_an_edited_one(lab: Lab) -> None:
    job = lab.launch(slurm={"partition": "long"})[1].split()[1]
    with closing(Store(lab.home / "rung.db")) as store, store.transaction():
        store.move(job, JobState.CANCELLED, reason="", at=NOW)
    lab.keep(*PARTITIONS)
    lab.refused(lab.run_rung("retry", job), "lab has no partition long")
    file = lab.home.parent / "job.yaml"
    file.write_text(file.read_text().replace("partition: long", "partition: none"))
    lab.refused(lab.run_rung("retry", job, "--file", file), "lab has no partition none")
    file.write_text(file.read_text().replace("partition: none", "partition: gpu"))
    assert lab.run_rung("retry", job, "--file", file)[0] == 0


def spec(**fields: Any) -> JobSpec:
    return JobSpec.model_validate({"name": "a", "run": "x", "image": IMAGE, **fields})


def test_a_job_is_refused_only_if_every_host_that_takes_it_is_a_site_that_never_can() -> None:
    site = replace(LAB, site=Site(start=Start.APPTAINER))
    other, docker = replace(site, name="other"), Host("box", "box")
    known = {"lab": PARTITIONS, "other": (replace(GPU, nodes=(Nodes(1, (("h100", 8),)),)),)}
    asking = spec(resources={"gpu": "P100:1"})

    def why(job: JobSpec, *hosts: Host) -> str | None:
        return why_nowhere(job, hosts, lambda host: known.get(host.name, ()))

    both = why(asking, site, other) or ""
    assert both.startswith("lab has no p100 in its partition gpu (it has a100); gpu_names of the site")
    assert "; other has no p100 in its partition gpu (it has h100); " in both
    assert why(spec(resources={"gpu": "H100:1"}), site, other) is None
    assert why(asking, site, docker) is None, "its GPUs may come back"
    assert why(asking, site, replace(site, name="never seen")) is None
    # What cannot take the job at all does not count.
    assert why(asking, site, replace(LAB, name="plain")) is not None
    assert why(asking) is None


def test_the_controller_keeps_what_the_sites_show_and_writes_it_only_when_it_is_new(tmp_path: Path) -> None:
    with worlds(tmp_path) as build:
        world = build(lab=["A100"])
        shown = [PARTITIONS]
        world.engines.hosts = [replace(LAB, site=Site(start=Start.APPTAINER))]
        world.engines.survey = lambda host: Report(host, engine="slurm", partitions=shown[-1])  # type: ignore[method-assign]
        job = world.submit("a", "P100", slurm={})
        world.until(lambda: world.job(job).state is JobState.FAILED)
        assert world.job(job).reason.startswith("lab has no p100")
        first = world.store.site_surveys()["lab"]
        # It waits for a site that takes jobs without an image, and so the hosts are surveyed all the time.
        world.submit("waits", image=None, slurm={})
        world.turn(20)
        assert world.store.site_surveys()["lab"] == first
        world.pass_time(KEEP_SECONDS)
        world.turn(20)
        second = world.store.site_surveys()["lab"]
        assert second.at > first.at and second.data == first.data
        shown.append((GPU,))
        world.turn(20)
        third = world.store.site_surveys()["lab"]
        assert third.at < second.at + KEEP_SECONDS
        assert [each["name"] for each in third.data["partitions"]] == ["gpu"]


def test_who_looks_at_hosts_keeps_what_they_show_where_there_is_a_store(tmp_path: Path) -> None:
    paths, docker = HomePaths(tmp_path / "home"), Report(Host("box", "box"), engine="20.10")
    answered, silent = Report(LAB, engine="slurm", partitions=PARTITIONS), Report(replace(LAB, name="b"), away="no")
    keep_sites_of_home(paths, [answered], at=NOW)
    assert not paths.home.exists()
    paths.home.mkdir(mode=0o700)
    with closing(Store(paths.store)) as store:
        keep_sites_of_home(paths, [answered, silent, docker], at=NOW)
        assert list(store.site_surveys()) == ["lab"]
        (gpu, _) = (Partition.from_dict(each) for each in store.site_surveys()["lab"].data["partitions"])
        assert gpu == GPU


def test_a_survey_that_cannot_be_read_counts_as_none(lab: Lab) -> None:
    lab.home.mkdir(mode=0o700)
    with closing(Store(lab.home / "rung.db")) as store, store.transaction():
        store.keep_survey("lab", {"address": "127.0.0.1", "partitions": [{"of": "a later Rung"}]}, at=NOW)
    assert lab.launch(slurm={"partition": "none"})[0] == 0
