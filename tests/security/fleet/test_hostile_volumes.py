"""Tests that no volume reaches the account's own files or the socket of the engine, also not by a link."""

from __future__ import annotations

from pathlib import Path

import pytest

from rung.jobs.model.errors import EngineError
from rung.jobs.model.state import JobState
from rung.jobs.spec.volume import Volume
from rung.runner.engines.docker.engine import DockerEngine
from tests.fleet.campaign import Campaign
from tests.fleet.containers.conftest import STORE, Attempts
from tests.fleet.fleet import Fleet

STEALS = "mkdir -p /data/.ssh; echo key >/data/.ssh/authorized_keys2; ls -la /data"


def refused(attempts: Attempts, path: str) -> str:
    with pytest.raises(EngineError) as raised:
        attempts.sh(STEALS, volumes=(Volume(path, "/data"),))
    assert attempts.containers() == []
    return str(raised.value)


def test_the_home_of_the_account_is_refused_and_its_data_is_not(attempts: Attempts) -> None:
    """In 0.1.0 the job wrote ~/.ssh/authorized_keys2 of the account."""
    assert (
        refused(attempts, "/home/rung")
        == "turing: volume /home/rung holds the account's own files, such as its SSH keys"
    )
    assert "is the account's own" in refused(attempts, "/home/rung/.rung")
    attempts.host.run("install", "--directory", "--owner", "rung", "/home/rung/data")
    request = attempts.sh("echo mine >/data/file", volumes=(Volume("/home/rung/data", "/data"),))
    assert attempts.end(request).exit_code == 0
    assert attempts.host.run("cat", "/home/rung/data/file") == "mine"


def test_a_link_to_the_socket_or_to_the_keys_is_refused(attempts: Attempts) -> None:
    """0.1.0 mounted what the link led to: a job with the socket is root on the host."""
    attempts.host.run("install", "--directory", "--owner", "rung", "/home/rung/data", "/home/rung/.ssh")
    links = {"socket": "/var/run/docker.sock", "run": "/run", "keys": "/home/rung/.ssh", "all": "/", "up": "../.ssh"}
    for name, target in links.items():
        attempts.host.run("ln", "--symbolic", target, f"/home/rung/data/{name}")
        message = refused(attempts, f"/home/rung/data/{name}")
        assert message.startswith(f"turing: volume /home/rung/data/{name}, which is /"), message
    assert attempts.host.run("ls", "-A", "/home/rung/.ssh") == ""


def test_a_volume_that_is_missing_gives_a_clear_error_and_makes_no_folder(attempts: Attempts) -> None:
    assert "is not there: make the folder on the host" in refused(attempts, "/home/rung/nothing")
    assert attempts.host.run("ls", "/home/rung") == ""


def test_a_link_to_data_is_mounted_as_the_folder_it_leads_to(attempts: Attempts) -> None:
    attempts.host.run("install", "--directory", "--owner", "rung", "/home/rung/v2")
    attempts.host.run("ln", "--symbolic", "v2", "/home/rung/current")
    request = attempts.sh("echo x >/data/file; sleep 600", volumes=(Volume("/home/rung/current", "/data"),))
    attempts.wait(lambda: attempts.host.run("ls", "/home/rung/v2") == "file")
    assert '"/home/rung/v2"' in attempts.host.docker("inspect", attempts.name(request))
    attempts.engine.stop(request.paths, force=True)


def test_only_the_roots_of_the_host_may_be_mounted(attempts: Attempts) -> None:
    attempts.host.run("install", "--directory", "--owner", "rung", "/home/rung/allowed", "/home/rung/other")
    attempts.engine = DockerEngine(attempts.remote, STORE, volume_roots=("/home/rung/allowed",))
    attempts.engines.append(attempts.engine)
    assert "lies in none of the folders that rung_volume_roots allows" in refused(attempts, "/home/rung/other")
    request = attempts.sh("true", volumes=(Volume("/home/rung/allowed", "/data"),))
    assert attempts.end(request).exit_code == 0


def test_the_history_of_the_job_says_which_volume_was_refused(tmp_path: Path, fleet: Fleet) -> None:
    campaign = Campaign(tmp_path, fleet)
    try:
        fields = {"run": ["sh", "-c", STEALS], "volumes": ["/home/rung:/data"], "recovery": {"infra_retries": 0}}
        job = campaign.submit("thief", **fields)
        campaign.control()
        campaign.wait_for_end(job, JobState.FAILED)
        faults = [event.data["evidence"] for event in campaign.store.events(job) if event.kind == "fault"]
        assert faults and all("volume /home/rung holds the account's own files" in evidence for evidence in faults)
        assert all("authorized_keys2" not in host.run("ls", "-RA", "/home/rung") for host in fleet.hosts.values())
    finally:
        campaign.close()
