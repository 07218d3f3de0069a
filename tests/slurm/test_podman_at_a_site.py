"""Tests jobs in containers of a real Podman at a real Slurm, for a user without root's rights."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rung.jobs.model.state import JobState
from tests import pace
from tests.slurm.podman import USER, PodmanCluster, containers, user, write_image
from tests.slurm.site import PATIENCE, SiteLab
from tests.support.sshd import Sshd

# Shows where it is and what it was given. A variable of this name would point Podman itself to another engine.
SHOW = """
echo "user $(id -u), podman here: $(test -e /usr/bin/podman && echo yes || echo no)"
echo "host $CONTAINER_HOST, path $PATH"
echo "value $ODD"
case $TOKEN in "$ODD") echo "token as it is" ;; esac
echo "packed ${RUNG_ENVIRONMENT-none}"
echo step 1 loss 0.5
"""
ODD = 'it\'s "odd"; $(exit 9) `x` \\ and  long'


@pytest.fixture(scope="module")
def podman_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SiteLab]:
    with (
        tempfile.TemporaryDirectory(prefix="rung-podman-") as name,
        user() as home,
        pytest.MonkeyPatch.context() as own,
    ):
        open_folder = Path(name)
        open_folder.chmod(0o755)
        cluster = PodmanCluster(open_folder / "cluster")
        lab = SiteLab(tmp_path_factory.mktemp("lab"), cluster)
        sshd = Sshd(open_folder / "sshd", lab.folder, settings=(f"SetEnv SLURM_CONF={cluster.config}",), user=USER)
        try:
            cluster.up()
            sshd.introduce()
            sshd.start()
            image = write_image(home / "image.tar")
            where = {"ansible_host": "127.0.0.1", "ansible_port": sshd.port, "ansible_user": USER}
            start = {"start": "podman", "images": {image: str(home / "image.tar")}}
            lab.list_site(where, {"folder": str(home / "shared"), "poll": 1, "memory": "900m", **start})
            lab.image = image
            own.setenv("TOKEN", ODD)
            own.setenv("RUNG_SECRETS", "TOKEN")
            lab.control()
            yield lab
        finally:
            lab.close()
            sshd.kill()
            cluster.down()


def submit(lab: SiteLab, name: str, script: str, **fields: object) -> str:
    run = ["sh", "-c", script]
    return lab.submit(name, run=run, image=lab.image, network="none", resources={"gpu": []}, **fields)


@pytest.mark.long
@pytest.mark.sample
def test_a_job_in_a_container_has_its_variables_and_podman_has_none_of_them(podman_lab: SiteLab) -> None:
    lab = podman_lab
    envs = {"CONTAINER_HOST": "tcp://127.0.0.1:1", "PATH": "/bin", "ODD": ODD}
    job = submit(lab, "shown", SHOW, envs=envs, secrets=["TOKEN"])
    assert lab.ended(job).state is JobState.SUCCEEDED, (lab.job(job).reason, lab.log(job, 1))
    said = lab.log(job, 1)
    assert "podman here: no\nhost tcp://127.0.0.1:1, path /bin\n" in said
    assert f"value {ODD}\ntoken as it is\n" in said and "packed none\n" in said
    assert containers() == []


@pytest.mark.long
@pytest.mark.sample
def test_a_cancelled_job_leaves_no_container(podman_lab: SiteLab) -> None:
    lab = podman_lab
    job = submit(lab, "stopped", "trap '' TERM; i=0; while :; do i=$((i+1)); echo step $i loss 0.5; sleep 0.2; done")
    lab.until_step(job, 2)
    assert len(containers()) == 1
    lab.rung("cancel", job)
    assert lab.ended(job).state is JobState.CANCELLED
    pace.until(lambda: containers() == [], PATIENCE, "its container is gone")
