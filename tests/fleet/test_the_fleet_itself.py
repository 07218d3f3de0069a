"""Tests that every action on the fleet has its effect, and that a fleet leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rung.runner.hosts.host_list import parse_hosts
from tests import pace
from tests.fleet import parts
from tests.fleet.fleet import Fleet
from tests.fleet.host import Host
from tests.fleet.images import FAR
from tests.fleet.leftovers import groups_of, is_mounted_from, mounts_under, processes_of
from tests.fleet.patience import FleetError, run, wait_for

TICK = "trap exit TERM; i=0; while :; do i=$((i+1)); echo $i > /home/rung/ticks; sleep 0.02; done"
POLITE = "trap 'echo bye > /home/rung/bye; exit 0' TERM; while :; do sleep 0.1; done"


@pytest.fixture
def host(fleet: Fleet) -> Host:
    return fleet.hosts["turing"]


def ssh(fleet: Fleet, host: Host, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(ssh_command(fleet, host, *words), stdin=subprocess.DEVNULL, capture_output=True, text=True)


def ssh_command(fleet: Fleet, host: Host, *words: str) -> list[str]:
    return ["ssh", "-F", str(fleet.ssh_config), "-o", "BatchMode=yes", host.name, *words]


@pytest.fixture
def session(fleet: Fleet, host: Host) -> Iterator[subprocess.Popen[str]]:
    """Yield an SSH session that sends every line back."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(ssh_command(fleet, host, "cat"), text=True, bufsize=1, **pipes) as process:
        assert echo(process, "hello")
        yield process
        process.kill()


def echo(session: subprocess.Popen[str], word: str) -> bool:
    session.stdin.write(f"{word}\n")
    return session.stdout.readline() == f"{word}\n"


def start(fleet: Fleet, host: Host, program: str) -> str:
    """Start a container that runs a shell program, and return its id."""
    flags = ("--detach", "--volume=/home/rung:/home/rung", "--init=false")
    return host.docker("run", *flags, fleet.images["tiny"], "sh", "-c", program)


def ticks(host: Host) -> str:
    file = host.work / "ticks"
    return file.read_text() if file.exists() else ""


def status(host: Host, container: str) -> str:
    return host.docker("inspect", "--format={{.State.Status}}", container)


def wait_for_ticks(host: Host) -> None:
    before = ticks(host)
    wait_for(lambda: ticks(host) not in ("", before), "ticks go on")


# Healthy hosts


def test_every_host_is_reached_by_ssh_and_has_its_own_engine_and_card(fleet: Fleet) -> None:
    query = "nvidia-smi --query-gpu=index,name,compute_cap,memory.total --format=csv,noheader,nounits"
    cards = {}
    for name, host in fleet.hosts.items():
        assert ssh(fleet, host, "hostname; id -un").stdout.split() == [name, "rung"]
        assert ssh(fleet, host, "docker version --format '{{.Server.Version}}'").stdout.startswith("20.10")
        cards[name] = ssh(fleet, host, query).stdout.strip()
    assert cards == {
        "turing": "0, NVIDIA TITAN RTX, 7.5, 24576",
        "pascal": "0, Tesla P100-PCIE-16GB, 6.0, 16384",
        "ampere": "0, NVIDIA A100-SXM4-40GB, 8.0, 40960",
    }


def test_rung_can_read_the_inventory(fleet: Fleet) -> None:
    found = {host.name: (host.address, host.user, host.key) for host in parse_hosts(fleet.inventory.read_bytes())}
    assert found == {name: (host.address, "rung", str(fleet.key)) for name, host in fleet.hosts.items()}


def test_hosts_reach_each_other_and_the_registry(fleet: Fleet, host: Host) -> None:
    for address, port in ((fleet.hosts["ampere"].address, 22), ("registry.fleet", 5000)):
        host.run("bash", "-c", f"exec 3<> /dev/tcp/{address}/{port}")


def test_all_hosts_have_the_images_by_digest_and_pull_others(fleet: Fleet) -> None:
    for host in fleet.hosts.values():
        known = host.docker("images", "--digests", "--format={{.Repository}}@{{.Digest}}").splitlines()
        assert {ref for name, ref in fleet.images.items() if name not in FAR} == set(known)
    host.docker("pull", fleet.images["far"])
    assert host.docker("run", "--rm", fleet.images["far"], "stat", "-c", "%s", "/weight") == str(8 << 20)
    host.docker("rmi", fleet.images["far"])


def test_the_fake_gpus_are_listed_assigned_and_used_by_foreign_processes(fleet: Fleet, host: Host) -> None:
    host.set_gpus(4)
    assert len(ssh(fleet, host, "nvidia-smi", "-L").stdout.splitlines()) == 4
    apps = "nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name --format=csv,noheader"
    assert ssh(fleet, host, apps).stdout == ""
    host.set_gpu_processes([(2, 4711, "python")])
    assert ssh(fleet, host, apps).stdout == f"{host.gpu_uuid(2)}, 4711, python\n"
    given = host.docker("run", "--rm", "--gpus", f"device={host.gpu_uuid(2)}", fleet.images["tiny"], "env")
    assert f"NVIDIA_VISIBLE_DEVICES={host.gpu_uuid(2)}" in given.splitlines()
    wrong = ssh(fleet, host, "nvidia-smi", "--query-gpu=colour", "--format=csv")
    assert (wrong.returncode, wrong.stdout.splitlines()[0]) == (2, 'Field "colour" is not a valid field to query.')


# Failures


def test_a_cut_host_does_not_answer_and_its_sessions_go_on_after_the_cut(
    host: Host, session: subprocess.Popen[str]
) -> None:
    host.cut()
    assert not host.serves(22)
    session.stdin.write("sent while cut\n")
    host.reconnect()
    assert session.stdout.readline() == "sent while cut\n"
    wait_for(lambda: host.serves(22), "sshd")


def test_a_frozen_host_and_its_containers_stop_until_it_thaws(
    fleet: Fleet, host: Host, session: subprocess.Popen[str]
) -> None:
    start(fleet, host, TICK)
    wait_for_ticks(host)
    host.freeze()
    before = ticks(host)
    session.stdin.write("sent while frozen\n")
    time.sleep(0.5)  # more than twenty ticks of a running host
    assert ticks(host) == before
    host.thaw()
    assert session.stdout.readline() == "sent while frozen\n"
    wait_for_ticks(host)


def test_power_loss_kills_everything_and_keeps_written_files(fleet: Fleet, host: Host) -> None:
    ticking, polite = start(fleet, host, TICK), start(fleet, host, POLITE)
    wait_for_ticks(host)
    host.power_off()
    written = ticks(host)
    assert written
    assert not host.serves(22)
    host.power_on()
    assert ssh(fleet, host, "cat ticks").stdout == written
    assert (status(host, ticking), status(host, polite)) == ("exited", "exited")
    assert not (host.work / "bye").exists()


def test_a_reboot_ends_containers_with_term(fleet: Fleet, host: Host) -> None:
    polite = start(fleet, host, POLITE)
    began = host.state()["State"]["StartedAt"]
    host.reboot()
    assert host.state()["State"]["StartedAt"] != began
    assert status(host, polite) == "exited"
    assert (host.work / "bye").exists()
    assert ssh(fleet, host, "true").returncode == 0


def test_containers_outlive_a_killed_engine_until_it_comes_back(fleet: Fleet, host: Host) -> None:
    ticking = start(fleet, host, TICK)
    host.kill_engine()
    assert not host.engine_answers()
    wait_for_ticks(host)
    host.start_engine("--live-restore")
    assert status(host, ticking) == "running"
    host.kill_engine()
    host.start_engine()
    assert status(host, ticking) == "exited"


def test_a_restarted_sshd_ends_the_sessions(fleet: Fleet, host: Host, session: subprocess.Popen[str]) -> None:
    host.restart_sshd()
    assert pace.wait(session, 60) != 0
    assert ssh(fleet, host, "true").returncode == 0


def test_writing_to_a_full_disk_fails_until_it_is_freed(fleet: Fleet, host: Host) -> None:
    write = "dd if=/dev/zero of=file bs=64k count=4 2>&1"
    host.fill_disk()
    full = ssh(fleet, host, write)
    assert (full.returncode, "No space left on device" in full.stdout) == (1, True)
    host.free_disk()
    host.fill_disk(leave=128 << 10)
    assert ssh(fleet, host, write).returncode == 1
    assert 0 < (host.work / "file").stat().st_size <= 128 << 10
    host.free_disk()
    assert ssh(fleet, host, write).returncode == 0


def test_ssh_refuses_a_changed_host_key(fleet: Fleet, host: Host) -> None:
    host.change_host_key()
    refused = ssh(fleet, host, "true")
    assert (refused.returncode, "HOST IDENTIFICATION HAS CHANGED" in refused.stderr) == (255, True)
    host.restore_host_key()
    assert ssh(fleet, host, "true").returncode == 0


def test_restore_undoes_every_failure(fleet: Fleet, host: Host) -> None:
    start(fleet, host, TICK)
    host.docker("network", "create", "left")
    host.set_gpus(0)
    host.fill_disk()
    host.change_host_key()
    host.kill_engine()
    host.cut()
    host.freeze()
    fleet.hosts["pascal"].power_off()
    fleet.registry.power_off()
    fleet.restore()
    for each in fleet.hosts.values():
        assert ssh(fleet, each, "ls -A; docker ps -aq; docker network ls -q --filter type=custom").stdout == ""
        assert len(ssh(fleet, each, "nvidia-smi", "-L").stdout.splitlines()) == 1
    wait_for(lambda: fleet.registry.serves(5000), "the registry")


# Start and removal


def traces(fleet: Fleet) -> list[object]:
    """Return everything of a fleet that can be found on this machine."""
    engine = fleet.engine
    rules = [line for line in run("iptables", "-w", "-S").splitlines() if engine.group in line]
    loops = [line for line in run("losetup", "--all").splitlines() if str(fleet.folder) in line]
    processes = [*processes_of(fleet.folder), *([engine.interface] if engine.interface.exists() else [])]
    folders = [fleet.folder] if fleet.folder.exists() else []
    return [*processes, *rules, *loops, *mounts_under(fleet.folder), *groups_of(engine.group), *folders]


def test_a_second_fleet_starts_over_its_own_leftovers_and_leaves_nothing_behind(fleet: Fleet) -> None:
    with Fleet.claimed() as second:
        assert second.number != fleet.number
        second.up(hosts=1, gpus=2)
        second.hosts["turing"].freeze()
        os.kill(second.engine.pid, signal.SIGKILL)
        wait_for(lambda: not second.engine.pid, "the end of its engine")
        second.up(hosts=1, gpus=2)
        host = second.hosts["turing"]
        assert len(ssh(second, host, "nvidia-smi", "-L").stdout.splitlines()) == 2
        assert second.known_hosts.read_text().split()[1:] == fleet.known_hosts.read_text().splitlines()[0].split()[1:]
        assert traces(second)
    assert traces(second) == []
    assert ssh(fleet, fleet.hosts["turing"], "true").returncode == 0


def test_a_running_fleet_is_found_again_by_its_number(fleet: Fleet) -> None:
    again = Fleet.found(fleet.number)
    assert again.hosts == fleet.hosts
    with pytest.raises(FleetError, match="no fleet with the number 199 is up"):
        Fleet.found(199)


def test_a_missing_program_is_named_with_the_way_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FleetError, match=r"not installed: .*docker\.io.* make system"):
        parts.prepare()


def test_a_part_is_made_once_for_the_same_inputs_and_an_interrupted_one_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNG_CACHE", str(tmp_path))
    made = []

    def make(to: Path) -> None:
        made.append(to)
        (to / "half").touch()
        if len(made) == 1:
            raise FleetError("interrupted")

    with pytest.raises(FleetError):
        parts.part("thing", ["a"], make, "a thing")
    first = parts.part("thing", ["a"], make, "a thing")
    assert parts.part("thing", ["a"], make, "a thing") == first
    assert parts.part("thing", ["b"], make, "a thing") != first
    assert len(made) == 3


def test_parts_that_a_running_fleet_uses_are_not_removed(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = {
        path.name for kind in ("engine", "images") for path in parts.cache().glob(f"{kind}-*") if is_mounted_from(path)
    }
    assert {name.partition("-")[0] for name in read} == {"engine", "images"}
    monkeypatch.setenv("RUNG_CACHE", str(tmp_path))
    for name in read:
        (parts.cache() / name).mkdir(parents=True)
    for key in range(parts.KEPT + 1):
        parts.part("engine", [str(key)], lambda to: None, "nothing")
    left = {path.name for path in parts.cache().glob("engine-*")}
    assert left > {name for name in read if name.startswith("engine-")}
    assert len(left - read) == parts.KEPT


def test_tests_on_the_fleet_can_be_left_out() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-n0",
        "-p",
        "no:cacheprovider",
        Path(__file__).parent,
    ]
    done = subprocess.run(command, env={**os.environ, "RUNG_TEST_FLEET": "off"}, capture_output=True, text=True)
    assert "no tests collected" in done.stdout
