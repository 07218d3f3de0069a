"""Tests zero-edit: scripts of four frameworks that do not know Rung fail and recover.

The bounds are a few per cent above what the same script reaches without the fault: in FP32, with a tenth of the lr, or
with clipping.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

STRANGERS = Path(__file__).parent / "strangers"


@dataclass(frozen=True)
class Case:
    script: str
    # The possible kinds of the fault: which sign appears first in the log depends on how busy the machine is.
    faults: tuple[str, ...]
    rung: str
    effective: dict
    below: float
    checkpoints: str = ""


NAN = ("nan_loss", "divergence", "scale_collapse", "grad_nonfinite")
UNSCALE = ("unscale_error",)
NATIVE = {"precision": "native_fp16"}
QUICK = [
    Case("accelerate_raw_features", NAN, "bf16", {"precision": "bf16"}, 0.61),  # FP32: 0.5810
]
# Jobs of the catalog have the same faults as the first three of these, and always run.
LONG = [
    Case("lightning_half_module", UNSCALE, "native_fp16", NATIVE, 0.0089),  # FP32: 0.0084
    Case("torch_mask", ("fp16_overflow",), "clamp_constants", {"constants": "clamp"}, 0.0005),
    Case("hf_half_model", UNSCALE, "native_fp16", NATIVE, 1.7202),  # FP32: 1.7117
    Case("torch_high_lr", NAN, "lower_lr", {"lr": 0.03}, 0.0125),
    Case("torch_spikes", NAN, "raise_clip", {"clip": 1.0}, 0.005, "step_*.pt"),
    Case("hf_lora", UNSCALE, "native_fp16", NATIVE, 2.4275),  # FP32: 2.4154
    Case("hf_late_nan", NAN, "fp32_modules", {"fp32_modules": "Parity"}, 0.001, "checkpoint-*"),
    Case("accelerate_high_lr", NAN, "lower_lr", {"lr": 0.05}, 0.026),
    Case("accelerate_spikes", NAN, "raise_clip", {"clip": 1.0}, 0.01, "state_*"),
    Case("lightning_log_nan", NAN, "fp32_modules", {"fp32_modules": "loss"}, 0.001, "*.ckpt"),
    Case("lightning_high_lr", NAN, "lower_lr", {"lr": 0.05}, 0.05),
]
# At most one of each framework, each with another rung.
SAMPLE = {"torch_spikes", "accelerate_high_lr", "lightning_half_module"}


def marks(case):
    return [pytest.mark.long, *([pytest.mark.sample] if case.script in SAMPLE else [])]


CASES = [*QUICK, *(pytest.param(case, marks=marks(case)) for case in LONG)]


def stranger(lab, case):
    """Write a job file with only the name of the script and its checkpoints, for the rung that the rules take."""
    spec = {"name": case.script, "run": f"python {case.script}.py", "knobs": {"mode": "zero-edit"}}
    spec |= {"recovery": {"trials": "off"}}
    if case.checkpoints:
        spec |= {"envs": {"OUTPUT_DIR": "{checkpoint_dir}"}, "checkpoint": {"pattern": case.checkpoints}}
    return lab.write(spec, STRANGERS / f"{case.script}.py")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.script)
def test_an_unedited_script_recovers(lab, case):
    assert "rung" not in (STRANGERS / f"{case.script}.py").read_text().lower()
    history = lab.run(stranger(lab, case))
    attempts = history["attempts"]
    log = lab.log(history["job"]["id"], len(attempts))
    assert history["job"]["state"] == "SUCCEEDED", f"{history['job']['reason']}\n{log[-3000:]}"
    assert attempts[0]["fault"]["kind"] in case.faults
    assert [attempt["rung"] for attempt in attempts] == [None, case.rung]
    for knob, value in case.effective.items():
        assert attempts[-1]["asked"][knob] == value and attempts[-1]["effective"][knob] == value
        assert not attempts[-1]["not_taken"]
    assert "rung| note" not in log
    if case.checkpoints:
        assert attempts[-1]["resumed_step"], "it started from scratch although there were healthy checkpoints"
    held_out = float(re.findall(r"held-out loss (\S+)", log)[-1])
    assert held_out < case.below
