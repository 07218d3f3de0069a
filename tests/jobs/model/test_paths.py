"""Tests that every file of a home has one path, and that no job name gives a path outside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.jobs.model.paths import AttemptPaths, HomePaths, job_id


@given(st.text(max_size=200), st.integers(min_value=1, max_value=10**6))
def test_an_id_is_a_plain_file_name_for_any_job_name(name: str, sequence: int) -> None:
    made = job_id(name, sequence)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", made)
    assert made.endswith(f"-{sequence}")
    assert len(made) < 60


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("mmgcn", "mmgcn-7"),
        ("../../etc/passwd", "etc-passwd-7"),
        ("; rm -rf /", "rm-rf-7"),
        ("-f", "f-7"),
        ("日本", "job-7"),
        ("A b\"c'd", "a-b-c-d-7"),
        ("x" * 100, "x" * 40 + "-7"),
    ],
)
def test_ids_stay_readable(name: str, made: str) -> None:
    assert job_id(name, 7) == made


def test_each_thing_in_a_home_has_its_own_path() -> None:
    paths = HomePaths(Path("/h"))
    assert paths.store == Path("/h/rung.db")
    assert paths.lock == Path("/h/controller.lock")
    assert paths.secrets == Path("/h/secrets")
    assert paths.attempt("a-1", 2) == AttemptPaths(Path("/h/jobs/a-1/attempts/2"))


def test_the_files_of_an_attempt_are_distinct_and_in_its_folder() -> None:
    paths = AttemptPaths(Path("/a"))
    files = [paths.request, paths.claim, paths.running, paths.done, paths.stop, paths.log]
    assert len(set(files)) == len(files)
    assert {file.parent for file in files} == {Path("/a")}


def test_a_relative_checkpoint_folder_is_inside_the_jobs_folder_and_an_absolute_one_stays() -> None:
    paths = HomePaths(Path("/h"))
    assert paths.checkpoints("a-1", "checkpoints") == Path("/h/jobs/a-1/checkpoints")
    assert paths.checkpoints("a-1", "/ckpt") == Path("/ckpt")
