"""Tests which cores a job on this machine gets."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rung.runner.hosts.cpu_cores import choose_cores, cores_in_use


@pytest.mark.parametrize(
    ("count", "taken", "cores"),
    [
        (1, [], [0]),
        (1, [{0}], [1]),
        (2, [{0}], [1, 2]),
        (2, [{0}, {2}], [1, 3]),
        (3, [{0, 1}], [0, 2, 3]),
        (1, [{0}, {1}, {2}, {3}], [0]),
        (1, [{0}, {0}, {1}, {2}, {3}], [1]),
        (9, [{0}], [0, 1, 2, 3]),
    ],
)
def test_the_cores_of_the_fewest_jobs_are_taken(count: int, taken: list[set[int]], cores: list[int]) -> None:
    jobs = {f"job-{number}": frozenset(each) for number, each in enumerate(taken)}
    assert choose_cores(count, range(4), jobs) == cores


def test_only_processes_of_jobs_that_are_bound_to_some_cores_take_them() -> None:
    allowed = frozenset(os.sched_getaffinity(0))
    name, core = f"cores-{os.getpid()}", max(allowed)
    code = f"import os, sys; os.sched_setaffinity(0, [{core}]); print('bound', flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], env={"RUNG_JOB": name}, **pipes) as process:
        assert process.stdout is not None and process.stdout.readline() == b"bound\n"
        found = cores_in_use(allowed)
        process.communicate()
    assert found[name] == {core} if len(allowed) > 1 else name not in found
    assert name not in cores_in_use(allowed)
