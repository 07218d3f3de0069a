"""Tests that the paths of a container become those of the cluster, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from rung.jobs.model.paths import AttemptPaths, HostPaths
from rung.runner.engines.slurm.site_paths import SitePaths, on_site
from rung.runner.seams.engine import Container, FileEdit, Request

PATHS = SitePaths(HostPaths("/home/ada", "abc"), "/home/ada/.rung/abc/trees/t/files", "mmgcn-1", 3, 2)
JOB = "/home/ada/.rung/abc/jobs/mmgcn-1"


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ("/rung/job/checkpoints/step_30.pt", f"{JOB}/stays/2/checkpoints/step_30.pt"),
        ("--out=/rung/job", f"--out={JOB}/stays/2"),
        ("/rung/work:/rung/job", f"{JOB}/attempts/3/work:{JOB}/stays/2"),
        ("/rung/record/log", f"{JOB}/attempts/3/record/log"),
        ("/rung/inside/files.sh", "/home/ada/.rung/abc/trees/t/files/files.sh"),
        ("/rung/files/stays/2", f"{JOB}/stays/2"),
        ("/data/rung/job", "/data/rung/job"),
        ("/rung/jobs", "/rung/jobs"),
        ("/rung/job-2", "/rung/job-2"),
        ("x/rung/job", "x/rung/job"),
    ],
)
def test_whole_paths_of_a_container_are_replaced(text: str, there: str) -> None:
    assert PATHS.text(text) == there


def test_a_request_names_only_paths_of_the_cluster() -> None:
    request = Request(
        "mmgcn-1",
        3,
        ("python", "train.py", "--out", "/rung/job/ck"),
        Path("/rung/work"),
        {"RUNG_CHECKPOINT_DIR": "/rung/job/ck", "LR": "0.1"},
        AttemptPaths(Path("/h/jobs/mmgcn-1/attempts/3")),
        Path("/rung/job/ck"),
        container=Container("", residence=2),
        edits=(FileEdit("c.yaml", {"out": "/rung/job/ck", "lr": 0.1}),),
    )
    there = on_site(request, PATHS)
    assert there.argv[-1] == there.env["RUNG_CHECKPOINT_DIR"] == str(there.checkpoint_dir) == f"{JOB}/stays/2/ck"
    assert str(there.cwd) == f"{JOB}/attempts/3/work"
    assert there.edits[0].values == {"out": f"{JOB}/stays/2/ck", "lr": 0.1}
