"""Owns the proof of zero-edit: scripts that know nothing of Rung, of four frameworks, fail for real and recover.

The bounds are a few per cent above what the same script reaches where the fault is not: in FP32, with the lr of one
order below, or with clipping.
"""

import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

STRANGERS = Path(__file__).parent / "strangers"


@dataclass(frozen=True)
class Case:
    script: str
    fault: str
    rung: str
    effective: dict
    below: float
    relaunches: int = 1
    checkpoints: dict = field(default_factory=dict)


QUICK = [
    Case("torch_mask", "fp16_overflow", "fp32", {"precision": "fp32"}, 0.002),
    Case("hf_half_model", "unscale_error", "native_fp16", {"precision": "native_fp16"}, 0.9),
    Case("accelerate_raw_features", "nan_loss", "fp32", {"precision": "fp32"}, 0.1),
    Case("lightning_half_module", "unscale_error", "native_fp16", {"precision": "native_fp16"}, 0.1),
]
LONG = [
    Case("torch_high_lr", "nan_loss", "lower_lr", {"lr": 0.03}, 0.02),
    Case("torch_spikes", "nan_loss", "raise_clip", {"clip": 1.0}, 0.05, checkpoints={"pattern": "step_*.pt"}),
    Case("hf_lora", "unscale_error", "native_fp16", {"precision": "native_fp16"}, 2.5),
    Case("hf_late_nan", "nan_loss", "fp32", {"precision": "fp32"}, 0.1, checkpoints={"pattern": "checkpoint-*"}),
    Case("accelerate_high_lr", "nan_loss", "lower_lr", {"lr": 0.05}, 0.05),
    Case("accelerate_spikes", "divergence", "raise_clip", {"clip": 1.0}, 0.05, checkpoints={"pattern": "state_*"}),
    Case("lightning_log_nan", "nan_loss", "fp32", {"precision": "fp32"}, 0.01, checkpoints={"pattern": "*.ckpt"}),
    Case("lightning_high_lr", "nan_loss", "lower_lr", {"lr": 0.05}, 0.1),
]
CASES = [*QUICK, *(pytest.param(case, marks=pytest.mark.long) for case in LONG)]


def stranger(lab, case):
    """Write the job file that a person would write who knows the script's name and where it saves."""
    shutil.copy(STRANGERS / f"{case.script}.py", lab.folder)
    spec = {"name": case.script, "run": f"python {case.script}.py", "knobs": {"mode": "zero-edit"}}
    if case.checkpoints:
        spec |= {"envs": {"OUTPUT_DIR": "{checkpoint_dir}"}, "checkpoint": case.checkpoints}
    return lab.write(spec, STRANGERS / f"{case.script}.py")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.script)
def test_a_script_that_nobody_edited_recovers(lab, case):
    assert "rung" not in (STRANGERS / f"{case.script}.py").read_text().lower()
    story = lab.run(stranger(lab, case))
    attempts = story["attempts"]
    log = lab.log(story["job"]["id"], len(attempts))
    assert story["job"]["state"] == "SUCCEEDED", f"{story['job']['reason']}\n{log[-3000:]}"
    assert attempts[0]["fault"]["kind"] == case.fault
    assert attempts[-1]["rung"] == case.rung and len(attempts) - 1 <= case.relaunches
    for knob, value in case.effective.items():
        assert attempts[-1]["asked"][knob] == value and attempts[-1]["effective"][knob] == value
        assert not attempts[-1]["not_taken"]
    assert "rung| note" not in log
    if case.checkpoints:
        assert attempts[-1]["resumed_step"], "it began anew although there were healthy checkpoints"
    held_out = float(re.findall(r"held-out loss (\S+)", log)[-1])
    assert held_out < case.below
