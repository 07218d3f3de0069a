"""Tests that a container is isolated: it has no rights and no engine socket, and nobody can read its secrets."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rung.jobs.model.errors import EngineError
from rung.jobs.spec.volume import Volume
from tests.fleet.containers.conftest import STORE, Attempts

LOOK = """
id -u; id -g
grep -E '^(Cap(Eff|Prm|Bnd|Amb)|NoNewPrivs|Seccomp)' /proc/self/status
touch /x 2>&1; touch /etc/x 2>&1; touch /rung/inside/x 2>&1
touch /tmp/x && echo tmp is ours; touch /rung/work/x && echo work is ours; touch /rung/job/x && echo job is ours
ls /var/run/docker.sock /run/docker.sock 2>&1
chown 0 /tmp/x 2>&1
mount -t tmpfs none /tmp 2>&1
ls /sys/class/net
"""


def test_a_container_has_no_rights_no_socket_and_a_read_only_root(attempts: Attempts) -> None:
    request = attempts.sh(LOOK, network="none")
    attempts.end(request)
    log = attempts.log(request)
    lines = log.splitlines()
    assert lines[:2] == ["1000", "1000"]
    for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb"):
        assert f"{name}:\t0000000000000000" in lines
    assert "NoNewPrivs:\t1" in lines
    assert log.count("Read-only file system") == 3
    assert [f"{what} is ours" in lines for what in ("tmp", "work", "job")] == [True] * 3
    assert log.count("No such file or directory") == 2
    assert "Operation not permitted" in log
    assert lines[-1] == "lo"


SECRET = "hush-7f3a'\"; rm -rf $(id)\nsecond line\\n"
PART = "hush-7f3a"


def test_a_secret_is_only_in_the_environment_of_the_job(attempts: Attempts) -> None:
    waits = "while [ ! -e /rung/job/go ]; do sleep 0.1; done"
    script = f'printf %s "$HF_TOKEN" | md5sum; ls -A /rung/secrets; echo listed; {waits}'
    (attempts.source / "train.py").write_text("print()\n")
    request = attempts.sh(script, secrets={"HF_TOKEN": SECRET, "_rung_value": "x", "PATH_2": ""})
    attempts.wait_for_log(request, "listed")
    host, name = attempts.host, attempts.name(request)
    inspected = host.docker("inspect", name)
    assert "/rung/secrets" in inspected
    assert PART not in inspected
    assert PART not in host.docker("history", "--no-trunc", attempts.fleet.images["tiny"])
    # The command lines of all processes of the host and its containers.
    assert PART not in host.run("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "docker" in host.run("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    # Every file of the account and of the engine, the tmpfs of the secret, and everything of the controller.
    for folder in ("/home/rung", "/dev/shm", "/tmp", "/run", "/var/lib/docker/containers"):
        found = host.run("grep", "-rlF", "--devices=skip", "-e", PART, folder, check=False)
        assert found == "", folder
    host.run("sh", "-c", f"touch /home/rung/.rung/{STORE}/jobs/a-1/stays/1/go")
    assert attempts.end(request).exit_code == 0
    expected = subprocess.run(["md5sum"], input=SECRET.encode(), capture_output=True, check=True).stdout.split()[0]
    assert attempts.log(request).splitlines() == [f"{expected.decode()}  -", "listed"]
    assert grep(attempts.folder, PART) == ""
    assert host.run("ls", "-A", "/dev/shm") == ""


def grep(folder: Path, text: str) -> str:
    return subprocess.run(["grep", "-rlF", text, folder], capture_output=True, text=True, check=False).stdout


def test_secrets_are_refused_when_dev_shm_is_not_a_tmpfs(attempts: Attempts) -> None:
    attempts.host.run("umount", "/dev/shm")
    try:
        with pytest.raises(EngineError, match=r"/dev/shm is no tmpfs"):
            attempts.start("true", secrets={"HF_TOKEN": SECRET})
        assert attempts.host.run("grep", "-rlF", "-e", PART, "/dev/shm", "/home/rung", check=False) == ""
        assert attempts.containers() == []
    finally:
        attempts.host.run("mount", "-t", "tmpfs", "shm", "/dev/shm")


HOSTILE = "; touch /tmp/pwned; $(touch /tmp/pwned) `touch /tmp/pwned` '\"\\ \n\x1b]0;x\x07\x1b[2J -rf *"


def test_hostile_arguments_values_paths_and_names_are_not_interpreted(attempts: Attempts) -> None:
    data = attempts.host.work / "d; touch pwned $(x) '\""
    data.mkdir()
    (data / "f").write_text("from the volume")
    attempts.host.run("chown", "-R", "1000:1000", f"/home/rung/{data.name}")
    odd = attempts.source / HOSTILE.replace("/", "_")
    odd.write_text("from the workdir")
    (attempts.source / "sub").mkdir()
    (attempts.source / "sub" / "-rf").write_text("x")
    words = 'for w in "$@"; do printf "%s|" "$w"; done; echo; printf "%s" "$HOSTILE"'
    script = f"{words}; cat /data/f; cat ./*pwned*; ls /tmp sub"
    volume = Volume(f"/home/rung/{data.name}", "/data", read_only=True)
    request = attempts.start("sh", "-c", script, "sh", HOSTILE, "-rf", "", env={"HOSTILE": HOSTILE}, volumes=(volume,))
    assert attempts.end(request).exit_code == 0
    assert attempts.log(request) == f"{HOSTILE}|-rf||\n{HOSTILE}from the volumefrom the workdir/tmp:\n\nsub:\n-rf\n"
    assert attempts.host.run("find", "/", "-xdev", "-name", "pwned", check=False) == ""
    assert not Path("/tmp/pwned").exists()


def test_a_job_is_refused_when_the_account_is_root(attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = type(attempts.remote).run

    def as_root(self: object, argv: list[str], *words: object, **more: object) -> object:
        ran = asked(self, argv, *words, **more)  # type: ignore[arg-type]
        return type(ran)(0, b"/root\n0\n0\n", b"") if "id -u" in " ".join(argv) else ran

    monkeypatch.setattr(type(attempts.remote), "run", as_root)
    with pytest.raises(EngineError, match="never run as root"):
        attempts.start("true")
