"""Tests what a dry run and `rung check` show of a job on several hosts: what its ranks get, and where they meet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.gpu import Gpu
from rung.jobs.model.host import Host
from rung.jobs.model.paths import HomePaths
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.engines.group.parts import meeting_port
from rung.runner.hosts.survey import GpuState, Report
from rung.runner.preflight.dry_run import LaunchPreview
from rung.runner.preflight.fit import check_fit
from rung.runner.state.store import Store
from tests.support.pretend import IMAGE

SHARED = {"ampere": "10.0.0.1", "hopper": "10.0.0.2"}


def report(name: str, away: str = "", gpus: int = 2) -> Report:
    others = tuple(other for other in SHARED if other != name)
    host = Host(name, f"{name}.example.org", shared="/srv/rung", shares_with=others, address_for_hosts=SHARED[name])
    found = [Gpu("NVIDIA A100-SXM4-40GB", (8, 0), i, f"GPU-{name}-{i}", 40 << 30) for i in range(gpus)]
    return Report(host, away=away, engine="" if away else "24.0", gpus=() if away else tuple(map(GpuState, found)))


ALONE = Report(Host("pascal", "pascal"), engine="24.0")
BOTH = [report("ampere"), report("hopper")]


def spec(**fields: Any) -> JobSpec:
    usual = {"name": "llm", "run": "python train.py", "image": IMAGE, "ranks": "gpus"}
    return JobSpec.model_validate({**usual, "resources": {"gpu": "A100:2", "nodes": 2}, **fields})


def preview(home: Path, reports: list[Report], **fields: Any) -> LaunchPreview:
    return LaunchPreview(spec(**fields), home.parent, HomePaths(home), {}, lambda: reports)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home with a store, whose id is a part of where the ranks meet."""
    (tmp_path / "home").mkdir(mode=0o700)
    Store(tmp_path / "home" / "rung.db").close()
    return tmp_path / "home"


def test_a_dry_run_shows_what_the_ranks_of_every_host_get(home: Path) -> None:
    store = Store(home / "rung.db")
    at = f"10.0.0.1:{meeting_port(store.store_id, 'llm-1', 1)}"
    store.close()
    shown = preview(home, BOTH).text().splitlines()
    assert shown[0] == "host  ampere and hopper"
    assert "ranks 0 to 1 on ampere, with GPU-ampere-0, GPU-ampere-1" in shown
    assert "ranks 2 to 3 on hopper, with GPU-hopper-0, GPU-hopper-1" in shown
    assert {f"env   RUNG_MEETING={at}", "env   RUNG_NODES=2", "net   host"} < set(shown)
    assert "env   RUNG_NODE_RANK=0, up to 1 on the last host" in shown
    assert f"log   {home}/jobs/llm-1/attempts/1/log" in shown
    assert not any(line.startswith("gpu ") for line in shown)


def test_its_json_has_the_variables_of_each_host_and_the_container_of_the_first(home: Path) -> None:
    data = json.loads(preview(home, BOTH).to_json())
    assert [(node["host"], node["ranks"], node["gpus"]) for node in data["nodes"]] == [
        (name, ranks, [f"GPU-{name}-{index}" for index in (0, 1)])
        for name, ranks in (("ampere", [0, 1]), ("hopper", [2, 3]))
    ]
    assert [node["env"]["RUNG_NODE_RANK"] for node in data["nodes"]] == ["0", "1"]
    assert len({node["env"]["RUNG_MEETING"] for node in data["nodes"]}) == 1
    assert data["container"]["HostConfig"]["NetworkMode"] == "host"
    assert f"RUNG_MEETING={data['env']['RUNG_MEETING']}" in data["container"]["Env"]


def test_before_the_first_launch_the_port_is_not_known(tmp_path: Path) -> None:
    data = json.loads(preview(tmp_path / "none", BOTH).to_json())
    assert data["env"]["RUNG_MEETING"] == "10.0.0.1:PORT"


def test_while_no_two_hosts_are_free_it_shows_that_ranks_meet_and_not_where(home: Path) -> None:
    shown = preview(home, [report("ampere"), report("hopper", away="hopper: no answer")]).text().splitlines()
    assert shown[0].startswith("host  none now: waits for 2 A100 on each of 2 hosts")
    assert "ranks 2 on each of 2 hosts that share a folder; they meet at the first one" in shown
    assert any(line.startswith("env   RUNG_MEETING=ADDRESS:") for line in shown)
    assert "env   RUNG_NODES=2" in shown


def test_a_job_on_one_host_shows_no_place_to_meet(home: Path) -> None:
    shown = preview(home, BOTH, resources={"gpu": "A100:2"})
    assert "RUNG_MEETING" not in shown.text() and "nodes" not in json.loads(shown.to_json())
    assert "gpu   GPU-ampere-0, GPU-ampere-1" in shown.text().splitlines()


def test_check_names_the_hosts_that_can_run_it_together_and_where_they_meet() -> None:
    found = [(each.good, each.what) for each in check_fit(spec(), [*BOTH, ALONE])]
    assert found[-1] == (
        True,
        "2 of these hosts can run it together: ampere (10.0.0.1), hopper (10.0.0.2); "
        "its ranks meet at the first of its hosts, at a port from 12000 to 31999",
    )


@pytest.mark.parametrize("other", [report("hopper", away="hopper: no answer"), report("hopper", gpus=1)])
def test_check_says_that_too_few_of_the_hosts_that_share_a_folder_could_run_it(other: Report) -> None:
    found = list(check_fit(spec(), [report("ampere"), other]))
    assert [(each.good, each.what) for each in found if not each.good] == [
        (False, "no 2 of the hosts that could run it now share a folder")
    ]
