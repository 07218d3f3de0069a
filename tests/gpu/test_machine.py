"""Tests what is asked of a machine before it becomes a host: its programs, devices and libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from rung.jobs.model.gpu import Gpu
from tests.fleet.patience import FleetError
from tests.gpu.driver import find_driver
from tests.gpu.libraries import mapped, names_of
from tests.gpu.programs import check_machine

H200 = Gpu("NVIDIA H200", (9, 0), 0, "GPU-1")


def test_a_missing_program_is_named_with_its_package(
    tmp_path: Path,
) -> None:
    (tmp_path / "runc").touch(mode=0o755)
    with pytest.raises(FleetError) as raised:
        check_machine(search=str(tmp_path))
    said = str(raised.value)
    assert "dockerd (install docker.io" in said and "nvidia-smi (install NVIDIA's driver)" in said
    assert "\n" not in said and "runc (" not in said


def test_the_device_of_a_gpu_has_the_minor_number_that_the_driver_lists(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    folder = tmp_path / "gpus" / "0000:01:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text("Model: \t NVIDIA H200\nGPU UUID: \t GPU-1\nDevice Minor: \t 3\n")
    found = find_driver([H200], tmp_path, information=tmp_path / "gpus")
    assert found.cards == {"GPU-1": str(tmp_path / "nvidia3")}
    assert found.control == [str(tmp_path / "nvidiactl"), str(tmp_path / "nvidia-uvm")]


def test_a_gpu_without_a_device_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FleetError, match="nvidia0 is not there: is the driver of NVIDIA H200 loaded"):
        find_driver([H200], tmp_path)


def test_names_of_gives_every_name_by_which_a_loader_may_look_for_a_library(tmp_path: Path) -> None:
    real = tmp_path / "libx.so.1.2"
    real.touch()
    (tmp_path / "libx.so.1").symlink_to("libx.so.1.2")
    (tmp_path / "libxyz.so.1").touch()
    assert set(names_of(tmp_path / "libx.so.1")) == {real, tmp_path / "libx.so.1"}
    line = f"7f00-7f01 r-xp 00000000 fe:00 123    {real}\n7f02-7f03 rw-p 00000000 00:00 0\n"
    assert mapped(line) == {real}
