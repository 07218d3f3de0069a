"""Tests that the doctor finds what is wrong in whole scripts, and reports nothing in those without a fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from rung.recovery.doctor.analysis.script import Script
from rung.recovery.doctor.examine import examine
from rung.recovery.doctor.fp16_reach import says_fp16
from rung.recovery.doctor.rules.rule import LintFinding, Severity

ROOT = Path(__file__).resolve().parents[3]
# The rules that must find the fault of each script.
BLAMED = {
    "jobs/catalog/accuracy-conditioning/train.py": {"relu-into-embedding", "fill-beyond-fp16"},
    "jobs/catalog/audio-lora/train.py": {"half-model-with-scaler"},
    "jobs/catalog/dbnet-ocr/train.py": {"eps-vanishes", "sqrt-without-eps"},
    "jobs/catalog/mmgcn/train.py": {"log-of-sigmoid", "rand-as-parameter"},
    "jobs/catalog/sar-kd/train.py": {"exp-without-clip"},
    "jobs/catalog/three-faults/train.py": {"finfo-of-another-tensor"},
    "tests/flow/strangers/hf_half_model.py": {"half-model-with-scaler"},
    "tests/flow/strangers/hf_late_nan.py": {"eps-vanishes"},
    "tests/flow/strangers/hf_lora.py": {"half-model-with-scaler"},
    "tests/flow/strangers/lightning_half_module.py": {"half-model-with-scaler"},
    "tests/flow/strangers/lightning_log_nan.py": {"eps-vanishes"},
    "tests/flow/strangers/torch_mask.py": {"fill-beyond-fp16"},
    "tests/gauntlet/cases/accelerate_half_adam.py": {"half-model-with-adam"},
    "tests/gauntlet/cases/bce_by_hand.py": {"log-without-eps"},
    "tests/gauntlet/cases/double_unscale.py": {"unscale-twice"},
    "tests/gauntlet/cases/half_params_with_scaler.py": {"half-model-with-scaler"},
    "tests/gauntlet/cases/hf_half_model.py": {"half-model-with-scaler"},
    "tests/gauntlet/cases/hf_mask_constant.py": {"fill-beyond-fp16"},
    "tests/gauntlet/cases/lightning_half_model.py": {"half-model-with-scaler"},
    "tests/gauntlet/cases/log_softmax_by_hand.py": {"log-of-softmax"},
    "tests/gauntlet/cases/lora_on_half_base.py": {"half-model-with-scaler"},
    "tests/gauntlet/cases/mask_constant.py": {"fill-beyond-fp16"},
    "tests/gauntlet/cases/mask_constant_late.py": {"fill-beyond-fp16"},
    "tests/gauntlet/cases/mask_finfo_input.py": {"finfo-of-another-tensor"},
    "tests/gauntlet/cases/mask_finfo_named.py": {"fill-beyond-fp16"},
    "tests/gauntlet/cases/masked_softmax.py": {"exp-without-clip"},
    "tests/gauntlet/cases/native_half_adam.py": {"half-model-with-adam"},
    "tests/gauntlet/cases/softmax_by_hand_exits.py": {"exp-without-clip"},
}
# These fail because of the lr, the data or a sum, which the code alone does not show.
INNOCENT = sorted(
    str(path.relative_to(ROOT))
    for folder in ("tests/flow/strangers", "tests/gauntlet/cases", "jobs/catalog/small-gpt")
    for path in (ROOT / folder).glob("*.py")
    if str(path.relative_to(ROOT)) not in BLAMED
)


def findings(name: str) -> tuple[LintFinding, ...]:
    script = Script((ROOT / name).read_bytes())
    examined = examine(script)
    return examined.in_fp16 if says_fp16(script) else examined.elsewhere


@pytest.mark.parametrize("name", BLAMED)
def test_the_fault_of_a_script_is_found_and_no_other_error(name: str) -> None:
    assert {each.rule for each in findings(name) if each.severity is not Severity.NOTE} == BLAMED[name]


@pytest.mark.parametrize("name", INNOCENT)
def test_a_script_without_a_fault_in_its_code_gets_only_notes(name: str) -> None:
    assert [each for each in findings(name) if each.severity is not Severity.NOTE] == []


def test_the_gradient_of_sqrt_at_zero_is_a_note_in_fp32_too() -> None:
    assert "sqrt-without-eps" in {each.rule for each in findings("tests/gauntlet/cases/sqrt_at_zero.py")}
