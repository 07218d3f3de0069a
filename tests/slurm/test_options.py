"""Tests that a real Slurm understands the options of sbatch as they are meant."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rung.jobs.site.options import Submission, sbatch_options
from rung.jobs.site.settings import Asked, GpuOption, Site
from rung.jobs.site.starting import Command, start_command
from tests.slurm.cluster import Cluster


def submission(cluster: Cluster, name: str) -> Submission:
    folder = cluster.folder / name
    folder.mkdir()
    return Submission(name, f"rung/store/{name}/1", str(folder / "log 50%j"), str(folder), avoid=("pascal",))


@pytest.mark.parametrize("option", GpuOption)
def test_a_batch_job_has_what_was_asked_for_and_nothing_of_the_login_node(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, option: GpuOption
) -> None:
    monkeypatch.setenv("LEAKED", "from the login node")
    site = Site("gpu", time=7_200, memory=200 << 20, cpus_per_gpu=2, gpu_option=option, options=("--nice=7",))
    said = submission(cluster, f"asked-{option}")
    options = sbatch_options(site, Asked(gpus=2, gpu="A100", options=("--constraint=a100",)), said)
    script = 'env; pwd; echo "gpus $CUDA_VISIBLE_DEVICES"'
    number = cluster.run("sbatch", *options, stdin=f"#!/bin/sh\n{script}\n").strip()
    job = cluster.ended(number)
    assert (job["JobState"], job["NodeList"], job["ExcNodeList"]) == ("COMPLETED", "ampere", "pascal")
    assert (job["JobName"], job["Comment"], job["Requeue"]) == (said.name, said.mark, "0")
    assert (job["TimeLimit"], job["Partition"], job["Features"], job["MinMemoryNode"]) == (
        "02:00:00",
        "gpu",
        "a100",
        "200M",
    )
    assert (job["NumNodes"], job["CPUs/Task"], job["Nice"]) == ("1", "4", "7")
    printed = Path(said.log).read_text()
    # Nor has it what a login would set; without a login there is no home.
    assert "LEAKED" not in printed and "\nHOME=" not in printed
    assert f"\n{said.folder}\ngpus 0,1\n" in printed


def test_a_command_starts_once_on_every_node_with_the_variables_of_the_file(cluster: Cluster) -> None:
    said = submission(cluster, "nodes")
    site, asked = Site(memory=100 << 20), Asked(nodes=2, cpus=3)
    shown = 'printf "on %s: %s\\n" "$SLURMD_NODENAME" "$OWN"'
    words = start_command(site, Command(("sh", "-c", shown), "/", nodes=2, cpus=3))
    (cluster.folder / "nodes" / "command").write_text("\0".join(words))
    own = 'kept "as it is" $(x) `y` \\'
    variables = cluster.folder / "nodes" / "variables"
    variables.write_bytes(f"OWN={own}\0PATH=/usr/bin:/bin\0".encode())
    said, script = replace(said, variables=str(variables)), "xargs -0 env < command"
    number = cluster.run("sbatch", *sbatch_options(site, asked, said), stdin=f"#!/bin/sh\n{script}\n").strip()
    assert cluster.ended(number)["JobState"] == "COMPLETED", Path(said.log).read_text()
    printed = sorted(Path(said.log).read_text().splitlines())
    assert printed == [f"on {node}: {own}" for node in ("ampere", "turing")]
