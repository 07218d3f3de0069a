"""Tests that one run makes a bare machine a host, that a second one changes nothing, and that SSH always works.

The tests depend on their order: a machine is bare only once.
"""

from __future__ import annotations

import pytest

from rung.jobs.model.state import JobState
from tests.fleet.bare.conftest import Played, Site
from tests.fleet.campaign import Campaign
from tests.fleet.host import Host
from tests.fleet.patience import run, wait_for

# Slow: CI runs these after the others.
pytestmark = [pytest.mark.long, pytest.mark.sample]

SMI, HOOK = "/usr/bin/nvidia-smi", "/usr/bin/nvidia-container-runtime-hook"
KEYS, SETTINGS = "/home/rung/.ssh/authorized_keys", "/etc/docker/daemon.json"
SSHD = "/etc/ssh/sshd_config.d/10-rung.conf"
CONTAINERS = "/var/lib/docker/containers/*/config.v2.json"
# A `date` that comes first in PATH and is five minutes ahead.
CLOCK = "/usr/local/bin/date"
LATE = b'#!/bin/sh\n[ "$*" = +%s ] && exec echo $(($(/bin/date +%s) + 300))\nexec /bin/date "$@"\n'
# A program of an image that tells by its answer what it may do.
LIAR = """
echo "GPU 0: one"
[ "$(id -u)" != 0 ] || echo "GPU 1: root"
! touch /written 2> /dev/null || echo "GPU 2: its root can be written"
"""


def test_an_unsupported_system_is_refused_and_not_changed(site: Site) -> None:
    played = site.make("provision", VARS=site.vars(provision_systems={"Debian": ["99"]}))
    assert played.code != 0
    assert "runs Debian 12" in played.output
    assert played.changed == {"pascal": 0}


def test_a_job_runs_on_the_host_after_one_run(provisioned: Played, site: Site, campaign: Campaign) -> None:
    assert provisioned.changed["pascal"] > 0
    job = campaign.submit("first", "P100:1", run=["sh", "-c", "echo step 1 loss 0.5; /usr/bin/nvidia-smi -L"])
    campaign.rung("controller", "--until-idle")
    assert campaign.job(job).state is JobState.SUCCEEDED, campaign.shown()
    assert campaign.last(job).host == "pascal"
    assert "Tesla P100" in campaign.log(job, 1), "the GPU is seen in the job's container"


def test_a_second_run_changes_nothing(provisioned: Played, site: Site) -> None:
    again = site.make("provision")
    assert again.code == 0
    assert again.changed == {"pascal": 0}, again.output


def test_the_account_has_no_password_and_no_sudo(provisioned: Played, site: Site) -> None:
    assert site.host.run("getent", "shadow", "rung").split(":")[1] == "*"
    assert set(site.host.run("id", "-nG", "rung").split()) == {"rung", "docker"}
    assert site.host.run("grep", "-rls", "rung", "/etc/sudoers", "/etc/sudoers.d", check=False) == ""


def test_a_link_of_the_account_is_not_followed(provisioned: Played, site: Site) -> None:
    """0.1.0 gave the target of a link at `~/.ssh` to the account, and wrote the keys there, as root."""
    host, home = site.host, "/home/rung"
    before = host.run("sh", "-c", "stat -c '%n %U %a' /root /root/.ssh /root/.ssh/*")
    host.run("mv", f"{home}/.ssh", f"{home}/.ssh.away")
    host.run("ln", "-s", "/root/.ssh", f"{home}/.ssh")
    played = site.make("provision", TAGS="user")
    host.run("rm", f"{home}/.ssh")
    host.run("mv", f"{home}/.ssh.away", f"{home}/.ssh")
    assert played.failed == {"pascal"}
    assert f"{home}/.ssh is a link to /root/.ssh: nothing was changed" in " ".join(played.output.split())
    assert host.run("sh", "-c", "stat -c '%n %U %a' /root /root/.ssh /root/.ssh/*") == before
    assert site.make("provision", TAGS="user").changed == {"pascal": 0}


def test_the_health_check_runs_an_image_in_the_seal_of_a_job(provisioned: Played, site: Site) -> None:
    """0.1.0 ran the image as root. This one reports two GPUs more if it is root, or if it can write to its root."""
    host, image = site.host, site.fleet.images["tiny"]
    write = ["-c", f"printf '%s\\n' '{LIAR}' > /bin/liar"]
    host.docker("run", "--name=liar", "--user=0", "--entrypoint=/bin/sh", image, *write)
    host.docker("commit", "liar", "liar:latest")
    host.docker("rm", "liar")
    script = host.run("cat", "/usr/local/lib/rung/health").replace("/usr/bin/nvidia-smi -L", "/bin/sh /bin/liar")
    shown = host.run("sh", "-s", "whole", input=script.replace("image=''", "image=liar:latest").encode())
    host.docker("rmi", "liar:latest")
    assert "all 1 GPUs are seen in one" in shown
    assert host.docker("ps", "--all", "--quiet", "--filter=label=rung.look=health") == ""


def test_settings_that_sshd_refuses_are_not_kept_and_login_still_works(provisioned: Played, site: Site) -> None:
    host = site.host
    before, sshd = host.run("cat", SSHD), host.run("cat", "/run/sshd.pid")
    unknown = {"PasswordAuthentication": "no", "PermitRootLogon": "yes"}
    played = site.make("provision", TAGS="sshd", VARS=site.vars(sshd_settings=unknown))
    assert played.code != 0
    assert "Bad configuration option" in played.output
    assert (host.run("cat", SSHD), host.run("cat", "/run/sshd.pid")) == (before, sshd)
    # A valid setting, but one that the role does not allow.
    played = site.make("provision", TAGS="sshd", VARS=site.vars(sshd_settings={"PasswordAuthentication": "yes"}))
    assert "they were not kept" in played.output
    assert host.run("cat", SSHD) == before
    assert run("ssh", "-F", site.fleet.ssh_config, "-l", "root", "pascal", "hostname").strip() == "pascal"


def test_an_image_without_kernels_for_the_gpu_is_refused_before_any_job_runs(provisioned: Played, site: Site) -> None:
    current = site.fleet.images["tiny-current"]
    played = site.make("provision", TAGS="images", VARS=site.vars(images_pull={"p100": current, "titanrtx": "other"}))
    assert played.code != 0
    output = " ".join(played.output.split())
    assert "p100 (sm_60) has no use for image" in output
    assert "sm_75 sm_80 sm_90 alone" in output


def test_each_of_eight_defects_is_found(provisioned: Played, site: Site, campaign: Campaign) -> None:
    host = site.host
    plant_four(host)
    check_reports(site, "no GPU driver", "disk nearly full", "1 of 1 keys are missing", " s ahead of ours")
    undo_four(host)
    plant_four_more(host, site.fleet.images["tiny"])
    check_reports(site, "driver 470.57.02 is too old", "no container toolkit", "log driver is none", "stale: left-over")
    shown = campaign.rung("check", expect=1)
    assert "no container toolkit" in shown
    assert "stale: left-over" in shown
    assert "stale: left-over" in campaign.rung("hosts", "--json")
    undo_four_more(host)


def test_a_reset_removes_what_jobs_left(provisioned: Played, site: Site) -> None:
    host, image = site.host, site.fleet.images["tiny"]
    host.docker("run", "--detach", "--label=rung.job=x", image, "sleep", "1000")
    host.docker("run", "--detach", "--label=rung.look=x", image, "sleep", "1000")
    host.run("mkdir", "/dev/shm/rung-x")
    host.docker("network", "create", "--label=rung.job=x", "of-a-job")
    host.docker("network", "create", "of-somebody-else")
    bystander = host.docker("run", "--detach", image, "sleep", "1000")
    played = site.make("reset", HOST="pascal")
    assert played.code == 0, played.output
    assert "all 1 GPUs are seen in one" in played.output, "the host is healthy"
    assert host.docker("ps", "--all", "--quiet", "--no-trunc") == bystander
    networks = host.docker("network", "ls", "--format={{.Name}}").split()
    assert "of-somebody-else" in networks and "of-a-job" not in networks
    assert host.run("ls", "/dev/shm") == ""
    assert site.make("reset").code == 2, "never all hosts at once"


# Defects


def check_reports(site: Site, *defects: str) -> None:
    """Assert that a check reports these defects and changes nothing."""
    played = site.make("provision-check")
    output = " ".join(played.output.split())
    assert played.failed == {"pascal"}
    assert played.changed == {"pascal": 0}
    for words in defects:
        assert words in output, played.output


def plant_four(host: Host) -> None:
    """Remove the driver and the key, fill the disk, and set the clock."""
    host.run("mv", SMI, f"{SMI}.away")
    host.run("mv", KEYS, f"{KEYS}.away")
    host.fill_disk(leave=64 << 20)
    host.run("sh", "-c", f"cat > {CLOCK} && chmod +x {CLOCK}", input=LATE)


def undo_four(host: Host) -> None:
    host.free_disk()
    host.run("rm", CLOCK)
    for path in (SMI, KEYS):
        host.run("mv", f"{path}.away", path)


def plant_four_more(host: Host, image: str) -> None:
    """Set an old driver, remove the toolkit, change the log driver, and leave a container of a gone job."""
    host.set_gpus(1, driver="470.57.02")
    host.run("mv", HOOK, f"{HOOK}.away")
    host.docker("run", "--name=left-over", "--label=rung.job=gone", image, "true")
    host.run("service", "docker", "stop")
    host.run("sh", "-c", 'sed -i \'s/"FinishedAt":"[^"]*/"FinishedAt":"2026-01-01T00:00:00Z/\' ' + CONTAINERS)
    host.run("cp", SETTINGS, f"{SETTINGS}.away")
    host.run("sed", "-i", 's/"log-driver": "json-file"/"log-driver": "none"/; /max-/d', SETTINGS)
    start_engine(host)


def undo_four_more(host: Host) -> None:
    host.set_gpus(1)
    host.docker("rm", "left-over")
    for path in (HOOK, SETTINGS):
        host.run("mv", f"{path}.away", path)
    host.run("service", "docker", "stop")
    start_engine(host)


def start_engine(host: Host) -> None:
    host.run("service", "docker", "start")
    wait_for(host.engine_answers, f"the engine of {host.name}")
