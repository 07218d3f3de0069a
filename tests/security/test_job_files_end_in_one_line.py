"""Tests that whatever a YAML file holds, the answer is one line with file and line, and exit code 2.

In 0.1.0 a long number to the base 60 (`1:59:59:...`) escaped as a ValueError with a traceback.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import InventoryError, SpecError
from rung.jobs.spec.load import parse_spec
from rung.runner.hosts.host_list import parse_hosts
from tests.support.random_inputs import FEW, MANY, each, text

Rung = Callable[..., Any]
HEAD = "name: a\nrun: x\n"
SIXTIES = ":".join(["59"] * 3000)
ODD = {
    "base 60": SIXTIES,
    "base 60, the longest that is read": ":".join(["59"] * 133),
    "base 60 with a fraction": f"{SIXTIES}.5",
    "base 60 with a fraction, beyond a float": ":".join(["1"] * 190) + ".5",
    "hexadecimal": "0x" + "f" * 20_000,
    "binary": "0b" + "1" * 90_000,
    "decimal": "9" * 90_000,
    "float": "1" * 90_000 + ".5",
    "month 99": "2001-99-99",
    "date": "2001-01-01",
    "time zone": "2001-01-01T00:00:00+99:99",
    "last moment": "9999-12-31T23:59:59-23:59",
    "binary text": "!!binary x",
    "set": "!!set x",
    "list that holds itself": "&a [*a]",
    "mapping that holds itself": "&a {a: *a}",
    "deep": "[" * 90_000,
    "deep mappings": "{" * 90_000,
    "object": "!!python/object/apply:os.system [id]",
    "infinity": ".inf",
    "no number": ".nan",
    "a character beyond the last": '"\\U00110000"',
    "a character far beyond the last": '"\\UFFFFFFFF"',
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("field", ["priority", "name", "resources", "knobs", "unknown"])
def test_an_odd_value_is_one_line_with_its_number(kind: str, field: str) -> None:
    began = time.process_time()
    with pytest.raises(SpecError) as raised:
        parse_spec(f"run: x\n{field}: {ODD[kind]}\n".encode())
    assert all(problem.partition(":")[0] in ("1", "2") and "\n" not in problem for problem in raised.value.problems)
    assert all(len(problem) < 500 for problem in raised.value.problems)
    assert time.process_time() - began < 10


@pytest.mark.parametrize("kind", ODD)
def test_an_odd_value_in_the_list_of_hosts_is_one_line_with_its_number(kind: str) -> None:
    for name in ("ansible_port", "ansible_host", "ansible_ssh_common_args", "rung_volume_roots"):
        with pytest.raises(InventoryError) as raised:
            parse_hosts(f"all:\n  hosts:\n    a:\n      {name}: {ODD[kind]}\n".encode())
        assert all(problem.partition(":")[0].isdecimal() and "\n" not in problem for problem in raised.value.problems)


def test_the_command_prints_file_and_line_and_exits_with_2(home: Path, tmp_path: Path, rung: Rung) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(f"{HEAD}resources: {{cpus: {SIXTIES}}}\n", encoding="utf-8")
    for words in (["launch", file], ["launch", "--dryrun", file], ["check", file]):
        ran = rung(*words, env={"RUNG_HOSTS": "/dev/null"})
        assert ran.code == 2
        assert ran.err == f"rung: {file}:3: cannot be read as a value: a number of more than 400 characters\n"


TAGS = ("int", "float", "bool", "null", "timestamp", "binary", "set", "omap", "pairs", "str", "map", "seq", "x")
PIECES = (
    "&a ",
    "*a ",
    "- ",
    ": ",
    "\n",
    "\n ",
    "name: ",
    "run: x\n",
    "<<: ",
    "priority: ",
    *"0123456789abcxTZ+_.:-,[]{}?|>!%@#'\"",
)


def random_text(rng: random.Random) -> str:
    number = text(rng, "0123456789_:.xbeE+-TZ", 30)
    scalar = rng.choice([number, f"!!{rng.choice(TAGS)} {number}", text(rng, PIECES), text(rng)])
    return rng.choice([scalar, f"{HEAD}priority: {scalar}", f"{HEAD}resources: {{cpus: {scalar}}}"])


def ends_in_lines(rng: random.Random) -> None:
    raw = random_text(rng).encode("utf-8", "surrogatepass")
    for read, refusal in ((parse_spec, SpecError), (parse_hosts, InventoryError)):
        try:
            read(raw)
        except refusal as error:
            problems = error.problems  # type: ignore[attr-defined]
            assert problems and all(problem.partition(":")[0].isdecimal() for problem in problems)


@pytest.mark.parametrize("many", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
def test_any_text_is_a_job_or_a_list_of_problems(many: int) -> None:
    each(many, ends_in_lines)
