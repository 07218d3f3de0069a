"""Tests that jobs of the field reports fail and recover in containers over SSH, near their runs in FP32."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.field.jobfile import prepare
from tests.field.places import ONE_THREAD
from tests.field.reports import REPORTS
from tests.field.rows import judge
from tests.field.runs import Runs
from tests.fleet.fleet import Fleet

# Slow: CI runs these after the others.
pytestmark = [pytest.mark.long, pytest.mark.sample]

# The two jobs that need only torch and numpy.
JOBS = ("accuracy-conditioning", "sar-kd")
LIFE = ("create", "start", "die")


def test_two_reports_recover_in_containers_over_ssh(tmp_path: Path, fleet: Fleet) -> None:
    wanted = {**ONE_THREAD, "image": fleet.images["train"], "resources": {"gpu": ["A100:1", "TITANRTX:1"]}}
    files = {
        prepare(REPORTS[job].folder, tmp_path / "jobs", "cpu", variant, wanted): (job, variant)
        for variant in (None, "fp32")
        for job in JOBS
    }
    runs = Runs(tmp_path / "home", {"RUNG_HOSTS": str(fleet.inventory), "HOME": str(tmp_path)})
    with runs.controlled():
        ended = {files[file]: history for file, history in runs.each(list(files), at_once=2)}
    for job in JOBS:
        row = judge(REPORTS[job], ended[job, None], ended[job, "fp32"], "fp32", ("fleet", "cpu"))
        assert row.troubles == (), row
    # Both at the same time, each on its own host. The engines of the hosts list the containers.
    assert {host_of(ended[job, None]) for job in JOBS} == {"ampere", "turing"}
    for history in ended.values():
        numbers = [str(attempt["number"]) for attempt in history["attempts"]]
        lives = [(host_of(history), number, action) for number in numbers for action in LIFE]
        assert seen_by_engines(fleet, history["job"]["id"]) == lives
    # Only sshd listens on a host: the engine's socket is a file.
    assert {port for name in ("ampere", "turing") for port in ports(fleet, name)} == {"22"}


def host_of(history: Mapping[str, Any]) -> str:
    (host,) = {attempt["host"] for attempt in history["attempts"]}
    return str(host)


def seen_by_engines(fleet: Fleet, job: str) -> list[tuple[str, str, str]]:
    """Return the events of a job's containers from the engines of the hosts: host, attempt, event."""
    seen = []
    for host in fleet.hosts.values():
        words = ("events", "--since=1h", "--until=0s", f"--filter=label=rung.job={job}", "--format={{json .}}")
        for line in host.docker(*words).splitlines():
            event = json.loads(line)
            seen.append((host.name, event["Actor"]["Attributes"]["rung.attempt"], event["Action"]))
    return [one for one in seen if one[2] in LIFE]


def ports(fleet: Fleet, host: str) -> set[str]:
    """Return the ports on which a host listens for other hosts."""
    addresses = [line.split()[3] for line in fleet.hosts[host].run("ss", "-Hltn").splitlines()]
    return {address.rpartition(":")[2] for address in addresses if not address.startswith(("127.", "[::1]"))}
