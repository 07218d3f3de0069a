"""Tests that roles document their variables, ask Rung the right questions, and confine the service."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ANSIBLE = ROOT / "ansible"
ROLES = sorted(path.name for path in (ANSIBLE / "roles").iterdir())
DIGEST = "@sha256:" + "0" * 64


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def defaults(role: str) -> dict[str, Any]:
    return load(ANSIBLE / "roles" / role / "defaults" / "main.yml")


def rung_filters() -> Any:
    spec = importlib.util.spec_from_file_location("rung_filters", ANSIBLE / "filter_plugins" / "rung.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_of_a_role_has_a_type_and_a_description(role: str) -> None:
    documented = load(ANSIBLE / "roles" / role / "meta" / "argument_specs.yml")["argument_specs"]["main"]["options"]
    assert set(documented) == set(defaults(role))
    assert all(name.startswith(f"{role}_") and fact["description"] for name, fact in documented.items())


def test_every_file_of_defaults_starts_with_a_comment() -> None:
    for role in ROLES:
        text = (ANSIBLE / "roles" / role / "defaults" / "main.yml").read_text()
        assert text.startswith("# "), role


def test_every_gpu_in_the_inventory_has_a_driver_and_a_cuda_version() -> None:
    known = load(ANSIBLE / "group_vars" / "all.yml")
    listed = set(load(ANSIBLE / "inventory" / "hosts.yml")["all"]["children"])
    assert listed == set(known["provision_gpus"]) == {"p100", "titanrtx", "a100"}
    for gpu in known["provision_gpus"].values():
        oldest = [known["provision_cuda"][cuda]["oldest_driver"] for cuda in gpu["cuda"]]
        assert not gpu["newest_driver"] or min(oldest) <= gpu["newest_driver"]
    assert known["provision_gpus"]["p100"] == {"capability": "6.0", "newest_driver": 580, "cuda": ["12"]}


def test_images_come_from_the_list_for_the_gpu_and_from_job_files(tmp_path: Path) -> None:
    job = {"name": "one", "image": {"p100": f"old{DIGEST}", "a100": "new:tag"}, "run": "true"}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job | {"resources": {"gpu": "P100:1"}}))
    (tmp_path / "images.lock").write_text(yaml.safe_dump({"new:tag": f"new{DIGEST}"}))
    images_for = rung_filters().images_for
    files = [str(tmp_path / "job.yaml")]
    assert images_for([f"all{DIGEST}"], files, ["p100"]) == [f"all{DIGEST}", f"old{DIGEST}"]
    assert images_for({"a100": [f"x{DIGEST}"]}, files, ["a100"]) == [f"x{DIGEST}", f"new{DIGEST}"]
    assert images_for({"a100": f"x{DIGEST}"}, [], ["titanrtx"]) == []


def test_has_kernels_compares_the_architectures_of_a_build_with_the_gpu() -> None:
    has_kernels = rung_filters().has_kernels
    assert has_kernels("sm_60 sm_75", "6.0")
    assert not has_kernels("sm_75 sm_80 sm_90", "6.0")


@pytest.mark.parametrize(
    ("there", "after", "judged"),
    [(1000, 1002, "good"), (1009, 1009, "good"), (980, 1000, "20 s behind"), (1310, 1010, "300 s ahead of")],
)
def test_a_clock_is_bad_only_if_the_delay_does_not_explain_the_difference(
    there: int, after: float, judged: str
) -> None:
    (line,) = rung_filters().clock_judged([f"time\t1000\t{there}"], after, 5)
    assert judged in line
    assert line.startswith("good\tclock" if judged == "good" else "bad\tclock")


def test_systemd_accepts_the_service_and_rates_it_as_confined(tmp_path: Path) -> None:
    assert shutil.which("systemd-analyze"), "install systemd"
    program = tmp_path / "venv" / "bin" / "rung"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    template = (ANSIBLE / "roles/controller/templates/rung-controller.service.j2").read_text()
    values = defaults("controller") | {"controller_folder": str(tmp_path), "controller_user": "root"}
    unit = tmp_path / "rung-controller.service"
    unit.write_text(
        jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False).from_string(template).render(values)
    )
    verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert verified.returncode == 0, verified.stderr
    assert "Unknown" not in verified.stderr
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=20", unit]
    rated = subprocess.run(words, capture_output=True, text=True)
    assert rated.returncode == 0, rated.stdout
    assert re.search(r"Overall exposure level", rated.stdout)
