"""Tests the configuration of containers: nothing can harm the host, whatever the job asks for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.job import Attempt, Job
from rung.jobs.model.engine import DOCKER
from rung.jobs.model.errors import EngineError
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.volume import Volume
from rung.runner.engines.docker.container_config import (
    container_config,
    container_name,
    files_config,
    probe_config,
)
from rung.runner.engines.docker.empty_image import EMPTY_IMAGE
from rung.runner.engines.on_host.layout import HostLayout, RemoteUser, path_in_files
from rung.runner.launch.request import build_request
from rung.runner.seams.engine import Request

IMAGE = "r/train@sha256:" + "0" * 64
PLACE = HostLayout(RemoteUser("/home/rung", 1000, 1001), "abc", "/home/rung/.rung/abc/trees/t/files")
GPUS = (Gpu("NVIDIA A100", (8, 0), 1, "GPU-1"), Gpu("NVIDIA A100", (8, 0), 2))


def request(*, resumed_from: str | None = None, gpus: tuple[Gpu, ...] = (), **fields: Any) -> Request:
    run = "python train.py --dir {checkpoint_dir} --resume {checkpoint}"
    spec = JobSpec.model_validate({"name": "m", "run": run, "image": IMAGE, **fields})
    knobs = spec.knobs.knobs()
    job = Job("m-1", spec, JobState.QUEUED, "", 0.0, 0.0, knobs)
    attempt = Attempt(
        "m-1",
        3,
        "turing",
        knobs,
        None,
        "",
        image=IMAGE,
        engine=DOCKER,
        gpus=gpus,
        residence=2,
        resumed_from=resumed_from,
    )
    return build_request(job, attempt, HomePaths(Path("/h")), Path("/src"), {"HF_TOKEN": "geheim", "PATH": "/x"})


def test_a_container_runs_as_an_unprivileged_user() -> None:
    config = container_config(request(), PLACE)
    host = config["HostConfig"]
    assert config["User"] == "1000:1001"
    assert host["CapDrop"] == ["ALL"]
    assert "CapAdd" not in host
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["ReadonlyRootfs"] is True
    assert host["Privileged"] is False
    assert host["RestartPolicy"] == {"Name": "no"}
    assert host["NetworkMode"] == "rung-abc-m-1-3"
    assert host["IpcMode"] == "private"
    assert not any(name in host for name in ("PidMode", "UTSMode", "Devices", "Binds", "VolumesFrom", "GroupAdd"))
    assert "docker.sock" not in json.dumps(config)


def test_the_name_and_the_labels_follow_from_store_job_and_attempt() -> None:
    assert container_name("abc", "m-1", 3) == "rung-abc-m-1-3"
    assert container_config(request(), PLACE)["Labels"] == {"rung.store": "abc", "rung.job": "m-1", "rung.attempt": "3"}
    assert container_config(request(), PLACE) == container_config(request(), PLACE)


def test_limits_and_gpus_are_exactly_the_requested_ones() -> None:
    resources = {"memory": "16g", "cpus": 4, "shm": "8g", "pids": 99}
    host = container_config(request(resources=resources, network="none", gpus=GPUS), PLACE)["HostConfig"]
    assert (host["Memory"], host["MemorySwap"], host["NanoCpus"]) == (16 << 30, 16 << 30, 4 * 10**9)
    assert (host["ShmSize"], host["PidsLimit"], host["NetworkMode"]) == (8 << 30, 99, "none")
    (devices,) = host["DeviceRequests"]
    assert devices["DeviceIDs"] == ["GPU-1", "2"]
    assert devices["Capabilities"] == [["gpu"]]


def test_no_variable_can_add_gpus() -> None:
    asked = {"envs": {"NVIDIA_VISIBLE_DEVICES": "all"}}
    assert "NVIDIA_VISIBLE_DEVICES=void" in container_config(request(**asked), PLACE)["Env"]
    assert "VISIBLE_DEVICES" not in str(container_config(request(**asked, gpus=GPUS), PLACE)["Env"])


def test_nothing_of_this_machine_is_in_the_config() -> None:
    config = container_config(request(secrets=["HF_TOKEN"]), PLACE)
    assert "geheim" not in json.dumps(config)
    assert not any(variable.startswith(("PATH=", "HF_TOKEN=")) for variable in config["Env"])
    assert "HOME=/tmp" in config["Env"]


def test_the_command_is_passed_argument_by_argument() -> None:
    argv = ["sh", "-c", "; rm -rf / $(id)", "'\"\n", "\x1b[2J"]
    assert container_config(request(run=argv), PLACE)["Cmd"] == argv


def test_the_folders_of_the_host_are_mounted_at_the_paths_of_the_job() -> None:
    config = container_config(request(secrets=["A"], volumes=["/data/x:/data:ro"], resumed_from="step_5.pt"), PLACE)
    mounts = {mount["Target"]: (mount["Source"], mount["ReadOnly"]) for mount in config["HostConfig"]["Mounts"]}
    assert mounts == {
        "/rung/work": ("/home/rung/.rung/abc/jobs/m-1/attempts/3/work", False),
        "/rung/job": ("/home/rung/.rung/abc/jobs/m-1/stays/2", False),
        "/rung/record": ("/home/rung/.rung/abc/jobs/m-1/attempts/3/record", False),
        "/rung/inside": (PLACE.inside, True),
        "/rung/secrets": ("/dev/shm/rung-abc-m-1-3", False),
        "/data": ("/data/x", True),
    }
    assert config["WorkingDir"] == "/rung/work"
    assert config["Cmd"][-2:] == ["--resume", "/rung/job/checkpoints/step_5.pt"]


@pytest.mark.parametrize(
    ("folder", "volumes", "seen"),
    [
        ("checkpoints", (), "/rung/files/stays/2/checkpoints"),
        ("a/b", (), "/rung/files/stays/2/a/b"),
        ("/ckpt", ("/data/x:/ckpt",), "/ckpt"),
        ("/ckpt/run", ("/data/x:/ckpt",), "/ckpt/run"),
    ],
)
def test_checkpoints_are_found_where_the_container_writes_them(folder: str, volumes: tuple[str], seen: str) -> None:
    asked = request(checkpoint={"dir": folder}, volumes=volumes)
    assert path_in_files(asked) == seen


def test_a_container_for_the_files_of_a_job_sees_no_other_job_and_writes_only_if_it_must() -> None:
    asked = request(volumes=("/data/x:/data", "/ref:/ref:ro", "/other:/other"), checkpoint={"dir": "/data/c"})
    for writable in (False, True):
        config = files_config(asked, PLACE, ("sh",), writable=writable)
        mounts = {each["Target"]: (each["Source"], each["ReadOnly"]) for each in config["HostConfig"]["Mounts"]}
        assert mounts == {
            "/rung/files": ("/home/rung/.rung/abc/jobs/m-1", not writable),
            "/rung/inside": (PLACE.inside, True),
            "/data": ("/data/x", not writable),
        }
        assert config["HostConfig"]["NetworkMode"] == "none"


def test_nothing_of_the_job_runs_in_a_container_for_its_files() -> None:
    """It may write where the job cannot, so its programs are the host's, and no variable of the job loads another."""
    place = replace(PLACE, user=replace(PLACE.user, program_folders=("/bin", "/lib", "/usr")))
    asked = request(envs={"LD_PRELOAD": "/rung/files/stays/1/x.so", "PATH": "/rung/files/stays/1"}, gpus=GPUS)
    config = files_config(asked, place, ("/bin/sh",), writable=True)
    assert config["Image"] == EMPTY_IMAGE != container_config(asked, place)["Image"]
    assert config["Env"] == ["NVIDIA_VISIBLE_DEVICES=void", "PATH=/usr/bin:/bin:/usr/sbin:/sbin"]
    programs = [each for each in config["HostConfig"]["Mounts"] if not each["Target"].startswith("/rung/")]
    assert [(each["Source"], each["Target"], each["ReadOnly"]) for each in programs] == [
        (folder, folder, True) for folder in ("/bin", "/lib", "/usr")
    ]
    assert not config["HostConfig"].get("DeviceRequests")


@pytest.mark.parametrize(
    ("folder", "volumes"),
    [("/ckpt", []), ("/ckpt", ["/data:/ckpt:ro"]), ("/other", ["/data:/ckpt"]), ("../x", []), ("a/../../x", [])],
)
def test_checkpoints_that_would_be_lost_with_the_container_are_refused(folder: str, volumes: list[str]) -> None:
    with pytest.raises(ValueError, match="checkpoint"):
        request(checkpoint={"dir": folder}, volumes=volumes)


def test_a_probe_writes_nothing_and_has_no_network() -> None:
    asked = request(volumes=["/data/x:/data"], secrets=["A"], gpus=GPUS, envs={"PYTHONPATH": "/mine"})
    config = probe_config(asked, PLACE, ("python", "-m", "rung_inside.verify"))
    host = config["HostConfig"]
    assert host["NetworkMode"] == "none"
    assert all(mount["ReadOnly"] for mount in host["Mounts"])
    assert "/rung/secrets" not in {mount["Target"] for mount in host["Mounts"]}
    assert not host.get("DeviceRequests")
    assert config["Entrypoint"] + config["Cmd"] == ["python", "-m", "rung_inside.verify"]
    assert config["Env"][-1] == "PYTHONPATH=/rung/inside:/mine"
    assert "rung.job" not in config["Labels"]


def test_a_request_without_a_container_is_an_error() -> None:
    with pytest.raises(EngineError, match="runs on this machine, and not on a host"):
        container_config(replace(request(), container=None), PLACE)
    assert Volume("/a", "/b").text == "/a:/b"
