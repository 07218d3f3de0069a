"""Tests the settings of a Slurm site in the list of hosts: all are read, and every problem is one line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rung.jobs.model.engine import DOCKER, HOST_ENGINES, SLURM
from rung.jobs.model.errors import InventoryError
from rung.jobs.model.host import Host
from rung.jobs.site.settings import GpuOption, Site, Start
from rung.runner.engine_pool import MAKERS
from rung.runner.hosts import host_list
from rung.runner.hosts.host_list import parse_hosts
from rung.runner.hosts.site_settings import PARSERS, read_site

DIGEST = f"sha256:{'0' * 64}"
WHOLE = f"""
all:
  hosts:
    login1:
      ansible_host: login.example.org
      rung_engine: slurm
      rung_slurm:
        partition: gpu,long
        account: lab
        qos: high
        time: 1-12:00
        folder: /lustre/me/rung/
        gpu_option: gpus
        gpu_names: {{A100: a100, TITAN RTX: titanrtx, P100: }}
        memory: 64g
        cpus_per_gpu: 8
        options: [--constraint=ib, --exclusive]
        warn: 5m
        poll: 30
        submit_at_most: 50
        start: apptainer
        modules: [apptainer/1.3]
        module_init: /opt/lmod/init/sh
        images: {{train@{DIGEST}: /lustre/train.sif}}
"""


@pytest.fixture
def with_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the list name an engine that is not there yet."""
    monkeypatch.setattr(host_list, "HOST_ENGINES", (DOCKER, SLURM))


def problems(text: str) -> list[str]:
    with pytest.raises(InventoryError) as raised:
        parse_hosts(text.encode())
    return raised.value.problems


def test_the_list_names_exactly_the_engines_that_can_be_made() -> None:
    assert {*HOST_ENGINES} == {*MAKERS} and HOST_ENGINES[0] is DOCKER


def test_every_setting_can_be_read() -> None:
    assert list(PARSERS) == [field.name for field in fields(Site)]


@pytest.mark.usefixtures("with_slurm")
def test_every_setting_is_read() -> None:
    (host,) = parse_hosts(WHOLE.encode())
    assert (host.address, host.engine) == ("login.example.org", SLURM)
    assert host.site == Site(
        partition="gpu,long",
        account="lab",
        qos="high",
        time=129_600,
        folder="/lustre/me/rung",
        gpu_option=GpuOption.GPUS,
        gpu_names=(("A100", "a100"), ("P100", ""), ("TITANRTX", "titanrtx")),
        memory=64 << 30,
        cpus_per_gpu=8,
        options=("--constraint=ib", "--exclusive"),
        warn=300,
        poll=30,
        submit_at_most=50,
        start=Start.APPTAINER,
        modules=("apptainer/1.3",),
        module_init="/opt/lmod/init/sh",
        images=((f"train@{DIGEST}", "/lustre/train.sif"),),
    )


@pytest.mark.usefixtures("with_slurm")
def test_a_site_needs_no_settings_and_other_hosts_have_none() -> None:
    assert parse_hosts(b"all: {hosts: {a: {rung_engine: slurm}, b: {rung_engine: docker}, c: }}") == [
        Host("a", "a", engine=SLURM, site=Site()),
        Host("b", "b"),
        Host("c", "c"),
    ]


@pytest.mark.parametrize(
    ("site", "root"),
    [(Site(), "/home/me/.rung"), (Site(folder="/lustre/r"), "/lustre/r"), (Site(folder="~/x"), "/home/me/x")],
)
def test_the_folder_of_rung_is_in_the_home_unless_the_site_says_otherwise(site: Site, root: str) -> None:
    assert site.root("/home/me") == root


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ("slurm", "rung_engine: is no engine of this version; known: docker (got 'slurm')"),
        ("process", "rung_engine: is no engine of this version; known: docker (got 'process')"),
        ("k8s", "rung_engine: should name an engine; known: docker (got 'k8s')"),
        ("[docker]", "rung_engine: should name an engine; known: docker"),
        ("", "rung_engine: should name an engine; known: docker"),
    ],
)
def test_an_engine_that_cannot_be_made_is_refused(engine: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_list, "HOST_ENGINES", (DOCKER,))
    (problem,) = problems(f"all:\n  hosts:\n    x:\n      rung_engine: {engine}\n")
    assert problem.startswith(f"4: {message}")


def test_settings_of_a_site_without_its_engine_are_refused() -> None:
    (problem,) = problems("all:\n  hosts:\n    x:\n      rung_slurm: {partition: gpu}\n")
    assert problem == "4: rung_slurm: has no effect without rung_engine: slurm"


WRONG = [
    ("gpu", "should be a mapping, such as"),
    ("{partion: gpu}", "partion: unknown key; did you mean 'partition'?"),
    ("{partition: [gpu]}", "partition: should be one plain name, or several with commas"),
    ("{partition: 'gpu, long'}", "partition: should be one plain name, or several with commas"),
    ("{account: --wrap=x}", "account: should be one plain name"),
    ("{account: 12}", "account: should be one plain name, in quotes if it is a number (got '12')"),
    ("{qos: ''}", "qos: should be one plain name"),
    ("{time: 90}", "time: give a time with its unit, such as 12h"),
    ("{time: 12x}", "time: give a time such as 12h, 90m, 12:00:00 or 1-12:00 (days-hours:minutes) (got '12x')"),
    ("{time: 10s}", "time: give a time from one minute to 365 days"),
    ("{time: 2m}", "warn: 120 s before the limit is not within the time of 120 s"),
    ("{folder: rung}", "folder: should be a path that begins with /"),
    ("{folder: /a/../b}", "folder: should be a path without .."),
    ("{folder: ~other/x}", "folder: should be a path that begins with /"),
    ("{folder: '/a b'}", "folder: should be a path that begins with /"),
    ("{gpu_option: gpu}", "gpu_option: should be one of gres, gpus"),
    ("{gpu_names: a100}", "gpu_names: should be a mapping"),
    ("{gpu_names: {A100: 'a100:4'}}", "gpu_names: should be one plain name"),
    ("{gpu_names: {A100: a, a100: b}}", "gpu_names: names a type of GPU twice"),
    ("{memory: 64}", "memory: give a size such as 64g"),
    ("{memory: much}", "memory: give a size such as"),
    ("{cpus_per_gpu: 0}", "cpus_per_gpu: should be a whole number from 1"),
    ("{cpus_per_gpu: true}", "cpus_per_gpu: should be a whole number"),
    ("{options: --exclusive}", "options: should be a list of at most"),
    ("{options: [--wrap=x]}", "options: --wrap: Rung sets --wrap itself"),
    ("{options: [--job-nam=x]}", "options: --job-nam: Rung sets --job-name itself"),
    ("{options: ['--exclusive --wrap=x']}", "options: should be one word such as"),
    ("{warn: 70000}", "warn: give seconds, or a time such as 90s or 2m, from 0 to 65535 seconds"),
    ("{warn: off}", "warn: give seconds"),
    ("{poll: 0}", "poll: give seconds"),
    ("{poll: .nan}", "poll: give seconds"),
    ("{submit_at_most: 1.5}", "submit_at_most: should be a whole number"),
    ("{start: docker}", "start: should be one of plain, apptainer, pyxis, podman (got 'docker')"),
    ("{start: [plain]}", "start: should be one of plain"),
    ("{modules: [a b]}", "modules: should be the name of a module"),
    ("{modules: [--x]}", "modules: should be the name of a module"),
    ("{module_init: init, modules: [a]}", "module_init: should be a path"),
    ("{module_init: /init}", "module_init: has no effect without modules"),
    ("{venv: /v, conda: c}", "conda: give either venv or conda"),
    ("{venv: venv}", "venv: should be a path"),
    ("{conda: -n}", "conda: should be one plain name"),
    ("{start: podman, venv: /v}", "venv: has no effect in a container"),
    ("{images: {train: /a}, start: podman}", "images: should be a mapping from a pinned image"),
    (f"{{images: {{train@{DIGEST}: a}}, start: podman}}", "images: should be a path"),
    (f"{{images: {{train@{DIGEST}: /a}}}}", "images: has no effect without a container"),
]


@pytest.mark.usefixtures("with_slurm")
@pytest.mark.parametrize(("given_settings", "message"), WRONG)
def test_a_wrong_setting_is_one_line_with_its_number(given_settings: str, message: str) -> None:
    (problem,) = problems(f"all:\n  hosts:\n    x:\n      rung_engine: slurm\n      rung_slurm: {given_settings}\n")
    assert problem.removeprefix("5: rung_slurm.").removeprefix("5: rung_slurm: ").startswith(message)
    assert problem.startswith("5: rung_slurm") and "\n" not in problem


@pytest.mark.usefixtures("with_slurm")
def test_all_problems_are_reported_at_once() -> None:
    found = problems("all: {hosts: {x: {rung_engine: slurm, rung_slurm: {time: 1, qos: '', x: 1}}}}")
    assert len(found) == 3


def test_the_command_prints_one_line_and_exits_with_2(tmp_path: Path, rung: Callable[..., Any]) -> None:
    listed = tmp_path / "hosts.yml"
    listed.write_text("all:\n  hosts:\n    x: {rung_slurm: {partition: gpu}}\n")
    ran = rung("hosts", env={"RUNG_HOSTS": str(listed)})
    assert (ran.code, ran.err) == (2, f"rung: {listed}:3: rung_slurm: has no effect without rung_engine: slurm\n")


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.lists(st.text(max_size=8))


@given(
    st.dictionaries(st.sampled_from([*PARSERS, "x"]), VALUES | st.dictionaries(st.text(max_size=4), VALUES), max_size=4)
)
@settings(deadline=None)
def test_any_mapping_is_a_site_or_problems(data: dict[str, Any]) -> None:
    site, found = read_site(data)
    assert isinstance(site, Site) and all(isinstance(problem, str) for problem in found)
