"""Tests what the code of a script tells about a relaunch: whether its command makes the script load a checkpoint."""

from __future__ import annotations

import pytest

from rung.recovery.doctor.analysis.script import Script
from rung.recovery.doctor.resume_code import Outlook, options_in, outlook

ONE_FILE = """
import torch
init_from = 'scratch'
exec(open('configurator.py').read())
if init_from == 'scratch':
    pass
elif init_from == 'resume':
    checkpoint = torch.load('out/ckpt.pt')
"""
FLAG = """
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument('--resume', default='', type=str)
parser.add_argument('--warm-start', action='store_true')
def restore(path):
    return torch.load(path)
def main():
    args = parser.parse_args()
    resume = args.resume
    if resume:
        restore(resume)
main()
"""
BY_ITSELF = """
import glob, torch
found = glob.glob('out/*.pt')
newest = sorted(found)[-1:]
if newest:
    torch.load(newest[0])
"""


def look(code: str, *words: str, mode: str = "flags", config: str | None = None) -> Outlook:
    configs = [Script(config.encode())] if config is not None else []
    return outlook(Script(code.encode()), ["python", "train.py", *words], mode, configs)


@pytest.mark.parametrize(
    ("code", "words", "resumes"),
    [
        (ONE_FILE, (), False),
        (ONE_FILE, ("--init_from=resume",), True),
        (ONE_FILE, ("--init_from=gpt2",), False),
        (FLAG, (), False),
        (FLAG, ("--resume", "/a/b.pt"), True),
        (FLAG, ("--resume=/a/b.pt",), True),
        (BY_ITSELF, (), True),
        (FLAG.replace("if resume:", "if args.warm_start:"), (), False),
        (FLAG.replace("if resume:", "if args.warm_start:"), ("--warm-start",), True),
        (FLAG.replace("if resume:", "if resume is not None and args.warm_start:"), ("--warm-start",), True),
        (FLAG.replace("if resume:", "if not args.warm_start:"), (), True),
        (FLAG.replace("if resume:", "if read_settings().resume_it:"), ("--resume", "x"), None),
        ("import torch\nloss.backward()\n", (), None),
        ("import torch\nweights = torch.load('pretrained.pt')\n", (), None),
        ("import json, torch\nif resume:\n    json.load(file)\n", (), None),
    ],
)
def test_the_ifs_around_a_load_and_the_command_tell(code: str, words: tuple[str, ...], resumes: bool | None) -> None:
    assert look(code, *words).resumes is resumes


def test_the_reason_names_the_line_and_the_condition() -> None:
    found = look(ONE_FILE)
    assert found.why.startswith("train.py:8 torch.load() is called only if init_from == 'resume'")
    assert "in train.py; what it imports was not read" in look("import torch\n").why


def test_a_config_file_counts_where_it_can_be_read() -> None:
    assert look(ONE_FILE, "config/small.py", config="init_from = 'resume'\n").resumes is True
    assert look(ONE_FILE, "config/small.py", config="batch = 3\n").resumes is False
    assert look(ONE_FILE, "--config", "small.yaml").resumes is None, "it may say anything"


def test_zero_edit_and_rung_inside_resume_by_themselves() -> None:
    trainer = "import torch\nfrom transformers import Trainer\nTrainer(model).train()\n"
    assert look(trainer, mode="zero-edit").resumes is True and look(trainer).resumes is None
    cooperates = "import rung_inside\nrun = rung_inside.attach(model, optimizer)\nrun.resume()\n"
    assert look(cooperates, mode="inside").resumes is True


def test_options_are_found_however_they_are_written() -> None:
    words = [
        "python",
        "t.py",
        "--init-from=resume",
        "--out",
        "x",
        "--flag",
        "--last",
        "model.lr=3",
        "+trainer.ckpt=a=b",
    ]
    given = {"init_from": "resume", "out": "x", "flag": "true", "last": "model.lr=3", "lr": "3", "ckpt": "a=b"}
    assert options_in(words) == given
