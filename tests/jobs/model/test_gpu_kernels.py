"""Tests which builds run on which GPU."""

from __future__ import annotations

import pytest

from rung.jobs.model.gpu import kernels_for

CU126 = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
CURRENT = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120")


@pytest.mark.parametrize(
    ("capability", "archs", "runs"),
    [
        ((6, 0), CU126, True),
        ((6, 1), CU126, True),
        ((6, 0), CURRENT, False),
        ((7, 0), CURRENT, False),
        ((7, 5), CURRENT, True),
        ((8, 0), CURRENT, True),
        ((8, 9), CURRENT, True),
        ((8, 0), ("sm_86",), False),
        ((12, 1), CURRENT, True),
        ((13, 0), CURRENT, True),
        ((9, 0), ("compute_80",), True),
        ((7, 5), ("compute_80",), False),
        ((9, 0), ("sm_90a",), True),
        ((9, 1), ("sm_90a",), False),
        ((10, 0), ("compute_90a",), False),
        ((8, 0), (), False),
        ((8, 0), ("rubbish", "sm_", "sm_8", "xsm_80"), False),
    ],
)
def test_a_kernel_runs_from_its_minor_version_up_and_ptx_on_any_newer_gpu(
    capability: tuple[int, int], archs: tuple[str, ...], runs: bool
) -> None:
    assert kernels_for(capability, archs) is runs
