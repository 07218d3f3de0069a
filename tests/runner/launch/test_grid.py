"""Tests the grid of a launch: what can be a key, the names, and that nothing is made when one job is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rung.jobs.model.errors import SpecError, UsageError
from rung.runner.launch.grid import MOST_JOBS, Combination, load_grid, parse_grid
from rung.runner.state.store import Store

RUN = "python train.py --lr {lr} --seed {seed} --note 'seed {seed} of {{all}}'"


def write(folder: Path, **fields: Any) -> Path:
    file = folder / "gpt.yaml"
    file.write_text(yaml.safe_dump({"name": "gpt", "run": RUN, "knobs": {"lr": 1e-3}, **fields}), encoding="utf-8")
    return file


def jobs(file: Path, *grid: str) -> list[Combination]:
    return load_grid(file, parse_grid(grid))


def test_there_is_a_job_for_each_combination_whose_name_says_it(tmp_path: Path) -> None:
    found = jobs(write(tmp_path), "lr=1e-3,3e-4", "seed=1,2,3")
    assert [each.spec.name for each in found] == [
        f"gpt lr={lr} seed={seed}" for lr in ("1e-3", "3e-4") for seed in "123"
    ]
    assert [each.spec.knobs.lr for each in found] == [1e-3] * 3 + [3e-4] * 3
    assert found[-1].settings == {"lr": "3e-4", "seed": "3"}


def test_a_placeholder_of_ones_own_is_filled_and_stays_one_word(tmp_path: Path) -> None:
    (job,) = jobs(write(tmp_path, envs={"SEED": "s{seed}"}), "seed=a b; {lr}")
    assert job.spec.run[4:] == ("--seed", "a b; {{lr}}", "--note", "seed a b; {{lr}} of {{all}}")
    assert job.spec.envs == {"SEED": "sa b; {{lr}}"}


@pytest.mark.parametrize(
    ("grid", "field", "values"),
    [
        ("knobs.lr=0.1,0.2", lambda spec: spec.knobs.lr, [0.1, 0.2]),
        ("envs.WORKERS=2,4", lambda spec: spec.envs["WORKERS"], ["2", "4"]),
        ("recovery.max_attempts=3,5", lambda spec: spec.recovery.max_attempts, [3, 5]),
        ("checkpoint.every=10", lambda spec: spec.checkpoint.every, [10]),
    ],
)
def test_a_key_can_be_any_field_of_the_job_file(
    tmp_path: Path, grid: str, field: Callable[[Any], Any], values: list[Any]
) -> None:
    assert [field(each.spec) for each in jobs(write(tmp_path), "seed=1", grid)] == values


@pytest.mark.parametrize(
    ("grid", "reason"),
    [
        ("foo=1", "--grid foo: the job cannot take it: no knob and no field of the job file, and no {foo} in run"),
        ("clip=1,2", "--grid clip: the job cannot receive clip"),
        ("name=x", "--grid name: the names say the combination"),
        ("lr=", "--grid lr=: write a key and its values"),
        ("lr=1,,2", "--grid lr=1,,2: write a key and its values"),
        ("lr", "--grid lr: write a key and its values"),
        ("lr=1,1", "each value may be there once"),
        ("seed=2", "--grid seed: given twice"),
        ("envs..X=2", "--grid envs..X: the job cannot take it"),
        ("run.x=2", "--grid run.x: run has no keys in the job file"),
        ("lr=" + ",".join(map(str, range(1, 302))), f"--grid: 301 combinations; at most {MOST_JOBS} can be launched"),
    ],
)
def test_a_key_that_the_job_cannot_take_is_refused_in_one_line(tmp_path: Path, grid: str, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        jobs(write(tmp_path), "seed=1", grid)
    assert str(refused.value).startswith(reason) or reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_value_that_the_job_file_refuses_names_its_combination(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"gpt\.yaml:\d+: knobs\.lr: .* \(with seed=1 lr=fast\)"):
        jobs(write(tmp_path), "seed=1", "lr=fast")


def test_names_stay_within_their_limit(tmp_path: Path) -> None:
    (job,) = jobs(write(tmp_path, name="n" * 90), "envs.A_LONG_NAME=value", "seed=1234567")
    assert len(job.spec.name) == 100 and job.spec.name.endswith("n A_LONG_NAME=value seed=1234567")


def test_nothing_is_made_where_one_of_the_jobs_is_refused(run_rung: Callable[..., Any], tmp_path: Path) -> None:
    code, _, err = run_rung("launch", write(tmp_path), "--grid", "seed=1", "--grid", "lr=1,2,-3")
    assert code == 2 and "-3" in err and len(err.splitlines()) == 1
    assert not (tmp_path / "home").exists()


def test_jobs_that_would_share_a_folder_are_refused(run_rung: Callable[..., Any], tmp_path: Path) -> None:
    file = write(tmp_path, checkpoint={"dir": str(tmp_path / "ckpt")})
    for dryrun in ((), ("--dryrun",)):
        code, _, err = run_rung("launch", file, "--grid", "seed=1,2", *dryrun)
        assert code == 2 and "would write its checkpoints into checkpoint.dir" in err
    assert not (tmp_path / "home").exists()


def test_a_launch_prints_the_group_and_its_jobs(run_rung: Callable[..., Any], tmp_path: Path) -> None:
    file = write(tmp_path)
    code, out, _ = run_rung("launch", file, "--grid", "seed=1,2", "--at-once", "1")
    assert code == 0
    lines = ["submitted group gpt-grid-1: 2 jobs, at most 1 at once", "  gpt-seed-1-1", "  gpt-seed-2-2"]
    assert out.splitlines()[:3] == lines
    code, out, _ = run_rung("launch", file, "--grid", "seed=1,2", "--json")
    printed = json.loads(out)
    assert code == 0 and printed["group"] == "gpt-grid-2" and printed["at_once"] is None
    assert [(job["id"], job["settings"]) for job in printed["jobs"]] == [
        ("gpt-seed-1-3", {"seed": "1"}),
        ("gpt-seed-2-4", {"seed": "2"}),
    ]


def test_the_queue_shows_one_group_alone(run_rung: Callable[..., Any], tmp_path: Path) -> None:
    for _ in range(2):
        run_rung("launch", write(tmp_path), "--grid", "seed=1,2")
    rows = json.loads(run_rung("queue", "--group", "gpt-grid-2", "--json")[1])
    assert [(row["id"], row["group"], row["settings"]) for row in rows] == [
        ("gpt-seed-1-3", "gpt-grid-2", {"seed": "1"}),
        ("gpt-seed-2-4", "gpt-grid-2", {"seed": "2"}),
    ]
    code, _, err = run_rung("queue", "--group", "gpt")
    assert code == 2 and "there is no group 'gpt'; the newest are gpt-grid-2, gpt-grid-1" in err


def test_a_dry_run_lists_the_combinations_and_shows_the_first_in_full(
    run_rung: Callable[..., Any], tmp_path: Path
) -> None:
    words = ("launch", write(tmp_path), "--grid", "seed=7,8", "--at-once", "1", "--dryrun")
    code, out, _ = run_rung(*words)
    assert code == 0 and out.startswith("2 jobs, at most 1 at once; the first of them:\n")
    assert "run   python train.py --lr 0.001 --seed 7" in out
    assert out.endswith("job   gpt seed=7\njob   gpt seed=8\n")
    printed = json.loads(run_rung(*words, "--json")[1])
    assert [job["name"] for job in printed["jobs"]] == ["gpt seed=7", "gpt seed=8"] and printed["first"]["argv"]
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("words", [("-f",), ("--log",)])
def test_options_for_one_job_are_refused_with_a_grid(
    run_rung: Callable[..., Any], tmp_path: Path, words: tuple[str, ...]
) -> None:
    code, _, err = run_rung("launch", write(tmp_path), "--grid", "seed=1,2", *words)
    assert code == 2 and len(err.splitlines()) == 1
    assert run_rung("launch", write(tmp_path, run="x"), "--at-once", "2")[0] == 2


def test_a_retry_keeps_the_combination_of_its_job(run_rung: Callable[..., Any], tmp_path: Path, home: Path) -> None:
    file = write(tmp_path)
    run_rung("launch", file, "--grid", "seed=2", "--grid", "lr=0.2")
    cancel_and_wait = (("cancel", "gpt-seed-2-lr-0-2-1"), ("controller", "--until-idle"))
    assert [run_rung(*words)[0] for words in cancel_and_wait] == [0, 0]
    code, _, err = run_rung("retry", "gpt-seed-2-lr-0-2-1")
    assert code == 0 and "has changed since" not in err
    assert [run_rung(*words)[0] for words in cancel_and_wait] == [0, 0]
    assert run_rung("retry", "gpt-seed-2-lr-0-2-1", "--file", write(tmp_path, priority=7))[0] == 0
    store = Store(home / "rung.db")
    job = store.job("gpt-seed-2-lr-0-2-1")
    store.close()
    assert (job.spec.priority, job.spec.name, job.knobs.lr) == (7, "gpt seed=2 lr=0.2", 0.2)
