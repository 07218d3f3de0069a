"""Tests the type of a GPU for each name of a driver."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rung.jobs.model.gpu import Gpu, gpu_type
from rung.jobs.model.host import Host


@pytest.mark.parametrize(
    ("name", "type_name"),
    [
        ("NVIDIA TITAN RTX", "TITANRTX"),
        ("TITAN RTX", "TITANRTX"),
        ("TITAN Xp", "TITANXP"),
        ("NVIDIA TITAN X (Pascal)", "TITANX"),
        ("Tesla P100-PCIE-16GB", "P100"),
        ("Tesla P100-SXM2-16GB", "P100"),
        ("Tesla V100-SXM2-32GB", "V100"),
        ("Tesla T4", "T4"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "A100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 NVL", "H100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA RTX A6000", "A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX6000ADA"),
        ("Quadro RTX 6000", "RTX6000"),
        ("NVIDIA GeForce GTX 1080 Ti", "GTX1080TI"),
        ("NVIDIA GeForce RTX 2080 with Max-Q Design", "RTX2080"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "RTX4090"),
        ("NVIDIA", "GPU"),
        ("", "GPU"),
    ],
)
def test_every_name_of_a_driver_gives_its_gpu_type(name: str, type_name: str) -> None:
    assert gpu_type(name) == type_name == Gpu(name, (7, 5)).type


@given(st.text(max_size=200))
@settings(deadline=None)
def test_the_gpu_type_has_only_letters_and_digits(name: str) -> None:
    assert re.fullmatch(r"[A-Z0-9]{1,32}", gpu_type(name))


@pytest.mark.parametrize(("capability", "fast"), [((6, 0), False), ((6, 1), False), ((7, 0), True), ((9, 0), True)])
def test_gpus_before_volta_have_no_tensor_cores(capability: tuple[int, int], fast: bool) -> None:
    assert Gpu("x", capability).fp16_tensor_cores is fast


def test_a_group_named_after_a_gpu_type_expects_that_gpu_on_its_hosts() -> None:
    host = Host("titan1", "192.0.2.1", groups=("titanrtx", "rack1"))
    assert host.should_have("TITANRTX") and not host.should_have("A100")
