"""Tests that the health check of a host runs an image only in the seal of a job, and that nothing there can hold it up.

0.1.0 ran `/usr/bin/nvidia-smi` of any labelled image as root, with all GPUs, all default capabilities and no limits.
"""

from __future__ import annotations

import os
import pwd
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from rung.jobs.model.paths import AttemptPaths
from rung.runner.engines.docker.container_config import probe_config
from rung.runner.engines.on_host.layout import HostLayout, RemoteUser
from rung.runner.seams.engine import Container, Request
from tests import pace

ANSIBLE = Path(__file__).resolve().parents[2] / "ansible"
GPUS = ("GPU-11111111-0000-0000-0000-000000000000", "GPU-22222222-0000-0000-0000-000000000000")
SMI = f"""#!/bin/sh
case "$*" in
-L) printf 'GPU 0: P100 (UUID: %s)\\nGPU 1: P100 (UUID: %s)\\n' {GPUS[0]} {GPUS[1]} ;;
*query-gpu=uuid*) printf '%s\\n' {GPUS[0]} {GPUS[1]} ;;
*query-gpu=driver_version*) echo 535.1.1 ;;
*query-gpu=*) echo '0, 0' ;;
esac
"""
# Writes its arguments down, one call after an empty line, and plays the program of the image.
DOCKER = """#!/bin/sh
{ echo; printf '%s\\n' "$@"; } >> "$CALLS"
case "$1" in
info) echo "24.0 json-file true" ;;
images) echo 0123456789ab ;;
run) eval "$PROGRAM" ;;
esac
"""
# The seal of a probe container, and the argument of `docker run` for each part of it.
SEAL = {
    "CapDrop": ["--cap-drop", "ALL"],
    "SecurityOpt": ["--security-opt", "no-new-privileges"],
    "ReadonlyRootfs": ["--read-only"],
    "NetworkMode": ["--network", "none"],
    "IpcMode": ["--ipc", "private"],
    "PidsLimit": ["--pids-limit", "64"],
    "Memory": ["--memory", "512m"],
    "MemorySwap": ["--memory-swap", "512m"],
}


def render(account: str, home: str) -> str:
    """Render the script of the role for an account with one key."""
    defaults = yaml.safe_load((ANSIBLE / "roles/health/defaults/main.yml").read_text())
    known = yaml.safe_load((ANSIBLE / "group_vars/all.yml").read_text())
    values = defaults | known | {"provision_types": ["p100"], "health_cuda": "12", "health_account": account}
    values |= {"health_keys": ["ssh-ed25519 AAAA somebody"], "health_time": "", "health_data_root": home}
    world = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)
    world.filters |= {"quote": shlex.quote, "extract": lambda key, table, field: table[key][field]}
    return world.from_string((ANSIBLE / "roles/health/templates/health.sh.j2").read_text()).render(values)


@dataclass(frozen=True)
class Checked:
    """What the script printed, and how it called docker."""

    lines: list[str]
    calls: list[list[str]]

    def calls_of(self, word: str) -> list[list[str]]:
        return [call for call in self.calls if call[0] == word]


def check(folder: Path, program: str, account: str = "daemon") -> Checked:
    """Run the script with a docker of ours, which plays this program of the image."""
    stand_ins, calls = folder / "bin", folder / "calls"
    stand_ins.mkdir()
    for name, text in {"nvidia-smi": SMI, "docker": DOCKER, "nvidia-container-runtime-hook": "#!/bin/sh\n"}.items():
        (stand_ins / name).write_text(text)
        (stand_ins / name).chmod(0o755)
    env = {"PATH": f"{stand_ins}:{os.environ['PATH']}", "CALLS": str(calls), "PROGRAM": program}
    done = pace.run(
        ["sh", "-s", "whole"],
        input=render(account, str(folder)).encode(),
        env=env,
        capture_output=True,
        usual=30,
        check=True,
    )
    called = [part.splitlines() for part in calls.read_text().split("\n\n")]
    return Checked(done.stdout.decode().splitlines(), [[word for word in call if word] for call in called])


def has(call: Sequence[str], words: Sequence[str]) -> bool:
    """Tell whether a call has these words next to each other."""
    return any(list(call[at : at + len(words)]) == list(words) for at in range(len(call)))


def seal_of_a_probe() -> dict[str, Any]:
    nowhere = Path("/")
    request = Request("a", 1, ("x",), nowhere, {}, AttemptPaths(nowhere), nowhere, container=Container("i"))
    config: dict[str, Any] = probe_config(request, HostLayout(RemoteUser("/home/a", 1, 1), "s", ""), ("x",))
    return config["HostConfig"]


def test_an_image_is_run_in_the_seal_of_a_job(tmp_path: Path) -> None:
    checked = check(tmp_path, "nvidia-smi -L")
    (run,) = checked.calls_of("run")
    daemon = pwd.getpwnam("daemon")
    assert has(run, ["--user", f"{daemon.pw_uid}:{daemon.pw_gid}"]), "it is the account of Rung, never root"
    probe = seal_of_a_probe()
    for part, words in SEAL.items():
        assert part in probe, "a job's probe is sealed in the same way"
        assert has(run, words), part
    assert has(run, ["--pull", "never"]), "nothing is downloaded for a check"
    assert not {"--privileged", "--volume", "-v", "--mount", "--cap-add", "--device"} & set(run)
    assert "good\tcontainer\tall 2 GPUs are seen in one\t" in checked.lines


def test_only_the_gpus_that_are_checked_are_given(tmp_path: Path) -> None:
    (run,) = check(tmp_path, "nvidia-smi -L").calls_of("run")
    assert has(run, ["--gpus", f'"device={GPUS[0]},{GPUS[1]}"'])
    assert "all" not in run


@pytest.mark.parametrize("account", ["root", "nobody-has-this-name"])
def test_an_image_never_runs_as_root(tmp_path: Path, account: str) -> None:
    (run,) = check(tmp_path, "nvidia-smi -L", account).calls_of("run")
    assert has(run, ["--user", "65534:65534"])


@pytest.mark.parametrize(
    "program",
    ["exec yes 'GPU 0: fake'", "exec tr '\\0' 'x' < /dev/zero", "exec sh -c 'exit 1'"],
    ids=["lines", "one line", "fails"],
)
def test_a_program_that_lies_floods_or_fails_is_found_and_its_container_removed(tmp_path: Path, program: str) -> None:
    checked = check(tmp_path, program)
    (run,) = checked.calls_of("run")
    name = run[run.index("--name") + 1]
    assert ["rm", "--force", name] in checked.calls
    assert any(line.startswith("bad\tcontainer\t") for line in checked.lines)


def test_a_pipe_in_the_place_of_the_keys_does_not_hold_the_check_up(tmp_path: Path) -> None:
    """A root's `grep` on it would wait for ever."""
    me = pwd.getpwuid(os.getuid())
    folder = tmp_path / "home" / ".ssh"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "authorized_keys")
    (tmp_path / "getent").write_text(f"#!/bin/sh\necho '{me.pw_name}:x:1:1::{folder.parent}:/bin/sh'\n")
    (tmp_path / "getent").chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script = render(me.pw_name, str(tmp_path)).partition("look_at_key\nlook_at_disk")[0] + "look_at_key\n"
    done = subprocess.run(["sh", "-s"], input=script, env=env, capture_output=True, text=True, timeout=pace.seconds(30))
    assert "1 of 1 keys are missing" in done.stdout
