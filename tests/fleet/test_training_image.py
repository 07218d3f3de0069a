"""Tests the training image: make builds it, its labels are right, and an image that cannot work is refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.engine import CLIENT
from tests.fleet.fleet import Fleet
from tests.fleet.host import REGISTRY, Host

ROOT = Path(__file__).resolve().parents[2]
SAFE = ("--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=none")
LOCKED = dict(re.findall(r"^(\S+)==(\S+)$", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
UNKNOWN = "rung: WITH takes names of packages in requirements.lock, and"
PINNED = {"GPU": "cpu", "BASE": "base@sha256:0"}
TRAIN = """
import os, torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler("cpu")
with torch.autocast("cpu", dtype=torch.float16):
    loss = model(torch.ones(4, 8)).square().mean()
scaler.scale(loss).backward()
scaler.step(optimizer)
torch.save(model.state_dict(), "/tmp/step.pt")
print(torch.__version__, os.getuid(), torch.isfinite(loss).item())
"""


@pytest.fixture
def host(fleet: Fleet) -> Host:
    return fleet.hosts["turing"]


def config(docker: Any, image: str) -> dict[str, Any]:
    return dict(json.loads(docker("inspect", image))[0]["Config"])


def make_image(**settings: object) -> subprocess.CompletedProcess[str]:
    env: dict[str, str] = settings.pop("env", dict(os.environ))  # type: ignore[assignment]
    words = [f"{name}={value}" for name, value in settings.items()]
    return subprocess.run(["make", "-C", ROOT, "image", *words], env=env, capture_output=True, text=True)


def test_its_labels_are_those_of_its_torch(fleet: Fleet, host: Host) -> None:
    labels = config(host.docker, fleet.images["train-cpu"])["Labels"]
    version = host.docker(
        "run", "--rm", fleet.images["train-cpu"], "python", "-c", "import torch; print(torch.__version__)"
    )
    assert labels == {"rung.gpu": "cpu", "rung.torch": version, "rung.cuda.archs": ""}
    assert version.partition("+")[0] == LOCKED["torch"]


def test_it_trains_in_fp16_as_a_user_without_rights(fleet: Fleet, host: Host) -> None:
    output = host.docker("run", "--rm", *SAFE, fleet.images["train-cpu"], "python", "-c", TRAIN)
    assert output.split()[1:] == ["1000", "True"]


def test_it_contains_neither_pip_nor_the_tests_of_torch(fleet: Fleet, host: Host) -> None:
    find = "import importlib.util as i; print([n for n in ('pip', 'torch.test') if i.find_spec(n)])"
    assert host.docker("run", "--rm", fleet.images["train-cpu"], "python", "-c", find) == "[]"


# Builds for GPUs. An index with CUDA builds of torch is not always reachable, so these install a fake wheel with the
# same version and list of kernels; make, the Dockerfile, pip and the engine are real.


def a_wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    info = f"{name}-{version}.dist-info"
    files |= {f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"}
    files |= {f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(path, text)


def cuda_wheels(folder: Path, build: str, archs: str) -> Path:
    """Write wheels of a torch built for CUDA and of numpy, in the versions of the lock file."""
    version = f"{LOCKED['torch']}+{build}"
    kept = {f"torch/{name}": "" for name in ("test/x", "include/x", "bin/torch_shm_manager", "bin/x")}
    flags = f"class _C:\n    _cuda_getArchFlags = staticmethod(lambda: {archs!r})\n"
    a_wheel(folder, "torch", version, {"torch/__init__.py": f"__version__ = {version!r}\n{flags}", **kept})
    a_wheel(folder, "numpy", LOCKED["numpy"], {"numpy/__init__.py": ""})
    return folder


def build(fleet: Fleet, gpu: str, wheels: Path, **further: str) -> subprocess.CompletedProcess[str]:
    """Build for a GPU with the fleet's own engine, on the base in its registry."""
    base = fleet.images["python"].replace(REGISTRY, fleet.registry.address)
    fleet.engine.docker("pull", "--quiet", base)  # the builder itself wants TLS of a registry
    flags = {"PIP_NO_INDEX": "1", "BUILD_FLAGS": "--network=host", "DOCKER": CLIENT, "TAG": f"built:{gpu}", **further}
    return make_image(env=fleet.engine.env, GPU=gpu, BASE=base, WHEELS=wheels, **flags)


def test_a_build_for_pascal_uses_the_torch_that_still_has_its_kernels(fleet: Fleet, tmp_path: Path) -> None:
    wheels = cuda_wheels(tmp_path, "cu126", "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90")
    cuda_wheels(tmp_path, "cu130", "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120")
    built = build(fleet, "p100", wheels)
    assert built.returncode == 0, built.stderr
    labels = config(fleet.engine.docker, "built:p100")["Labels"]
    archs = "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90"
    assert labels == {"rung.gpu": "p100", "rung.torch": f"{LOCKED['torch']}+cu126", "rung.cuda.archs": archs}


def test_a_build_for_ampere_uses_the_current_torch_and_the_packages_of_the_training(
    fleet: Fleet, tmp_path: Path
) -> None:
    cuda_wheels(tmp_path, "cu126", "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90")
    wheels = cuda_wheels(tmp_path, "cu130", "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120")
    for version in ("0.0.1", LOCKED["peft"], "999.0"):
        a_wheel(wheels, "peft", version, {"peft/__init__.py": f"print({version!r})\n"})
    built = build(fleet, "a100", wheels, WITH="peft")
    assert built.returncode == 0, built.stderr
    assert config(fleet.engine.docker, "built:a100")["Labels"]["rung.torch"] == f"{LOCKED['torch']}+cu130"
    output = fleet.engine.docker("run", "--rm", "--network=none", "built:a100", "python", "-c", "import peft")
    assert output == LOCKED["peft"]


def test_a_torch_without_kernels_for_the_gpu_makes_no_image(fleet: Fleet, tmp_path: Path) -> None:
    refused = build(fleet, "titanrtx", cuda_wheels(tmp_path, "cu126", "sm_80 sm_90"))
    assert refused.returncode != 0
    assert "has no kernels for {'sm_75'}, only for ['sm_80', 'sm_90']: give another index" in refused.stderr


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "rung: say for which GPU: make image GPU=p100|titanrtx|a100|cpu BASE=..."),
        ({"GPU": "h100"}, "rung: say for which GPU: make image GPU=p100|titanrtx|a100|cpu BASE=..."),
        ({"GPU": "cpu"}, "rung: name the base by its digest: make image GPU=cpu BASE=name@sha256:... (docs/images.md)"),
        ({"GPU": "cpu", "BASE": "debian:12"}, "rung: name the base by its digest:"),
        (PINNED | {"WITH": "peft peft==1"}, f"{UNKNOWN} peft==1 is none"),
        (PINNED | {"WITH": "--upgrade"}, f"{UNKNOWN} --upgrade is none"),
        (PINNED | {"WITH": "*"}, rf"{UNKNOWN} \* is none"),
    ],
)
def test_an_image_without_a_gpu_a_pinned_base_or_pinned_packages_is_refused(
    settings: dict[str, str], message: str
) -> None:
    refused = make_image(**settings)
    assert (refused.returncode, message in refused.stderr) == (2, True)
