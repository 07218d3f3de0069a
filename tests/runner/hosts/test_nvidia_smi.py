"""Tests the parser for nvidia-smi, also with hostile output."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rung.jobs.model.gpu import Gpu
from rung.jobs.model.terminal_text import clean
from rung.runner.hosts.nvidia_smi import GpuUser, driver_branch, parse_gpus, parse_users

TITAN = "0, GPU-5f1c, 24220, 580.65.06, 7.5, NVIDIA TITAN RTX"


def test_a_gpu_is_read_with_all_its_fields() -> None:
    gpus, troubles = parse_gpus(f"{TITAN}\n1, GPU-77aa, 16280, 535.183.01, 6.0, Tesla P100-PCIE-16GB\n")
    assert gpus == (
        Gpu("NVIDIA TITAN RTX", (7, 5), 0, "GPU-5f1c", 24220 << 20, "580.65.06"),
        Gpu("Tesla P100-PCIE-16GB", (6, 0), 1, "GPU-77aa", 16280 << 20, "535.183.01"),
    )
    assert troubles == ()


def test_a_name_may_hold_commas() -> None:
    assert parse_gpus("0, GPU-1, 1, 1.1, 7.5, A, B, C")[0][0].name == "A, B, C"


def test_values_that_the_driver_does_not_know_are_unknown() -> None:
    (gpu,), troubles = parse_gpus("3, GPU-1, [N/A], [Not Supported], 9.0, NVIDIA GH200 480GB")
    assert (gpu.index, gpu.memory, gpu.driver, troubles) == (3, 0, "", ())


@pytest.mark.parametrize(
    "line",
    [
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "No devices were found",
        'Field "compute_cap" is not a valid field to query.',
        "0, GPU-1, 24220, 580.65.06, [N/A], NVIDIA TITAN RTX",
        "[N/A], [GPU is lost], [N/A], 580.65.06, [N/A], [N/A]",
        "Unable to determine the device handle for GPU0000:01:00.0: Unknown Error",
        "0, GPU-1, 24220, 580.65.06, 7.5",
        "0, GPU-1, 24220, 580.65.06, 7.5,",
        "-1, GPU-1, 24220, 580.65.06, 7.5, X",
        "0, MIG-1, 24220, 580.65.06, 7.5, X",
        f"{'9' * 5000}, GPU-1, 24220, 580.65.06, 7.5, X",
        f"0, GPU-1, 1, 1, {'9' * 5000}.0, X",
        "\u0663, GPU-1, 1, 1, \u0667.\u0665, X",
    ],
)
def test_a_line_without_a_gpu_is_reported_and_the_others_are_read(line: str) -> None:
    gpus, troubles = parse_gpus(f"{line}\n{TITAN}\n")
    assert [gpu.uuid for gpu in gpus] == ["GPU-5f1c"]
    assert len(troubles) == 1 and troubles[0].startswith("the GPU driver says: ")
    assert len(troubles[0]) < 300


def test_one_gpu_named_twice_is_one_gpu() -> None:
    gpus, troubles = parse_gpus(f"{TITAN}\n{TITAN}\n")
    assert (len(gpus), len(troubles)) == (1, 1)


def test_control_codes_are_removed() -> None:
    gpus, troubles = parse_gpus("0, GPU-\x1b[31m1, 1, 1, 7.5, \x1b]0;title\x07NVIDIA\x1b[2J H200\n\x1b[31mred\n")
    assert (gpus[0].name, gpus[0].uuid) == ("NVIDIA H200", "GPU-1")
    assert troubles == ("the GPU driver says: red",)


def test_the_processes_on_gpus_are_read() -> None:
    text = "GPU-1, 4711, 1024, python3, --lr 1\nGPU-1, [N/A], [N/A], [Not Found]\nNo running processes found\n\n"
    assert parse_users(text) == (GpuUser("GPU-1", 4711, "python3, --lr 1"), GpuUser("GPU-1", None, "[Not Found]"))


@pytest.mark.parametrize(("driver", "branch"), [("580.65.06", 580), ("470", 470), ("", 0), ("new", 0), ("9" * 99, 0)])
def test_a_drivers_branch_is_its_first_number(driver: str, branch: int) -> None:
    assert driver_branch(driver) == branch


@given(st.text(max_size=400) | st.text(alphabet="0123456789,. GPU-[N/A]\n\x1b\udcff", max_size=400))
@settings(max_examples=200, deadline=None)
def test_no_output_crashes_the_reader(text: str) -> None:
    gpus, troubles = parse_gpus(text)
    shown = [*troubles, *(gpu.name + gpu.uuid for gpu in gpus), *(user.name + user.uuid for user in parse_users(text))]
    assert [clean(words) for words in shown] == shown
