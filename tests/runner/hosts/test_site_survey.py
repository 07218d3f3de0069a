"""Tests what is read of a cluster, whatever its commands print: they are scripts of this test, on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.jobs.model.engine import SLURM
from rung.jobs.model.errors import EngineError
from rung.jobs.model.host import Host
from rung.jobs.model.terminal_text import clean
from rung.jobs.site.partitions import Nodes, Partition
from rung.jobs.site.settings import Site
from rung.runner.hosts.local_remote import LocalRemote
from rung.runner.hosts.site_survey import MOST_LINES, ask_site, parse_gpus, parse_partitions
from rung.runner.hosts.survey import survey
from rung.runner.placement.host_pool import trouble
from rung.runner.preflight.check_host import check_host
from rung.runner.views.hosts_table import hosts_json, hosts_table

SINFO = """#!/bin/sh
[ "$1" = --version ] && { echo "slurm 22.05.8"; exit 0; }
printf '%s\\n' 'turing|gpu*|1-00:00:00|1-infinite|8|gpu:titanrtx:2' \\
    'ampere|gpu*|1-00:00:00|1-infinite|8|gpu:a100:4(S:0-1)' \\
    'ampere|long|infinite|1-2|8|gpu:a100:4(S:0-1)' 'login|cpu|30:00|1|16+|(null)'
"""


def cluster(folder: Path, sinfo: str | None) -> LocalRemote:
    """Return a login node with this command; None: it has no commands of Slurm."""
    if sinfo is not None:
        for name, text in (("sinfo", sinfo), ("sbatch", "#!/bin/sh\n")):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
    return LocalRemote(
        "lab", {"PATH": f"{folder}:{os.environ['PATH']}" if sinfo else "/usr/bin:/bin", "HOME": str(folder)}
    )


def test_a_cluster_tells_its_version_and_the_gpus_of_each_node_once(tmp_path: Path) -> None:
    found = ask_site(cluster(tmp_path, SINFO))
    assert (found.version, found.gpus) == ("slurm 22.05.8", (("a100", 4), ("titanrtx", 2)))
    big = Nodes(1, (("a100", 4),), 8)
    assert found.partitions == (
        Partition("gpu", (Nodes(1, (("titanrtx", 2),), 8), big), is_default=True, time=86_400),
        Partition("long", (big,), most_nodes=2),
        Partition("cpu", (Nodes(1, (), 16),), time=1800, most_nodes=1),
    )


def test_a_list_of_nodes_that_is_too_long_says_nothing_about_partitions(tmp_path: Path) -> None:
    many = SINFO + f'for i in $(seq {MOST_LINES}); do echo "n$i|gpu*|infinite|1-infinite|8|gpu:a100:1"; done\n'
    found = ask_site(cluster(tmp_path, many))
    assert found.partitions == () and dict(found.gpus)["a100"] > 1000


@pytest.mark.parametrize(
    ("sinfo", "said"),
    [
        (
            "#!/bin/sh\necho 'slurm_load_partitions: Unable to contact slurm controller' >&2; exit 1\n",
            "does not answer",
        ),
        ("#!/bin/sh\nprintf '\\033[31mred'; exit 1\n", "does not answer"),
    ],
)
def test_a_cluster_that_does_not_answer_is_an_error_in_one_line(tmp_path: Path, sinfo: str, said: str) -> None:
    with pytest.raises(EngineError, match=said) as caught:
        ask_site(cluster(tmp_path, sinfo))
    assert "\033" not in str(caught.value) and "\n" not in str(caught.value)


def test_a_machine_without_slurm_is_no_login_node(tmp_path: Path) -> None:
    remote = LocalRemote("lab", {"PATH": str(tmp_path), "HOME": str(tmp_path)})
    (tmp_path / "sh").symlink_to("/bin/sh")
    with pytest.raises(EngineError, match="no sbatch is found"):
        ask_site(remote)


def test_the_table_the_check_and_the_scheduler_know_a_cluster(tmp_path: Path) -> None:
    host = Host("lab", "login.example.org", engine=SLURM, site=Site())
    report = survey(host, cluster(tmp_path, SINFO), lambda: 0.0)
    assert trouble(report) == ""
    assert "4 a100, 2 titanrtx" in hosts_table([report], 200)
    (shown,) = hosts_json([report])
    assert shown["site"]["gpus"] == {"a100": 4, "titanrtx": 2}
    assert [each["name"] for each in shown["site"]["partitions"]] == ["gpu", "long", "cpu"]
    first = {"default": True, "nodes": 2, "gpus": {"a100": 4, "titanrtx": 2}, "time_limit": 86_400}
    assert shown["site"]["partitions"][0] == {"name": "gpu", **first, "nodes_per_job": None}
    (checked,) = check_host(report)
    assert checked.good and "slurm 22.05.8, 4 a100, 2 titanrtx" in checked.what
    away = survey(host, cluster(tmp_path, "#!/bin/sh\nexit 1\n"), lambda: 0.0)
    assert "has no engine that answers" in trouble(away)
    (checked,) = check_host(away)
    assert not checked.good


@pytest.mark.parametrize("gres", ["", "n", "gpu:", "gpu:a100:x", "gpu:a100:99999999", "\033[31mgpu", "(null)"])
def test_what_is_no_gpu_counts_as_none(gres: str) -> None:
    assert sum(count for _, count in parse_gpus([["n", "gpu", "1:00", "1", "1", gres]])) <= 9999


@given(st.lists(st.text(), min_size=6, max_size=6))
def test_whatever_a_partition_says_is_read_without_an_error(row: list[str]) -> None:
    for each in parse_partitions([row]):
        assert clean(each.name) == each.name and each.size == 1
