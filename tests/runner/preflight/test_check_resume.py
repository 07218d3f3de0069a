"""Tests what `rung check` says about a relaunch: it reads the script, and one that cannot be read is no error."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rung.runner.preflight.check_job import CheckResult
from rung.runner.preflight.check_resume import check_resume
from tests.runner.preflight.test_check_job import findings

SCRIPT = "import torch\ninit_from = 'scratch'\nif init_from == 'resume':\n    torch.load('ckpt.pt')\n"
RESUMES, ANEW = "a relaunch resumes: t.py:4 torch.load()", "a relaunch begins at step 0: t.py:4 torch.load()"


def said(folder: Path, **fields: Any) -> CheckResult:
    (found,) = (each for each in findings(folder, **fields) if each.what.startswith(("a relaunch", "whether a")))
    return found


def test_the_command_of_a_relaunch_decides(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(SCRIPT)
    one_file = {"checkpoint": {"pattern": "ckpt.pt"}, "run": "python t.py"}
    deaf = said(tmp_path, **one_file)
    assert not deaf.good and deaf.what.startswith(ANEW) and "run_on_resume" in deaf.fix
    good = said(tmp_path, **one_file, run_on_resume="python t.py --init_from=resume")
    assert good.good and good.what.startswith(RESUMES)
    assert said(tmp_path).good, "a job that names no checkpoint has none to lose"


def test_a_placeholder_that_is_empty_at_first_counts_as_it_is_in_a_relaunch(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(SCRIPT.replace("init_from == 'resume'", "init_from != 'scratch'"))
    assert said(tmp_path, run="python t.py --init_from {checkpoint}").what.startswith(RESUMES)


@pytest.mark.parametrize("what", ["missing", "pipe", "folder", "syntax", "binary", "huge"])
def test_a_script_that_cannot_be_read_is_not_known(tmp_path: Path, what: str) -> None:
    file = tmp_path / "t.py"
    if what == "pipe":
        os.mkfifo(file)
    elif what == "folder":
        file.mkdir()
    elif what != "missing":
        file.write_bytes({"syntax": b"if:", "binary": b"\xff\0", "huge": b"#" * 2_000_000}[what])
    found = check_resume(["python", "t.py"], tmp_path, "flags")
    assert found.resumes is None and found.why.startswith("t.py cannot be read: ")
    assert check_resume(["./train"], tmp_path, "flags").resumes is None


DRIVEN = {
    "transformers": "from transformers import Seq2SeqTrainer\nSeq2SeqTrainer(args=a).train()\n",
    "trl": "import trl\ntrl.SFTTrainer(model=m).train()\n",
    "lightning": "import lightning as L\nL.Trainer().fit(m)\n",
    "pytorch_lightning": "from pytorch_lightning.cli import LightningCLI\nLightningCLI(M)\n",
}


@pytest.mark.parametrize(("framework", "script"), DRIVEN.items(), ids=DRIVEN)
def test_a_run_that_a_trainer_drives_cannot_be_saved_by_rung(tmp_path: Path, framework: str, script: str) -> None:
    (tmp_path / "t.py").write_text(script)
    fields = {"run": "python t.py", "knobs": {"mode": "zero-edit"}, "checkpoint": {"by": "rung"}}
    (found,) = (each for each in findings(tmp_path, **fields) if each.what.startswith("checkpoint.by"))
    assert not found.good and f"the Trainer of {framework} fetches its batches ahead" in found.what
    assert "let the Trainer save" in found.fix


def test_a_loop_of_its_own_can_be_saved_by_rung_whatever_it_imports(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("import torch\nfrom transformers import AutoModel\nloss.backward()\n")
    own = said(tmp_path, run="python t.py", knobs={"mode": "zero-edit"}, checkpoint={"by": "rung", "every": 7})
    assert own == CheckResult(True, "a relaunch resumes: Rung saves and restores it every 7 updates")
