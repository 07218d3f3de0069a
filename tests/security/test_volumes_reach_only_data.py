"""Tests that no volume gives a job control of its host.

0.1.0 took `/home/rung:/data`, with which a job wrote ~/.ssh/authorized_keys2, and mounted a link to the socket of the
engine.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import EngineError, InventoryError, SpecError
from rung.jobs.spec.load import parse_spec
from rung.jobs.spec.volume import Volume, inside, why_refused
from rung.runner.hosts.host_list import parse_hosts
from rung.runner.hosts.host_volumes import VolumeRules, resolve_volumes
from tests.support.random_inputs import FEW, MANY, each, text

IMAGE = f"r/t@sha256:{'0' * 64}"
HOME, SOCKET = "/home/rung", "/srv/engine/docker.sock"


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/",
            "//",
            "/etc",
            "/etc/x",
            "/proc",
            "/sys/fs",
            "/dev/shm",
            "/boot",
            "/root",
            "/root/data",
            "/run",
            "/run/x",
        ),
        *("/var", "/var/run", "/var/lib", "/var/lib/docker/volumes", "/var/run/docker.sock", "/run/docker.sock"),
        *("/home", "/home/rung/.ssh", "/home/rung/.rung/store/jobs", "/home/anyone/.docker", "/home/anyone/bin"),
        *("/home/rung/.bashrc", "/home/rung/.config/systemd", "/home/./rung//.ssh/"),
    ],
)
def test_a_job_file_that_certainly_asks_for_the_host_itself_is_refused(path: str) -> None:
    text = f'name: a\nrun: x\nimage: {IMAGE}\nvolumes: ["/data:/ok", "{path}:/mnt"]\n'
    with pytest.raises(SpecError, match=r"^4: volumes\[1\]: .*; give a folder of yours"):
        parse_spec(text.encode())


@pytest.mark.parametrize(
    "path", ["/data", "/home/rung/data", "/home/rung/a/.b", "/var/data", "/srv", "/mnt/x", "/rooted"]
)
def test_a_folder_with_data_is_accepted(path: str) -> None:
    text = f'name: a\nrun: x\nimage: {IMAGE}\nvolumes: ["{path}:/mnt"]\n'
    assert parse_spec(text.encode()).mounted == (Volume(path, "/mnt"),)


@pytest.mark.parametrize(
    "path",
    [
        *("/home/rung", "/home", "/home/rung/.ssh", "/home/rung/.cache/x", "/home/rung/bin/x"),
        *("/srv", "/srv/engine", "/srv/engine/docker.sock", "/srv/engine/containerd"),
    ],
)
def test_on_its_host_the_home_and_the_socket_are_known_and_refused(path: str) -> None:
    assert why_refused(path, (HOME,), (SOCKET,))


PARTS = ("home", "rung", ".ssh", "bin", "data", "srv", "engine", "etc", "var", "lib", "x")


def random_path(rng: random.Random, parts: tuple[str, ...] = PARTS) -> str:
    return "/" + "/".join(rng.choices(parts, k=rng.randrange(6)))


def holds_nothing_that_matters(rng: random.Random) -> None:
    path = random_path(rng)
    if why_refused(path, (HOME,), (SOCKET,)) is None:
        for own in ("/etc", "/var/lib/docker", "/root", "/srv/engine", f"{HOME}/.ssh", f"{HOME}/bin"):
            assert not inside(path, own) and not inside(own, path)
        assert not inside(HOME, path)


@pytest.mark.parametrize("many", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
def test_a_path_that_is_accepted_neither_holds_nor_lies_in_anything_that_matters(many: int) -> None:
    each(many, holds_nothing_that_matters)


class Machine:
    """A folder that plays a host: its account's home, data, a socket, and the real script in a real shell."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home, self.data = folder, folder / "home" / "rung", folder / "data"
        self.socket = folder / "engine" / "docker.sock"
        for made in (self.home / ".ssh", self.home / "results", self.data / "set", self.socket.parent):
            made.mkdir(parents=True)
        self._listener = socket.socket(socket.AF_UNIX)
        # Bound by a relative path: the one of a test is too long for a socket.
        before = Path.cwd()
        os.chdir(self.socket.parent)
        self._listener.bind("docker.sock")
        os.chdir(before)

    def close(self) -> None:
        self._listener.close()

    def script(self, script: str, *arguments: str) -> str:
        command = ["sh", "-c", script, "rung", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def resolve(self, path: Path, roots: tuple[Path, ...] = (), made: Path | None = None) -> str:
        rules = VolumeRules("turing", str(self.socket), tuple(map(str, roots)))
        wanted = [Volume(str(self.data), "/data", True), Volume(str(path), "/mnt")]
        found = resolve_volumes(self.script, wanted, str(self.home), rules, made=str(made) if made else None)
        assert found[0] == wanted[0] and found[1].container == "/mnt"
        return found[1].host

    def refusal(self, path: Path, roots: tuple[Path, ...] = ()) -> str:
        with pytest.raises(EngineError) as raised:
            self.resolve(path, roots)
        message = str(raised.value)
        assert "\n" not in message and message.startswith(f"turing: volume {path}")
        return message


@pytest.fixture
def machine(tmp_path: Path) -> Any:
    made = Machine(tmp_path)
    yield made
    made.close()


def test_a_volume_that_the_job_could_replace_by_a_link_is_refused(machine: Machine) -> None:
    """Between the check and the mount: through the outer volume, the job writes the folder that holds the inner one."""
    rules = VolumeRules("turing", str(machine.socket))
    outer, inner = str(machine.data), str(machine.data / "set")

    def resolved(*volumes: Volume) -> list[str]:
        found = resolve_volumes(machine.script, volumes, str(machine.home), rules, made=None)
        return [volume.host for volume in found]

    for wanted in ([Volume(outer, "/a"), Volume(inner, "/b")], [Volume(inner, "/b", True), Volume(outer, "/a")]):
        with pytest.raises(EngineError, match=f"volume {inner} lies in {outer}, which the job may write"):
            resolved(*wanted)
    assert resolved(Volume(outer, "/a", True), Volume(inner, "/b")) == [outer, inner]
    assert resolved(Volume(outer, "/a"), Volume(outer, "/b")) == [outer, outer]


def test_a_link_is_refused_for_what_it_leads_to(machine: Machine) -> None:
    targets = {
        "home": (machine.home, "holds the account's own files"),
        "keys": (machine.home / ".ssh", "is the account's own"),
        "deep": (machine.home / ".ssh" / "not" / "there", "is the account's own"),
        "socket": (machine.socket, "holds the socket of the engine"),
        "engine": (machine.socket.parent, "holds the socket of the engine"),
        "root": (Path("/"), "belongs to the host itself"),
        "etc": (Path("/etc"), "belongs to the host itself"),
    }
    for name, (target, words) in targets.items():
        link = machine.data / name
        link.symlink_to(target)
        message = machine.refusal(link)
        assert f"{link}, which is {target}, {words}" in message
    # Also in the middle of a path, and by several steps.
    (machine.data / "again").symlink_to("home/.ssh")
    assert "is the account's own" in machine.refusal(machine.data / "again")
    assert "is the account's own" in machine.refusal(machine.data / "home" / ".ssh")


def test_a_home_or_a_socket_that_is_a_link_itself_is_protected_in_both_places(machine: Machine) -> None:
    real, machine.home = machine.home, machine.folder / "account"
    machine.home.symlink_to(real)
    assert "holds the account's own files" in machine.refusal(real)
    assert "is the account's own" in machine.refusal(real / ".ssh")
    socket_there, machine.socket = machine.socket, machine.folder / "docker.sock"
    machine.socket.symlink_to(socket_there)
    assert "holds the socket of the engine" in machine.refusal(socket_there.parent)


def test_the_resolved_path_is_what_is_mounted(machine: Machine) -> None:
    link = machine.folder / "current"
    link.symlink_to(machine.data / "set")
    assert machine.resolve(link) == str(machine.data / "set")
    assert machine.resolve(machine.home / "results") == str(machine.home / "results")
    odd = machine.data / "a b $(id) '\" -n"
    odd.mkdir()
    assert machine.resolve(odd) == str(odd)


def test_a_volume_that_is_missing_or_no_folder_gives_a_clear_error(machine: Machine) -> None:
    missing = machine.data / "nothing"
    assert machine.refusal(missing).endswith("is not there: make the folder on the host, or correct the job file")
    # Rung makes the folder for checkpoints.
    assert machine.resolve(missing, made=missing / "run") == str(missing)
    os.mkfifo(machine.data / "pipe")
    assert machine.refusal(machine.data / "pipe").endswith("is neither a folder nor a file")


def test_where_roots_are_listed_a_volume_must_lie_in_one_of_them(machine: Machine) -> None:
    roots = (machine.data, machine.folder / "scratch")
    assert machine.resolve(machine.data / "set", roots) == str(machine.data / "set")
    assert "lies in none of the folders that rung_volume_roots allows" in machine.refusal(
        machine.home / "results", roots
    )
    (machine.data / "out").symlink_to(machine.home / "results")
    assert "lies in none of the folders" in machine.refusal(machine.data / "out", roots)
    # A root may be a link, and does not allow what is always refused.
    linked = machine.folder / "disk"
    linked.symlink_to(machine.data)
    assert machine.resolve(machine.data / "set", (linked, machine.data)) == str(machine.data / "set")
    assert "is the account's own" in machine.refusal(machine.home / ".ssh", (machine.home, machine.data))


@pytest.mark.parametrize(
    "answer",
    [
        *("", "x", "0 folder /a", "0 folder /a\n1 folder /b\n2 folder /c\n3 folder /d\n", "0 folder a\n1 folder b\n2"),
        *("1 folder /a\n0 folder /b\n2 folder /c\n", "0 folder /a\n1 folder /b\n2 device /c\n", "\x00\n" * 3),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(answer: str) -> None:
    with pytest.raises(EngineError, match="its volumes cannot be resolved"):
        rules = VolumeRules("turing", SOCKET)
        resolve_volumes(lambda *words: answer, [Volume("/data", "/d")], HOME, rules, made=None)


def answer_of_a_host(rng: random.Random) -> str:
    """Return what the script prints for the home, the socket, a root and two volumes, or something like it."""
    if rng.random() < 0.2:
        return text(rng, most=60)
    kinds, odd = ("folder", "file", "other", "missing", "x"), ("..", "\n3 folder ", " ", "\x1b[2J")
    numbers = range(5) if rng.random() < 0.7 else [rng.randrange(7) for _ in range(rng.randrange(7))]
    return "".join(f"{number} {rng.choice(kinds)} {random_path(rng, (*PARTS, *odd))}\n" for number in numbers)


def mounts_only_allowed(rng: random.Random) -> None:
    answer = answer_of_a_host(rng)
    rules, wanted = VolumeRules("turing", SOCKET, ("/data",)), [Volume("/data/a", "/a"), Volume("/data/b", "/b")]
    try:
        found = resolve_volumes(lambda *words: answer, wanted, HOME, rules, made="/data/a")
    except EngineError as error:
        assert "\x1b" not in str(error) and "\n" not in str(error)
    else:
        assert [why_refused(volume.host, (HOME,), (SOCKET,)) for volume in found] == [None, None]
        assert not any(".." in Path(volume.host).parts or "\x1b" in volume.host for volume in found)


@pytest.mark.parametrize("many", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
def test_whatever_a_host_answers_only_allowed_paths_are_mounted(many: int) -> None:
    each(many, mounts_only_allowed)


def test_a_path_with_a_line_break_cannot_answer_for_another_volume(machine: Machine) -> None:
    """A link of a job's may lead to a name with a line break that looks like the next answer."""
    target = machine.data / f"x\n4 folder {machine.data}"
    target.mkdir(parents=True)
    (machine.data / "link").symlink_to(target)
    with pytest.raises(EngineError, match="its volumes cannot be resolved"):
        machine.resolve(machine.data / "link")


def test_the_list_of_hosts_gives_the_roots_of_a_host_or_a_group() -> None:
    text = "all: {vars: {rung_volume_roots: [/data, /scratch/]}, hosts: {a: , b: {rung_volume_roots: /fast}}}"
    assert {host.name: host.volume_roots for host in parse_hosts(text.encode())} == {
        "a": ("/data", "/scratch"),
        "b": ("/fast",),
    }
    for wrong in ("[]", "data", "[/data, x]", "[/data/..]", "~/data", "[[/data]]", "{a: /data}", "1"):
        with pytest.raises(InventoryError, match="rung_volume_roots: should be a list of paths"):
            parse_hosts(f"all: {{hosts: {{a: {{rung_volume_roots: {wrong}}}}}}}".encode())
