"""Owns the proof that bare machines become hosts in one run, stay as they are in a second, and are never locked.

The tests build on each other in the order they stand in: a machine is bare only once.
"""

from __future__ import annotations

from jobs.state import JobState
from tests.fleet.bare.conftest import Played, Site
from tests.fleet.campaign import Campaign
from tests.fleet.host import Host
from tests.fleet.patience import run, wait_for

SMI, HOOK = "/usr/bin/nvidia-smi", "/usr/bin/nvidia-container-runtime-hook"
KEYS, SETTINGS = "/home/rung/.ssh/authorized_keys", "/etc/docker/daemon.json"
CONTAINERS = "/var/lib/docker/containers/*/config.v2.json"
# Comes before the system's own in PATH, and is five minutes ahead.
CLOCK = "/usr/local/bin/date"
LATE = b'#!/bin/sh\n[ "$*" = +%s ] && exec echo $(($(/bin/date +%s) + 300))\nexec /bin/date "$@"\n'


def test_a_system_that_it_was_not_made_for_is_refused_and_left_alone(site: Site) -> None:
    played = site.make("provision", VARS=site.vars(provision_systems={"Debian": ["99"]}))
    assert played.code != 0
    assert "runs Debian 12" in played.said
    assert played.failed == {"turing", "pascal"}
    assert set(played.changed.values()) == {0}


def test_after_one_run_a_job_runs_there(provisioned: Played, site: Site, campaign: Campaign) -> None:
    assert provisioned.failed == set()
    assert min(provisioned.changed.values()) > 0
    job = campaign.submit("first", "P100:1", run=["sh", "-c", "echo step 1 loss 0.5; /usr/bin/nvidia-smi -L"])
    campaign.rung("controller", "--until-idle")
    assert campaign.job(job).state is JobState.SUCCEEDED, campaign.shown()
    assert campaign.last(job).host == "pascal"
    assert "Tesla P100" in campaign.log(job, 1), "the GPU is seen in the job's container"


def test_a_second_run_changes_nothing(provisioned: Played, site: Site) -> None:
    again = site.make("provision")
    assert again.changed == {"turing": 0, "pascal": 0}, again.said
    assert again.code == 0


def test_the_account_has_no_password_and_no_sudo(provisioned: Played, site: Site) -> None:
    for host in site.fleet.hosts.values():
        assert host.run("getent", "shadow", "rung").split(":")[1] == "*"
        assert set(host.run("id", "-nG", "rung").split()) == {"rung", "docker"}
        assert host.run("grep", "-rls", "rung", "/etc/sudoers", "/etc/sudoers.d", check=False) == ""


def test_settings_that_sshd_refuses_are_not_kept_and_nobody_is_locked_out(provisioned: Played, site: Site) -> None:
    turing = site.fleet.hosts["turing"]
    before = turing.run("cat", "/etc/ssh/sshd_config.d/10-rung.conf")
    sshd = turing.run("cat", "/run/sshd.pid")
    broken = site.vars(sshd_settings={"PasswordAuthentication": "no", "PermitRootLogon": "yes"})
    played = site.make("provision", LIMIT="turing", TAGS="sshd", VARS=broken)
    assert played.code != 0
    assert "Bad configuration option" in played.said
    assert turing.run("cat", "/etc/ssh/sshd_config.d/10-rung.conf") == before
    assert turing.run("cat", "/run/sshd.pid") == sshd
    contradicting = site.vars(sshd_settings={"PasswordAuthentication": "yes"})
    played = site.make("provision", LIMIT="turing", TAGS="sshd", VARS=contradicting)
    assert "they were not kept" in played.said
    assert turing.run("cat", "/etc/ssh/sshd_config.d/10-rung.conf") == before
    assert run("ssh", "-F", site.fleet.ssh_config, "-l", "root", "turing", "hostname").strip() == "turing"


def test_an_image_without_kernels_for_the_gpu_is_named_before_any_job_does_it(provisioned: Played, site: Site) -> None:
    current = site.fleet.images["tiny-current"]
    played = site.make("provision", TAGS="images", VARS=site.vars(images_pull={"p100": current, "titanrtx": current}))
    assert played.failed == {"pascal"}
    assert "p100 (sm_60) has no use for image" in played.said
    assert "sm_75 sm_80 sm_90 alone" in " ".join(played.said.split())


def test_each_of_eight_defects_is_found(provisioned: Played, site: Site, campaign: Campaign) -> None:
    assert site.make("provision-check").code == 0
    turing, pascal = (site.fleet.hosts[name] for name in ("turing", "pascal"))
    plant_on_turing(turing)
    plant_on_pascal(pascal, site.fleet.images["tiny"])
    played = site.make("provision-check")
    said = " ".join(played.said.split())
    assert played.failed == {"turing", "pascal"}
    assert set(played.changed.values()) == {0}
    for words in (
        *("no GPU driver", "disk nearly full", "1 of 1 keys are missing"),
        *("driver 470.57.02 is too old", "no container toolkit", " s ahead of ours"),
        *("log driver is none", "stale: left-over"),
    ):
        assert words in said, words
    shown = campaign.rung("check", expect=1)
    assert "no container toolkit" in shown
    assert "stale: left-over" in shown
    assert "stale: left-over" in campaign.rung("hosts", "--json")
    mend(turing, pascal)


def test_a_reset_clears_what_jobs_left(provisioned: Played, site: Site) -> None:
    pascal = site.fleet.hosts["pascal"]
    pascal.run("docker", "run", "--detach", "--label=rung.job=x", site.fleet.images["tiny"], "sleep", "1000")
    pascal.run("mkdir", "/dev/shm/rung-x")
    bystander = pascal.run("docker", "run", "--detach", site.fleet.images["tiny"], "sleep", "1000")
    played = site.make("reset", HOST="pascal")
    assert played.code == 0, played.said
    assert pascal.run("docker", "ps", "--all", "--quiet", "--no-trunc") == bystander
    assert pascal.run("ls", "/dev/shm") == ""
    assert site.make("reset").code == 2, "never all hosts at once"


# Defects


def plant_on_turing(host: Host) -> None:
    """Take the driver and the key away, and fill the disk."""
    host.run("mv", SMI, f"{SMI}.away")
    host.run("mv", KEYS, f"{KEYS}.away")
    host.fill_disk(leave=64 << 20)


def plant_on_pascal(host: Host, image: str) -> None:
    """Give it an old driver, no toolkit, another clock, another log driver, and a container that nobody collected."""
    host.set_gpus(1, driver="470.57.02")
    host.run("mv", HOOK, f"{HOOK}.away")
    host.run("sh", "-c", f"cat > {CLOCK} && chmod +x {CLOCK}", input=LATE)
    host.docker("run", "--name=left-over", "--label=rung.job=gone", image, "true")
    host.run("service", "docker", "stop")
    host.run("sh", "-c", 'sed -i \'s/"FinishedAt":"[^"]*/"FinishedAt":"2026-01-01T00:00:00Z/\' ' + CONTAINERS)
    host.run("cp", SETTINGS, f"{SETTINGS}.away")
    host.run("sed", "-i", 's/"log-driver": "json-file"/"log-driver": "none"/; /max-/d', SETTINGS)
    start_engine(host)


def mend(turing: Host, pascal: Host) -> None:
    turing.free_disk()
    pascal.set_gpus(1)
    pascal.docker("rm", "left-over")
    pascal.run("rm", CLOCK)
    for host, path in ((turing, SMI), (turing, KEYS), (pascal, HOOK), (pascal, SETTINGS)):
        host.run("mv", f"{path}.away", path)
    pascal.run("service", "docker", "stop")
    start_engine(pascal)


def start_engine(host: Host) -> None:
    host.run("service", "docker", "start")
    wait_for(host.engine_answers, f"the engine of {host.name}")
