"""Tests that a bad job file of any kind gives clear messages with line numbers, and a good one a spec."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rung.jobs.model.errors import SpecError
from rung.jobs.model.knobs import Precision
from rung.jobs.spec.load import load_spec, parse_spec
from rung.jobs.spec.yaml_reader import MAX_BYTES
from rung.runner.cli.main import main

Rung = Callable[..., Any]
HEAD = "name: a\nrun: x\n"


def bomb() -> str:
    """Return nine levels of nine aliases each: 387 million values in 500 bytes."""
    text = HEAD + "a: &a [x, x, x, x, x, x, x, x, x]\n"
    for upper, lower in zip("bcdefghi", "abcdefgh", strict=True):
        text += f"{upper}: &{upper} [{', '.join(['*' + lower] * 9)}]\n"
    return text


# What is wrong: the file, the line in the message, and a part of the message.
BAD: dict[str, tuple[str | bytes, int, str]] = {
    "empty": ("", 1, "is empty"),
    "only comments": ("# nothing\n\n# here\n", 1, "is empty"),
    "not yaml": ("name: a\nrun: [x\n", 3, "is not YAML"),
    "tabs": ("name: a\n\trun: x\n", 2, "is not YAML"),
    "wrong indent": ("name: a\nrun: x\n  knobs: 3\n", 3, "is not YAML"),
    "two documents": ("name: a\n---\nrun: x\n", 2, "another document"),
    "newer yaml": ("%YAML 9.9\n---\nname: a\n", 1, "is not YAML"),
    "a list": ("- name: a\n", 1, "is a mapping"),
    "a scalar": ("42\n", 1, "is a mapping"),
    "unknown key": (HEAD + "recovry: {}\n", 3, "recovry: unknown key; did you mean 'recovery'?"),
    "unknown nested key": (HEAD + "knobs:\n  clip: 1\n  l_r: 1\n", 5, "knobs.l_r: unknown key; did you mean 'lr'?"),
    "unknown deep key": (HEAD + "recovery:\n  rules:\n  - {nam: x}\n", 5, "recovery.rules[0].nam: unknown key"),
    "key like nothing": (HEAD + "zzz: 1\n", 3, "known here: name, run, run_on_resume, image"),
    "no name": ("run: x\n", 1, "name: is missing"),
    "no run": ("name: a\n", 1, "run: is missing"),
    "name of wrong type": ("name: 3\nrun: x\n", 1, "name: input should be a valid string"),
    "empty name": ("name: ''\nrun: x\n", 1, "name: string should have at least 1 character"),
    "long name": (f"name: {'x' * 101}\nrun: x\n", 1, "at most 100 characters"),
    "control characters in name": ('name: "a\\x07"\nrun: x\n', 1, "no control characters"),
    "terminal codes in name": ('name: "a\\x9b31m"\nrun: x\n', 1, "no control characters"),
    "half a character": ('name: "\\ud800"\nrun: x\n', 1, "a lone surrogate"),
    "null section": (HEAD + "knobs: null\n", 3, "knobs: input should be a mapping"),
    "negative lr": (HEAD + "knobs:\n  lr: -0.1\n", 4, "knobs.lr: input should be greater than 0 (got -0.1)"),
    "zero lr": (HEAD + "knobs: {lr: 0}\n", 3, "greater than 0"),
    "nan lr": (HEAD + "knobs: {lr: .nan}\n", 3, "knobs.lr: input should be"),
    "inf lr": (HEAD + "knobs: {lr: .inf}\n", 3, "finite"),
    "bool lr": (HEAD + "knobs: {lr: yes}\n", 3, "give a number, not a yes or no"),
    "lr in words": (HEAD + "knobs: {lr: small}\n", 3, "unable to parse string as a number"),
    "date as lr": (HEAD + "knobs: {lr: 2024-01-01}\n", 3, "valid number"),
    "impossible date": (HEAD + "knobs: {lr: 2024-99-99}\n", 3, "does not fit timestamp"),
    "bool clip": (HEAD + "knobs: {clip: on}\n", 3, "give a number, not a yes or no"),
    "unknown precision": (HEAD + "knobs: {precision: fp8}\n", 3, "'amp_fp16', 'native_fp16', 'bf16' or 'fp32'"),
    "unknown precision text": (HEAD + "knobs: {precision_text: {fp8: x}}\n", 3, "'amp_fp16'"),
    "fraction of a batch": (HEAD + "knobs: {batch: 1.5}\n", 3, "valid integer"),
    "huge integer": (HEAD + f"knobs: {{batch: {'9' * 400}}}\n", 3, "less than or equal"),
    "huger integer": (HEAD + f"knobs: {{batch: {'9' * 5000}}}\n", 3, "a number of more than 400"),
    "huge integer as lr": (HEAD + f"knobs: {{lr: {'9' * 400}}}\n", 3, "valid number"),
    "empty integer": (HEAD + "knobs: {batch: !!int ''}\n", 3, "does not fit int"),
    "no bool": (HEAD + "knobs: {lr: !!bool maybe}\n", 3, "does not fit bool"),
    "no timestamp": (HEAD + "knobs: {lr: !!timestamp x}\n", 3, "does not fit timestamp"),
    "rung saves without zero-edit": (
        HEAD + "checkpoint: {by: rung}\n",
        1,
        "rung needs knobs.mode zero-edit, and it is flags",
    ),
    "rung saves under another name": (
        HEAD + "knobs: {mode: zero-edit}\ncheckpoint: {by: rung, pattern: ckpt.pt}\n",
        4,
        "leave pattern out, or by: rung",
    ),
    "rung never saves": (
        HEAD + "knobs: {mode: zero-edit}\ncheckpoint: {by: rung, every: 0}\n",
        4,
        "checkpoint.every: input should be greater than or equal to 1",
    ),
    "script loads what rung saves": (
        "name: x\nrun: train {checkpoint}\nknobs: {mode: zero-edit}\ncheckpoint: {by: rung}\n",
        1,
        "leave {checkpoint} out",
    ),
    "unknown rung": (HEAD + "recovery:\n  ladder: [fp32, fp64]\n", 4, "recovery.ladder[1]: input should be"),
    "rung twice": (HEAD + "recovery: {ladder: [fp32, fp32]}\n", 3, "once"),
    "rung of wrong type": (HEAD + "recovery: {ladder: [7]}\n", 3, "recovery.ladder[0]"),
    "rung with wrong value": (HEAD + "recovery: {ladder: [{lower_lr: [-1]}]}\n", 3, "greater than 0"),
    "ladder of wrong type": (
        HEAD + "recovery: {ladder: fp32}\n",
        3,
        "recovery.ladder: give a list of rungs, or the word auto",
    ),
    "ladder of nothing": (HEAD + "recovery:\n  ladder:\n", 4, "or the word auto"),
    "step back in words": (HEAD + "recovery: {step_back: soon}\n", 3, "write `after 2000 clean steps`"),
    "step back at once": (HEAD + "recovery: {step_back: 0}\n", 3, "greater than or equal to 1"),
    "step back yes": (HEAD + "recovery: {step_back: yes}\n", 3, "give a number, not a yes or no"),
    "no attempts": (HEAD + "recovery: {max_attempts: 0}\n", 3, "greater than or equal to 1"),
    "rule that looks ahead": (
        HEAD + "recovery:\n  rules: [{name: x, pattern: '(?=x)y', fault: oom}]\n",
        4,
        "invalid perl operator: (?=",
    ),
    "bad rule": (
        HEAD + "recovery:\n  rules: [{name: x, pattern: '(', fault: oom}]\n",
        4,
        "rule 'x': not a regular expression",
    ),
    "rule of nothing": (
        HEAD + "recovery: {rules: [{name: x, pattern: y}]}\n",
        3,
        "rule 'x': give exactly one of fault",
    ),
    "rule of no fault": (HEAD + "recovery: {rules: [{name: x, pattern: y, fault: z}]}\n", 3, "'nan_loss'"),
    "endless rule": (HEAD + f"recovery: {{rules: [{{name: x, pattern: {'y' * 501}, fault: oom}}]}}\n", 3, "500"),
    "unknown placeholder": ("name: a\nrun: x {rl}\n", 2, "unknown placeholder {rl}"),
    "placeholder in envs": (HEAD + "envs: {A: '{nope}'}\n", 3, "unknown placeholder {nope}"),
    "unbalanced quotes": ("name: a\nrun: x 'y\n", 2, "No closing quotation"),
    "shell operators": ("name: a\nrun: x && y\n", 2, "no shell reads this"),
    "several lines": ("name: a\nrun: |\n  x\n  y\n", 2, "no shell reads this, so a line break"),
    "empty command": ("name: a\nrun: '  '\n", 2, "the command is empty"),
    "command of numbers": ("name: a\nrun: [x, 3]\n", 2, "run[1]: input should be a valid string"),
    "command as a mapping": ("name: a\nrun: {x: y}\n", 2, "should be a list"),
    "nul in command": ('name: a\nrun: ["x\\0"]\n', 2, "NUL"),
    "duplicate key": (HEAD + "name: b\n", 3, "name: given twice"),
    "duplicate nested key": (HEAD + "knobs:\n  lr: 1\n  lr: 2\n", 5, "knobs.lr: given twice"),
    "number as a key": (HEAD + "1: x\n", 3, "a key must be plain text"),
    "list as a key": (HEAD + "? [a]\n: x\n", 3, "a key must be plain text"),
    "terminal codes as a key": (HEAD + '"\\e[31m": x\n', 3, "a key must be plain text"),
    "merge key": (HEAD + "<<: {image: x}\n", 3, "merge"),
    "binary": (b"\x7fELF\x02\x01\x01\x00\xff\xfe", 1, "is not UTF-8"),
    "invalid utf-8": (b"name: a\nrun: \xff\n", 2, "is not UTF-8"),
    "nul bytes": (b"name: a\nrun: \0\n", 1, "special characters are not allowed"),
    "too large": ("# " + "x" * MAX_BYTES, 1, "is no job file"),
    "too deep": (HEAD + "a: " + "[" * 60 + "]" * 60 + "\n", 3, "too deeply nested"),
    "far too deep": (HEAD + "a: " + "[" * 1500 + "\n", 3, "too deeply nested"),
    "bomb of aliases": (bomb(), 3, "aliases count each time"),
    "recursive alias": (HEAD + "a: &a [*a]\n", 3, "aliases count each time"),
    "unknown alias": (HEAD + "a: *b\n", 3, "undefined alias"),
    "python tag on a scalar": (HEAD + "workdir: !!python/name:os.system\n", 3, "python/name"),
    "python tag on a list": ("name: a\nrun: !!python/object/apply:os.system [x]\n", 2, "has no meaning here"),
    "python tag on a mapping": (HEAD + "knobs: !!python/object:x.Y {lr: 1}\n", 3, "has no meaning here"),
    "image without digest": (HEAD + "image: pytorch:latest\n", 3, "pin the image by digest"),
    "image map without digest": (HEAD + "image: {p100: pytorch:latest}\n", 3, "pin the image by digest"),
    "env name with spaces": (HEAD + "envs: {A B: x}\n", 3, "envs.A B: string should match"),
    "env of several lines": (HEAD + 'envs: {A: "x\\ny"}\n', 3, "no control characters"),
    "secret with its value": (HEAD + "secrets: [TOKEN=abc]\n", 3, "string should match"),
    "pattern with a slash": (HEAD + "checkpoint: {pattern: 'a/*.pt'}\n", 3, "no slash"),
    "hidden file": (HEAD + "checkpoint: {pattern: .last.pt}\n", 3, "the plain name of the file"),
    "version as a file": (HEAD + "checkpoint: {pattern: a.rung-1.pt}\n", 3, "the plain name of the file"),
    "choice of files": (HEAD + "checkpoint: {pattern: 'last.p[t]'}\n", 3, "the plain name of the file"),
    "too few versions": (HEAD + "checkpoint: {pattern: last.pt, keep: 1}\n", 3, "greater than or equal to 4"),
    "knob lost at a resume": (
        "name: a\nrun: x {lr} {clip}\nrun_on_resume: x {lr} --resume\n",
        1,
        "run_on_resume: {clip} is in run and not here",
    ),
    "unknown placeholder at a resume": ("name: a\nrun: x\nrun_on_resume: x {zz}\n", 3, "unknown placeholder {zz}"),
    "shell at a resume": ("name: a\nrun: x\nrun_on_resume: x && y\n", 3, "no shell reads this"),
    "pattern with two stars": (HEAD + "checkpoint: {pattern: '**.pt'}\n", 3, "one * where the step stands"),
    "success with both bounds": (HEAD + "success: {metric: x, below: 1, above: 2}\n", 3, "either below or above"),
    "success without bound": (HEAD + "success: {metric: x}\n", 3, "either below or above"),
    "success never to be had": (HEAD + "success: {metric: x, below: .nan}\n", 3, "finite"),
    "success without end": (HEAD + "success: {metric: x, above: -.inf}\n", 3, "finite"),
    "no size": (HEAD + "resources: {memory: lots}\n", 3, "16g or 512m"),
    "no memory": (HEAD + "resources: {memory: 0g}\n", 3, "16g or 512m"),
    "no cpus": (HEAD + "resources: {cpus: 0}\n", 3, "greater than or equal to 1"),
    "unknown mode": (HEAD + "knobs: {mode: magic}\n", 3, "'flags', 'inside' or 'zero-edit'"),
}
everyone = pytest.mark.parametrize("kind", BAD)


def write(folder: Path, kind: str) -> Path:
    content = BAD[kind][0]
    path = folder / "job.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@everyone
def test_a_bad_file_is_refused_with_its_line(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path, kind)
    with pytest.raises(SpecError) as raised:
        load_spec(path)
    _, line, words = BAD[kind]
    matching = [problem for problem in raised.value.problems if words in problem]
    assert len(matching) == 1, raised.value.problems
    assert matching[0].startswith(f"{path}:{line}: ")


@everyone
def test_the_command_line_refuses_a_bad_file_in_clear_lines_and_writes_nothing(
    kind: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, kind)
    monkeypatch.setattr(sys, "argv", ["rung", "launch", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    captured = capsys.readouterr()
    assert ended.value.code == 2
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert lines
    assert all(line.startswith(f"rung: {path}:") and line.isprintable() for line in lines)
    assert BAD[kind][2] in captured.err
    assert not home.exists()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("empty", ["launch"]),
        ("unknown nested key", ["launch", "-f", "--json"]),
        ("bomb of aliases", ["launch", "--dryrun"]),
        ("python tag on a list", ["launch"]),
        ("binary", ["check"]),
    ],
)
def test_the_installed_command_refuses_a_bad_file_too(
    kind: str, words: list[str], home: Path, tmp_path: Path, rung: Rung
) -> None:
    path = write(tmp_path, kind)
    ran = rung(*words, path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"rung: {path}:{BAD[kind][1]}: ")
    assert "Traceback" not in ran.err
    assert not home.exists()


def test_more_than_twenty_five_kinds_of_bad_files_are_tested() -> None:
    assert len(BAD) > 25


def test_a_python_tag_runs_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    for tag in ("!!python/object/apply:os.mkdir", "!!python/object/new:os.mkdir", "!!python/object/apply:os.system"):
        with pytest.raises(SpecError):
            parse_spec(f"name: a\nrun: {tag} ['{mark}']\nworkdir: {tag} ['{mark}']\n".encode())
    assert not mark.exists()


def test_all_problems_of_a_file_are_reported_at_once_in_order() -> None:
    text = "\n".join(
        [
            "nam: a",  # 1, and name is missing
            "run: x {rl}",
            "knobs:",
            "  lr: -1",
            "  lr: 2",
            "  precison: fp32",
            "",
            "checkpoint:",
            "  every: 0",
            "recovery:",
            "  rules:",
            "  - name: mine",
            "    pattern: '['",
            "    fault: bad_luck",
        ]
    )
    with pytest.raises(SpecError) as raised:
        parse_spec(text.encode())
    located = [problem.split(":")[:2] for problem in raised.value.problems]
    assert [(int(line), what.strip()) for line, what in located] == [
        (1, "nam"),
        (1, "name"),
        (2, "run"),
        (4, "knobs.lr"),
        (5, "knobs.lr"),
        (6, "knobs.precison"),
        (9, "checkpoint.every"),
        (13, "recovery.rules[0].pattern"),
        (14, "recovery.rules[0].fault"),
    ]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_line_numbers_are_right_with_both_line_endings_and_a_byte_order_mark(ending: str) -> None:
    raw = b"\xef\xbb\xbf" + ending.join(["name: a", "# a comment", "run: x", "knob: 1"]).encode()
    with pytest.raises(SpecError, match=r"^4: knob: unknown key"):
        parse_spec(raw)


def test_nine_thousand_problems_do_not_take_quadratic_time() -> None:
    began = time.process_time()
    with pytest.raises(SpecError) as raised:
        parse_spec(f"name: a\nrun: [{','.join('1' * 9000)}]".encode())
    assert len(raised.value.problems) == 9000
    # A search through all lines for each problem took 16 s; a search upwards from its line takes half a second.
    assert time.process_time() - began < 8


def test_the_largest_file_is_read_in_little_time() -> None:
    began = time.process_time()
    with pytest.raises(SpecError):
        parse_spec((HEAD + "- a\n" * ((MAX_BYTES - len(HEAD)) // 4)).encode())
    with pytest.raises(SpecError, match="too many"):
        parse_spec((HEAD + "a: [" + "1, " * 30_000 + "]").encode())
    assert time.process_time() - began < 20


@given(st.binary(max_size=300) | st.text(alphabet="name: run&*!{}[]'\"|\n -#%@`<>?,\\ud800x1e.:", max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_bytes_give_a_spec_or_a_list_of_problems(raw: bytes | str) -> None:
    try:
        made = parse_spec(raw if isinstance(raw, bytes) else raw.encode())
    except SpecError as error:
        assert error.problems
        assert all(problem.partition(":")[0].isdigit() for problem in error.problems)
    else:
        assert made.name


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.dates()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
SECTIONS = ("name", "run", "image", "resources", "envs", "secrets", "volumes", "knobs", "checkpoint", "success",
            "recovery")  # fmt: skip


@given(st.dictionaries(st.sampled_from(SECTIONS), values, max_size=4))
@settings(max_examples=200, deadline=None)
def test_any_value_under_a_known_key_gives_a_spec_or_a_list_of_problems(data: dict[str, Any]) -> None:
    import yaml

    try:
        made = parse_spec(yaml.safe_dump(data, allow_unicode=True).encode("utf-8", "surrogatepass"))
    except SpecError as error:
        assert error.problems
    else:
        assert made.run


@pytest.mark.parametrize(
    ("name", "words"),
    [("missing.yaml", "No such file or directory"), (".", "Is a directory"), ("a" * 300, "File name too long")],
)
def test_a_path_that_cannot_be_read_is_reported(name: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=f"cannot be read: {words}; give the path of a job file"):
        load_spec(tmp_path / name)


def test_a_path_that_is_not_text_is_reported(rung: Rung, tmp_path: Path) -> None:
    ran = rung("launch", os.fsdecode(os.fsencode(tmp_path) + b"/\xff\x1b[31m.yaml"))
    assert ran.code == 2
    assert "No such file" in ran.err
    assert "Traceback" not in ran.err
    assert "\x1b" not in ran.err


GOOD = """
name: mmgcn
image: {p100: "r/a@sha256:%(digest)s", a100: "r/b@sha256:%(digest)s"}
resources: {gpu: TITANRTX:1, memory: 16g, cpus: 2}
envs: {WANDB_MODE: offline, LR: "{lr}"}
secrets: [HF_TOKEN]
volumes: ["/data/mmgcn:/ckpt"]
run: python train.py --lr {lr} --clip {clip} --resume {checkpoint}
knobs: {lr: 1e-3, clip: off, growth_interval: 1000, precision: bf16, precision_text: {bf16: bfloat16}}
checkpoint: {dir: /ckpt, pattern: "step_*.pt", every: 500}
success: {metric: val_loss, below: 2}
recovery:
  ladder: [{raise_clip: [10.0, 1.0]}, lower_lr, fp32]
  max_attempts: 3
  rules: [{name: our own, pattern: "lost .* batch", fault: nan_loss}]
"""


def test_a_good_file_becomes_a_spec_with_its_values() -> None:
    made = parse_spec((GOOD % {"digest": "0" * 64}).encode())
    knobs = made.knobs.knobs()
    assert (knobs.lr, knobs.clip, knobs.growth_interval, knobs.precision) == (1e-3, None, 1000, Precision.BF16)
    assert made.run[-2:] == ("--resume", "{checkpoint}")
    assert made.image == {"p100": f"r/a@sha256:{'0' * 64}", "a100": f"r/b@sha256:{'0' * 64}"}
    assert [request.text for request in made.resources.gpu] == ["a TITANRTX"]
    assert made.success is not None and made.success.below == 2.0
    assert made.recovery.rungs[0].values == (10.0, 1.0)
    assert made.recovery.max_attempts == 3
    assert made.knobs.precision_text == {Precision.BF16: "bfloat16"}


def test_a_few_anchors_are_allowed() -> None:
    made = parse_spec(b"name: &n again\nrun: [*n, *n]\n")
    assert made.run == ("again", "again")
