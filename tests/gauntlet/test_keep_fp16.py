"""Tests that scripts of the gauntlet which fail in FP16 train there as well as in FP32, with the right knob in the job.

The knobs come from a job file, as the controller reads it and hands it to the job.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.spec.load import parse_spec
from tests import pace
from tests.gauntlet.case import Case
from tests.gauntlet.judging import WITHIN, value_in
from tests.gauntlet.scripts import SINGLE

ROOT = Path(__file__).parents[2]
PATHS = f"{ROOT / 'jobs' / 'inside'}{os.pathsep}{ROOT / 'tests' / 'lean'}"
KNOBS = re.compile(r"^rung\| knobs (.*)$", re.MULTILINE)
CLAMP, LOSS = {"constants": "clamp"}, {"fp32_modules": ["loss"]}
QUICK = [
    ("mask_constant", CLAMP),
    ("softmax_by_hand_exits", LOSS),
    ("log_softmax_by_hand", LOSS),
]
LONG = [
    # tests/flow/test_rungs_that_keep_fp16.py always runs this one, through a whole recovery.
    ("layernorm_by_hand", {"fp32_modules": ["Net"]}),
    ("variance_overflow", {"fp32_modules": ["Net"]}),
    ("mask_finfo_input", CLAMP),
    ("mask_finfo_named", CLAMP),
    ("masked_softmax", {"fp32_modules": ["Reader"]}),
    ("bce_by_hand", LOSS),
    ("large_logits", {"fp32_modules": ["Net", "loss"]}),
    ("scale_collapse", {"fp32_modules": ["Net"]}),
    ("forward_overflow_silent", {"fp32_modules": ["Net", "first"]}),
    ("hf_mask_constant", CLAMP),
    ("hf_mask_constant", {"fp32_modules": ["Net"]}),
    ("lightning_sum_overflow", {"fp32_modules": ["Classifier"]}),
]


def run(case: Case, folder: Path, knobs: dict[str, Any], *flags: str) -> str:
    """Run a script to its end with the knobs of a job file, and return its output."""
    folder.mkdir()
    asked = parse_spec(json.dumps({**case.job(1), "knobs": {"mode": "zero-edit", **knobs}}).encode()).knobs.knobs()
    variables = {"PYTHONPATH": PATHS, "RUNG_MODE": "zero-edit", "RUNG_KNOBS": json.dumps(asked.to_dict())}
    done = pace.run(
        [sys.executable, case.script, "--out", "out", *flags],
        env={**os.environ, **variables, "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        usual=120,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return str(done.stdout)


@pytest.mark.parametrize(("name", "knobs"), [*QUICK, *(pytest.param(*each, marks=pytest.mark.long) for each in LONG)])
def test_a_script_that_fails_in_fp16_trains_there_as_in_fp32(name: str, knobs: dict[str, Any], tmp_path: Path) -> None:
    case = next(case for case in SINGLE if case.name == name)
    healthy = value_in(run(case, tmp_path / "healthy", {}, "--fixed"))
    output = run(case, tmp_path / "cured", knobs)
    reached = value_in(output)
    assert healthy is not None and reached is not None and abs(reached / healthy - 1) < WITHIN
    effective = dict(pair.split("=", 1) for pair in KNOBS.findall(output)[-1].split())
    assert effective["precision"] == "amp_fp16"
    assert {key: effective[key] for key in knobs} == {
        key: value if isinstance(value, str) else ",".join(value) for key, value in knobs.items()
    }
    assert " saturated=0" in output if "fp32_modules" in knobs else " clamped=" in output
