"""A home with a job that really failed once and was recovered: a script that needs no torch, and a real controller."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests import pace

BIN = Path(sys.executable).parent
# Its loss is NaN at step 30, unless its lr is low. It saves no checkpoint.
SCRIPT = """
import sys
lr = float(sys.argv[1])
for step in range(1, 61):
    loss = 'nan' if lr > 0.01 and step == 30 else f'{2 / (1 + step * 0.05):.4f}'
    print(f'step {step} loss {loss} lr {lr}', flush=True)
    if loss == 'nan':
        sys.exit(1)
"""
JOB = """
name: fallen
run: python train.py {lr}
knobs: {lr: 0.1}
recovery: {trials: off, ladder: [lower_lr]}
"""


def recovered_job(folder: Path) -> Path:
    """Run the job to its end in this folder; return the home."""
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    (folder / "job.yaml").write_text(JOB, encoding="utf-8")
    home = folder / "home"
    for words in (["launch", str(folder / "job.yaml")], ["controller", "--until-idle"]):
        done = pace.run(
            [str(BIN / "rung"), *words],
            env={**os.environ, "RUNG_HOME": str(home)},
            capture_output=True,
            text=True,
            usual=120,
            progress=lambda: pace.newest_change(home),
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return home
