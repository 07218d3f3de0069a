"""Tests what `rung check` says about the sites of the list."""

from __future__ import annotations

from pathlib import Path

import pytest

from rung.jobs.model.engine import SLURM
from rung.jobs.model.errors import UsageError
from rung.jobs.model.host import Host
from rung.jobs.model.paths import HomePaths
from rung.jobs.site.partitions import Nodes, Partition
from rung.jobs.site.settings import Site, Start
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.hosts.survey import Report
from rung.runner.preflight.dry_run import LaunchPreview
from rung.runner.preflight.fit import check_fit
from rung.runner.preflight.site_preview import site_lines


def test_a_site_that_takes_the_job_shows_its_options_and_another_one_the_reason() -> None:
    resources = {"time": "12h", "gpu": "A100:2"}
    spec = JobSpec.model_validate({"name": "a", "run": "x", "resources": resources, "slurm": {"account": "mine"}})
    hosts = [
        Host("box", "box"),
        Host("lab", "lab", engine=SLURM, site=Site(partition="gpu", account="all", options=("--constraint=a&b",))),
        Host("sealed", "sealed", engine=SLURM, site=Site(start=Start.PYXIS)),
    ]
    assert list(site_lines(spec, hosts)) == [
        "at lab it would start as plain, with sbatch --partition=gpu --account=mine --time=720 --nodes=1 "
        "--ntasks-per-node=1 --gres=gpu:a100:2 '--constraint=a&b'",
        "it does not go to sealed, which starts jobs in containers (start: pyxis), so name an image",
    ]


def test_a_site_without_the_gpu_could_not_run_the_job_and_says_what_it_has() -> None:
    lab = Host("lab", "lab", engine=SLURM, site=Site())
    nodes = (Nodes(1, (("a100", 4),)), Nodes(1, (("p100", 2),)))
    report = Report(lab, engine="slurm 22.05", partitions=(Partition("gpu", nodes, is_default=True),))

    def found(gpu: object) -> list[tuple[bool, str]]:
        spec = JobSpec.model_validate({"name": "a", "run": "x", "resources": {"gpu": gpu}, "slurm": {}})
        return [(each.good, each.what) for each in check_fit(spec, [report])]

    assert found("A100:2") == [(True, "host lab could run it, as soon as its queue has a place")]
    ((good, message),) = found("H100:1")
    assert not good and message.startswith(
        "host lab could not run it: it has no h100 in its partition gpu (it has a100, p100)"
    )
    ((good, message),) = found({"capability": ">=8.0"})
    assert not good and "capability" in message


def test_a_dry_run_refuses_what_no_site_can_ever_run(tmp_path: Path) -> None:
    lab = Host("lab", "lab", engine=SLURM, site=Site())
    report = Report(lab, engine="slurm 22.05", partitions=(Partition("gpu", (Nodes(1),), is_default=True),))

    def preview(partition: str) -> LaunchPreview:
        spec = JobSpec.model_validate({"name": "a", "run": "x", "slurm": {"partition": partition}})
        return LaunchPreview(spec, tmp_path, HomePaths(tmp_path / "home"), {}, lambda: [report])

    assert preview("gpu").host == "lab"
    with pytest.raises(UsageError, match=r"^a: no host of the list can ever run it: lab has no partition none "):
        preview("none")
