"""Tests the survey of hosts: what `rung hosts` and `rung check` show, with real hosts over SSH."""

from __future__ import annotations

import json
import os
import shutil
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rung.jobs.model.gpu import Gpu
from rung.jobs.model.host import Host
from rung.runner.hosts.engine_facts import OURS
from rung.runner.hosts.nvidia_smi import GpuUser
from rung.runner.hosts.survey import Disk, GpuState, Report, gpu_states, parse_facts, parse_owners, survey
from rung.runner.preflight.check_host import check_host
from rung.runner.ssh.remote import SshRemote
from rung.runner.views.hosts_table import hosts_json, hosts_table
from tests.support.sshd import Sshd

Rung = Callable[..., Any]
Reach = Callable[..., SshRemote]
TITAN = Gpu("NVIDIA TITAN RTX", (7, 5), 0, "GPU-5f1c", 24 << 30, "580.65.06")
HEALTHY = Report(
    Host("titan1", "192.0.2.11", engine_socket="/run/docker.sock"),
    engine="27.1.1",
    user="trainer",
    socket="open",
    programs=("dockerd",),
    disks=(Disk("/", 200 << 30, 900 << 30, engine=True), Disk("/home", 2 << 30, 4 << 30)),
    gpus=(GpuState(TITAN),),
)
CONTAINER = "ab" * 32
# The output of nvidia-smi on a host with one GPU, for both queries.
DRIVER = """#!/bin/sh
case $1 in
  --query-gpu=*) echo "0, GPU-5f1c, 24220, 580.65.06, 7.5, NVIDIA TITAN RTX" ;;
  *) echo "GPU-5f1c, {pid}, 1000, python train.py" ;;
esac
"""


class EngineServer(socketserver.ThreadingUnixStreamServer):
    """A fake engine on a host that sends the given answers over plain HTTP."""

    daemon_threads = True
    answers: dict[str, bytes]


class Answer(socketserver.StreamRequestHandler):
    server: EngineServer

    def handle(self) -> None:
        question = self.rfile.readline().split()[1].decode()
        while self.rfile.readline().strip():
            pass
        body = self.server.answers.get(question, b"")
        head = b"HTTP/1.1 200 OK\r\n" if body else b"HTTP/1.1 500 no\r\n"
        self.wfile.write(body if body.startswith(b"RAW") else head + b"Content-Length: %d\r\n\r\n" % len(body) + body)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EngineServer]:
    server = EngineServer(str(tmp_path / "engine.sock"), Answer)
    containers = [{"Id": CONTAINER, "Labels": {"rung.job": "mmgcn-7"}}]
    server.answers = {"/version": b'{"Version": "27.1.1"}', OURS: json.dumps(containers).encode()}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def driver(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that puts a driver's nvidia-smi into a folder for the host's PATH."""

    def install(script: str) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "nvidia-smi").write_text(script)
        (folder / "nvidia-smi").chmod(0o755)
        return folder

    return install


@pytest.fixture
def gpu_host(
    new_sshd: Callable[..., Sshd], driver: Callable[[str], Path], engine: EngineServer
) -> Callable[[str], Sshd]:
    """Return a function that starts a host with this script as its driver."""

    def start(script: str) -> Sshd:
        server = new_sshd(f"SetEnv PATH={driver(script)}:/usr/bin:/bin")
        server.introduce()
        return server.start()

    return start


def look(server: Sshd, reach: Reach, now: Callable[[], float] | None = None, **fields: Any) -> Report:
    host = server.host(**fields)
    return survey(host, reach(host), now or time.time)


def bad(report: Report) -> list[tuple[str, str]]:
    return [(finding.what, finding.fix) for finding in check_host(report) if not finding.good]


# The survey, over SSH


def test_a_healthy_host_is_seen_with_its_engine_its_disk_and_its_gpu(
    gpu_host: Callable[[str], Sshd], reach: Reach, engine: EngineServer
) -> None:
    report = look(gpu_host(DRIVER.format(pid=os.getpid())), reach, engine_socket=str(engine.server_address))
    assert (report.away, report.engine, report.engine_trouble, report.socket) == ("", "27.1.1", "", "open")
    assert report.gpus == (GpuState(replace(TITAN, memory=24220 << 20), None, (f"pid {os.getpid()} python train.py",)),)
    assert all(0 <= disk.free <= disk.total and disk.total > 0 for disk in report.disks) and report.disks
    assert report.clock_skew == 0


def test_a_missing_driver_or_engine_is_reported(new_sshd: Callable[..., Sshd], reach: Reach, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("sh", "date", "id", "df", "tail", "sed"):
        (tools / tool).symlink_to(shutil.which(tool) or tool)
    server = new_sshd(f"SetEnv PATH={tools}")
    server.introduce()
    report = look(server.start(), reach, engine_socket=str(tmp_path / "none.sock"))
    assert (report.engine, report.socket, report.driver_missing) == ("", "missing", True)
    assert "does not let us in" in report.engine_trouble
    problems = [what for what, _ in bad(report)]
    assert any("no GPU driver" in what for what in problems)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("#!/bin/sh\necho 'NVIDIA-SMI has failed because it could not talk'; exit 9\n", "NVIDIA-SMI has failed"),
        ("#!/bin/sh\necho 'Field \"compute_cap\" is not a valid field to query.'; exit 2\n", "driver is too old"),
        ("#!/bin/sh\necho sick >&2; exit 9\n", "the GPU driver says: sick"),
        ("#!/bin/sh\nexit 0\n", "the driver names no GPU"),
    ],
)
def test_the_message_of_a_broken_driver_is_reported(
    script: str, message: str, gpu_host: Callable[[str], Sshd], reach: Reach, engine: EngineServer
) -> None:
    report = look(gpu_host(script), reach, engine_socket=str(engine.server_address))
    assert report.gpus == ()
    assert any(message in what for what, _ in bad(report))


def test_a_driver_that_hangs_is_given_up_and_the_other_facts_are_reported(
    gpu_host: Callable[[str], Sshd],
    reach: Reach,
    engine: EngineServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rung.runner.hosts.survey.GPU_SECONDS", 0.5)
    report = look(gpu_host("#!/bin/sh\nsleep 1000\n"), reach, engine_socket=str(engine.server_address))
    assert report.engine == "27.1.1"
    assert any("the driver hangs" in what for what, _ in bad(report))


@pytest.mark.parametrize(
    "answer", [b"", b"not json", b"[]", b"{}", b'{"Version": 1}' * 2, b"RAW nonsense\r\n\r\n", b"[" * 100_000]
)
def test_an_engine_that_sends_nonsense_is_reported(
    answer: bytes, gpu_host: Callable[[str], Sshd], reach: Reach, engine: EngineServer
) -> None:
    engine.answers["/version"] = answer
    report = look(gpu_host(DRIVER.format(pid="[N/A]")), reach, engine_socket=str(engine.server_address))
    assert (report.away, report.engine) == ("", "")
    ((what, _),) = [finding for finding in bad(report) if "disk" not in finding[0]]
    assert "the engine does not answer" in what and what.isprintable()


def test_a_host_that_forbids_sockets_is_reported(
    new_sshd: Callable[..., Sshd], reach: Reach, engine: EngineServer
) -> None:
    server = new_sshd("AllowStreamLocalForwarding no")
    server.introduce()
    report = look(server.start(), reach, engine_socket=str(engine.server_address))
    assert any("AllowStreamLocalForwarding yes" in fix for _, fix in bad(report))


def test_a_clock_that_is_off_is_noticed(sshd: Sshd, reach: Reach) -> None:
    assert any("s off ours" in what for what, _ in bad(look(sshd, reach, lambda: time.time() + 3600)))
    assert any("s off ours" in what for what, _ in bad(look(sshd, reach, lambda: time.time() - 3600)))


# Reports


def test_a_gpu_belongs_to_the_job_in_whose_container_its_process_runs() -> None:
    users = [GpuUser("GPU-5f1c", 11, "python"), GpuUser("GPU-5f1c", 12, "Xorg"), GpuUser("GPU-77aa", None, "[N/A]")]
    groups = f"11 0::/system.slice/docker-{CONTAINER}.scope \n12 0::/user.slice \nx y\n12345678901234 {CONTAINER}\n"
    owners = parse_owners(groups, {CONTAINER: "mmgcn-7"})
    assert owners == {11: "mmgcn-7"}
    other = replace(TITAN, uuid="GPU-77aa", index=1)
    assert gpu_states([TITAN, other, replace(TITAN, uuid="GPU-3")], users, owners) == (
        GpuState(TITAN, "mmgcn-7", ("pid 12 Xorg",)),
        GpuState(other, None, ("pid ? [N/A]",)),
        GpuState(replace(TITAN, uuid="GPU-3")),
    )


def test_the_facts_of_a_host_are_bounded_and_clean() -> None:
    text = (
        "time 99999999999999999999\nuser \x1b[31mroot\nsocket open\n"
        + "home x 1 1 1 1% /\x1b[2J\n"
        + "engine x 1 1 1 1% /\x1b[2J\n" * 9999
        + "\udcff"
    )
    report = parse_facts(HEALTHY, text, 100.0, 101.0)
    assert (report.user, report.clock_skew, report.disks) == ("root", 0.0, (Disk("/", 1024, 1024, engine=True),))


@pytest.mark.parametrize(
    ("change", "what", "fix"),
    [
        ({"engine": "", "socket": "missing", "programs": ()}, "no container engine is installed", "make provision"),
        ({"engine": "", "socket": "missing"}, "the engine is not running", "systemctl enable --now docker"),
        ({"engine": "", "socket": "denied"}, "trainer may not use the engine", "usermod -aG docker trainer"),
        ({"gpus": (), "driver_missing": True}, "no GPU driver", "make provision"),
        ({"gpus": (GpuState(replace(TITAN, driver="470.82")),)}, "driver 470.82 is too old", "make provision"),
        (
            {"disks": (Disk("/", 9 << 30, 90 << 30, engine=True),)},
            "disk nearly full: 9.0 of 90.0 GiB free on /",
            "prune",
        ),
        ({"disks": (Disk("/home", 1 << 29, 9 << 30),)}, "disk nearly full: 0.5 of 9.0 GiB free on /home", "remove"),
        ({"clock_skew": 77.0}, "its clock is 77 s off ours", "timedatectl"),
        ({"away": "titan1: no route"}, "unreachable: no route", "is it up"),
    ],
)
def test_a_missing_part_is_reported_with_a_fix(change: dict[str, Any], what: str, fix: str) -> None:
    ((problem, advice),) = bad(replace(HEALTHY, **change))
    assert problem.startswith("host titan1: ") and what in problem and fix in advice


def test_a_refusal_carries_its_own_advice() -> None:
    ((problem, advice),) = bad(replace(HEALTHY, away="titan1: the host key has changed: do this", refused=True))
    assert (problem, advice) == ("host titan1: the host key has changed: do this", "")


def test_a_healthy_host_has_no_problem() -> None:
    (finding,) = check_host(HEALTHY)
    assert finding.good and finding.what == "host titan1: engine 27.1.1, TITANRTX"


def test_the_table_has_a_line_for_every_gpu_and_every_host() -> None:
    second = GpuState(replace(TITAN, index=1, memory=0, driver=""), "mmgcn-7", ("pid 3 a\x1b[31m",))
    away = Report(Host("pascal1", "192.0.2.21"), away="pascal1: no route to host")
    refused = Report(Host("ampere1", "192.0.2.31"), away="ampere1: the host key has changed", refused=True)
    bare = replace(HEALTHY, host=Host("bare", "x"), gpus=(), driver_missing=True, engine="", disks=())
    lines = hosts_table([replace(HEALTHY, gpus=(GpuState(TITAN), second)), away, refused, bare], 500).splitlines()
    rows = [line.split() for line in lines[1:]]
    assert " ".join(rows[0]) == "titan1 27.1.1 2 GiB 0 NVIDIA TITAN RTX 7.5 24 GiB 580.65.06 free"
    assert rows[1][0] == "1" and " ".join(rows[1]).endswith("7.5 - - job mmgcn-7; not ours: pid 3 a")
    assert rows[2][0] == "pascal1" and lines[3].endswith("unreachable: no route to host")
    assert rows[3][0] == "ampere1" and lines[4].endswith("refused: the host key has changed")
    assert rows[4][:2] == ["bare", "none"] and lines[5].endswith("no GPU driver")


def test_the_json_has_all_fields() -> None:
    (data,) = hosts_json([HEALTHY])
    assert data["reachable"] is True and data["engine"] == "27.1.1"
    assert data["disks"][0] == {"mount": "/", "free": 200 << 30, "total": 900 << 30}
    (gpu,) = data["gpus"]
    assert (gpu["type"], gpu["capability"], gpu["memory"]) == ("TITANRTX", [7, 5], 24 << 30)
    assert (gpu["job"], gpu["strangers"]) == (None, [])
    json.dumps(data)


# The commands


def test_all_hosts_are_shown_at_once_with_the_reason_for_unreachable_ones(
    gpu_host: Callable[[str], Sshd],
    new_sshd: Callable[..., Sshd],
    engine: EngineServer,
    client_home: Path,
    tmp_path: Path,
    rung: Rung,
) -> None:
    server, stranger, gone = gpu_host(DRIVER.format(pid="[N/A]")), new_sshd().start(), new_sshd()

    def entry(one: Sshd) -> dict[str, Any]:
        return {"ansible_host": "127.0.0.1", "ansible_port": one.port, "ansible_user": one.user}

    hosts = {
        "titan1": {**entry(server), "rung_engine_socket": str(engine.server_address)},
        "stranger": entry(stranger),
        "gone": entry(gone),
    }
    file = tmp_path / "hosts.yml"
    file.write_text(yaml.safe_dump({"titanrtx": {"hosts": hosts}}, sort_keys=False))
    env = {"RUNG_HOSTS": str(file), "HOME": str(client_home)}
    ran = rung("hosts", env=env)
    assert (ran.code, ran.err) == (0, "")
    lines = {line.split()[0]: line for line in ran.out.splitlines()}
    assert "NVIDIA TITAN RTX" in lines["titan1"] and "27.1.1" in lines["titan1"]
    assert "refused: the host key of" in lines["stranger"] and ">> " in lines["stranger"]
    assert "unreachable: 127.0.0.1:" in lines["gone"]
    data = json.loads(rung("hosts", "--json", env=env).out)
    assert [(row["name"], row["reachable"]) for row in data] == [("titan1", True), ("stranger", False), ("gone", False)]
    assert data[0]["groups"] == ["titanrtx"] and data[0]["gpus"][0]["type"] == "TITANRTX"
    checked = rung("check", env=env)
    assert (checked.code, checked.err) == (1, "")
    assert "BAD host gone: unreachable" in checked.out and "BAD host stranger: the host key" in checked.out


def test_without_hosts_the_command_names_the_file_for_them(client_home: Path, rung: Rung) -> None:
    ran = rung("hosts")
    assert (ran.code, ran.err) == (0, "")
    assert "ansible/inventory/hosts.yml" in ran.out and "RUNG_HOSTS" in ran.out
    assert json.loads(rung("hosts", "--json").out) == []
