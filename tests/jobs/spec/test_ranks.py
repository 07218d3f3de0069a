"""Tests `ranks`: how many torchrun starts, and which job files are refused, each by one line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rung.jobs.model.errors import SpecError
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.load import parse_spec
from rung.jobs.spec.resources import rank_count

Rung = Callable[..., Any]
VALUES = "ranks: give `gpus`, for one rank on each GPU, or a number of ranks from 1 to 64"
COMMAND = "ranks: the command must be that of one rank, such as `python train.py`; one that starts its ranks itself"


def spec_of(**fields: Any) -> JobSpec:
    return parse_spec(yaml.safe_dump({"name": "a", "run": "python train.py", **fields}).encode())


@pytest.mark.parametrize(
    ("fields", "leased", "ranks"),
    [
        ({}, 0, None),
        ({"resources": {"gpu": "A100:4"}}, 4, None),
        ({"ranks": 2}, 0, 2),
        ({"ranks": "gpus", "resources": {"gpu": ["A100:4", "P100:2"]}}, 2, 2),
        # Before anything is leased, as in a dry run.
        ({"ranks": "gpus", "resources": {"gpu": ["A100:4", "P100:2"]}}, 0, 4),
        ({"ranks": "gpus", "resources": {"gpu": 3}}, 0, 3),
        ({"ranks": 2, "resources": {"gpu": "A100:4"}}, 4, 2),
    ],
)
def test_there_are_as_many_ranks_as_the_job_file_says_or_as_gpus_are_leased(
    fields: dict[str, Any], leased: int, ranks: int | None
) -> None:
    spec = spec_of(**fields)
    assert rank_count(spec.ranks, spec.resources.gpu, leased) == ranks
    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        *(({"ranks": value}, VALUES) for value in (0, -1, 65, 2.0, True, "2", "auto", [2])),
        ({"ranks": "gpus"}, "ranks: `gpus` needs resources.gpu, such as {gpu: A100:4}; give a number"),
        ({"ranks": 3, "resources": {"gpu": "A100:2"}}, r"ranks: 3 are more than its GPUs (2 A100): give `gpus`"),
        ({"ranks": 2, "run": "torchrun --nproc_per_node=2 train.py"}, COMMAND),
        ({"ranks": 2, "run": "python -m torch.distributed.run train.py"}, COMMAND),
        ({"ranks": 2, "run_on_resume": "accelerate launch train.py"}, COMMAND),
    ],
)
def test_a_wrong_value_is_refused_by_one_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)) as refused:
        spec_of(**fields)
    assert len(str(refused.value).splitlines()) == 1 and ": : " not in str(refused.value)


def test_a_job_file_with_wrong_ranks_ends_with_exit_code_2_and_nothing_submitted(rung: Rung, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: a\nrun: python train.py\nranks: none\n")
    done = rung("launch", str(tmp_path / "job.yaml"))
    assert done.code == 2
    assert f"job.yaml:3: {VALUES} (got 'none')" in done.err, done.err
    assert len(done.err.splitlines()) == 1 and "Traceback" not in done.out
    assert not (tmp_path / "home" / "jobs").exists()
