"""Tests what the runtime writes into a container's configuration: the GPUs given, and no others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import runtime
from tests.gpu.engine import MachineEngine

# Character devices that every machine has, in the place of GPUs.
SETTINGS: dict[str, Any] = {
    "cards": {"GPU-1": "/dev/zero", "GPU-2": "/dev/full"},
    "control": ["/dev/null"],
    "libraries": ["/lib/libcuda.so.1"],
    "folder": "/usr/lib/x86_64-linux-gnu",
    "runc": "/bin/echo",
}
GIVEN = ["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=GPU-2"]


def config(*env: str) -> dict[str, Any]:
    return {"process": {"env": list(env)}, "linux": {"resources": {"devices": [{"allow": False}]}}, "mounts": []}


def test_a_container_gets_the_driver_and_only_the_gpu_that_it_was_given() -> None:
    made = runtime.with_gpus(config(), ["GPU-2"], SETTINGS)
    assert [device["path"] for device in made["linux"]["devices"]] == ["/dev/full", "/dev/null"]
    numbers = Path("/dev/full").stat().st_rdev
    rule = {"allow": True, "access": "rw", "type": "c", "major": os.major(numbers), "minor": os.minor(numbers)}
    assert made["linux"]["resources"]["devices"][:2] == [{"allow": False}, rule]
    assert [mount["destination"] for mount in made["mounts"]] == ["/usr/lib/x86_64-linux-gnu/libcuda.so.1"]
    assert all("ro" in mount["options"] for mount in made["mounts"])


@pytest.mark.parametrize(
    ("env", "given"),
    [((), []), (("NVIDIA_VISIBLE_DEVICES=void",), []), (("NVIDIA_VISIBLE_DEVICES=",), []), (GIVEN, ["GPU-2"])],
)
def test_the_gpus_of_the_engine_count_more_than_those_of_the_image(env: tuple[str, ...], given: list[str]) -> None:
    assert runtime.wanted(list(env)) == given


def test_a_gpu_that_the_machine_does_not_have_is_refused() -> None:
    with pytest.raises(SystemExit, match="no GPU GPU-9 on this machine"):
        runtime.with_gpus(config(), ["GPU-9"], SETTINGS)


@pytest.mark.parametrize(("env", "devices"), [(GIVEN, 2), (["PATH=/bin"], 0)])
def test_runc_gets_its_own_arguments_after_the_configuration_is_written(
    tmp_path: Path, env: list[str], devices: int
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config(*env)))
    (tmp_path / "settings.json").write_text(json.dumps(SETTINGS))
    words = ["--root", "/r", "create", "--bundle", str(tmp_path), "name"]
    command = [sys.executable, "-I", runtime.__file__, tmp_path / "settings.json", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == words
    written = json.loads((tmp_path / "config.json").read_text())
    assert len(written["linux"].get("devices", [])) == devices


def test_only_the_call_that_creates_a_container_starts_python(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config(*GIVEN)))
    (tmp_path / "driver.json").write_text(json.dumps({**SETTINGS, "runc": "/bin/false"}))
    script = tmp_path / "rung-gpu"
    script.write_text(MachineEngine(tmp_path, 1).runtime("/bin/echo"))
    done = subprocess.run(["sh", script, "delete", "name"], capture_output=True, text=True, check=True)
    assert done.stdout == "delete name\n"
    # The settings name another program than the script, and it is called with the devices in the configuration.
    created = subprocess.run(["sh", script, "create", "--bundle", tmp_path, "name"], check=False)
    assert created.returncode == 1
    assert len(json.loads((tmp_path / "config.json").read_text())["linux"]["devices"]) == 2
