"""Tests that a bare machine becomes a host in one run, stays as it is in a second, and is never locked.

The tests build on each other in the order they stand in: a machine is bare only once.
"""

from __future__ import annotations

from rung.jobs.model.state import JobState
from tests.fleet.bare.conftest import Played, Site
from tests.fleet.campaign import Campaign
from tests.fleet.host import Host
from tests.fleet.patience import run, wait_for

SMI, HOOK = "/usr/bin/nvidia-smi", "/usr/bin/nvidia-container-runtime-hook"
KEYS, SETTINGS = "/home/rung/.ssh/authorized_keys", "/etc/docker/daemon.json"
SSHD = "/etc/ssh/sshd_config.d/10-rung.conf"
CONTAINERS = "/var/lib/docker/containers/*/config.v2.json"
# Comes before the system's own in PATH, and is five minutes ahead.
CLOCK = "/usr/local/bin/date"
LATE = b'#!/bin/sh\n[ "$*" = +%s ] && exec echo $(($(/bin/date +%s) + 300))\nexec /bin/date "$@"\n'


def test_a_system_that_it_was_not_made_for_is_refused_and_left_alone(site: Site) -> None:
    played = site.make("provision", VARS=site.vars(provision_systems={"Debian": ["99"]}))
    assert played.code != 0
    assert "runs Debian 12" in played.said
    assert played.changed == {"pascal": 0}


def test_after_one_run_a_job_runs_there(provisioned: Played, site: Site, campaign: Campaign) -> None:
    assert provisioned.changed["pascal"] > 0
    job = campaign.submit("first", "P100:1", run=["sh", "-c", "echo step 1 loss 0.5; /usr/bin/nvidia-smi -L"])
    campaign.rung("controller", "--until-idle")
    assert campaign.job(job).state is JobState.SUCCEEDED, campaign.shown()
    assert campaign.last(job).host == "pascal"
    assert "Tesla P100" in campaign.log(job, 1), "the GPU is seen in the job's container"


def test_a_second_run_changes_nothing(provisioned: Played, site: Site) -> None:
    again = site.make("provision")
    assert again.code == 0
    assert again.changed == {"pascal": 0}, again.said


def test_the_account_has_no_password_and_no_sudo(provisioned: Played, site: Site) -> None:
    assert site.host.run("getent", "shadow", "rung").split(":")[1] == "*"
    assert set(site.host.run("id", "-nG", "rung").split()) == {"rung", "docker"}
    assert site.host.run("grep", "-rls", "rung", "/etc/sudoers", "/etc/sudoers.d", check=False) == ""


def test_settings_that_sshd_refuses_are_not_kept_and_nobody_is_locked_out(provisioned: Played, site: Site) -> None:
    host = site.host
    before, sshd = host.run("cat", SSHD), host.run("cat", "/run/sshd.pid")
    unknown = {"PasswordAuthentication": "no", "PermitRootLogon": "yes"}
    played = site.make("provision", TAGS="sshd", VARS=site.vars(sshd_settings=unknown))
    assert played.code != 0
    assert "Bad configuration option" in played.said
    assert (host.run("cat", SSHD), host.run("cat", "/run/sshd.pid")) == (before, sshd)
    # Valid by itself, and not what it is there for.
    played = site.make("provision", TAGS="sshd", VARS=site.vars(sshd_settings={"PasswordAuthentication": "yes"}))
    assert "they were not kept" in played.said
    assert host.run("cat", SSHD) == before
    assert run("ssh", "-F", site.fleet.ssh_config, "-l", "root", "pascal", "hostname").strip() == "pascal"


def test_an_image_without_kernels_for_the_gpu_is_named_before_any_job_does_it(provisioned: Played, site: Site) -> None:
    current = site.fleet.images["tiny-current"]
    played = site.make("provision", TAGS="images", VARS=site.vars(images_pull={"p100": current, "titanrtx": "other"}))
    assert played.code != 0
    said = " ".join(played.said.split())
    assert "p100 (sm_60) has no use for image" in said
    assert "sm_75 sm_80 sm_90 alone" in said


def test_each_of_eight_defects_is_found(provisioned: Played, site: Site, campaign: Campaign) -> None:
    host = site.host
    plant_four(host)
    told(site, "no GPU driver", "disk nearly full", "1 of 1 keys are missing", " s ahead of ours")
    mend_four(host)
    plant_four_more(host, site.fleet.images["tiny"])
    told(site, "driver 470.57.02 is too old", "no container toolkit", "log driver is none", "stale: left-over")
    shown = campaign.rung("check", expect=1)
    assert "no container toolkit" in shown
    assert "stale: left-over" in shown
    assert "stale: left-over" in campaign.rung("hosts", "--json")
    mend_four_more(host)


def test_a_reset_clears_what_jobs_left(provisioned: Played, site: Site) -> None:
    host, image = site.host, site.fleet.images["tiny"]
    host.docker("run", "--detach", "--label=rung.job=x", image, "sleep", "1000")
    host.run("mkdir", "/dev/shm/rung-x")
    bystander = host.docker("run", "--detach", image, "sleep", "1000")
    played = site.make("reset", HOST="pascal")
    assert played.code == 0, played.said
    assert "all 1 GPUs are seen in one" in played.said, "and nothing is wrong with the host"
    assert host.docker("ps", "--all", "--quiet", "--no-trunc") == bystander
    assert host.run("ls", "/dev/shm") == ""
    assert site.make("reset").code == 2, "never all hosts at once"


# Defects


def told(site: Site, *defects: str) -> None:
    """Hold that a check names these defects, and changes nothing."""
    played = site.make("provision-check")
    said = " ".join(played.said.split())
    assert played.failed == {"pascal"}
    assert played.changed == {"pascal": 0}
    for words in defects:
        assert words in said, played.said


def plant_four(host: Host) -> None:
    """Take the driver and the key away, fill the disk, and set the clock."""
    host.run("mv", SMI, f"{SMI}.away")
    host.run("mv", KEYS, f"{KEYS}.away")
    host.fill_disk(leave=64 << 20)
    host.run("sh", "-c", f"cat > {CLOCK} && chmod +x {CLOCK}", input=LATE)


def mend_four(host: Host) -> None:
    host.free_disk()
    host.run("rm", CLOCK)
    for path in (SMI, KEYS):
        host.run("mv", f"{path}.away", path)


def plant_four_more(host: Host, image: str) -> None:
    """Give it an old driver, no toolkit, another log driver, and a container that nobody collected."""
    host.set_gpus(1, driver="470.57.02")
    host.run("mv", HOOK, f"{HOOK}.away")
    host.docker("run", "--name=left-over", "--label=rung.job=gone", image, "true")
    host.run("service", "docker", "stop")
    host.run("sh", "-c", 'sed -i \'s/"FinishedAt":"[^"]*/"FinishedAt":"2026-01-01T00:00:00Z/\' ' + CONTAINERS)
    host.run("cp", SETTINGS, f"{SETTINGS}.away")
    host.run("sed", "-i", 's/"log-driver": "json-file"/"log-driver": "none"/; /max-/d', SETTINGS)
    start_engine(host)


def mend_four_more(host: Host) -> None:
    host.set_gpus(1)
    host.docker("rm", "left-over")
    for path in (HOOK, SETTINGS):
        host.run("mv", f"{path}.away", path)
    host.run("service", "docker", "stop")
    start_engine(host)


def start_engine(host: Host) -> None:
    host.run("service", "docker", "start")
    wait_for(host.engine_answers, f"the engine of {host.name}")
