"""Gives the tests of provisioning a bare machine, and runs the make targets on it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import pace
from tests.fleet.bare.machines import BareFleet
from tests.fleet.campaign import Campaign
from tests.fleet.fleet import Fleet
from tests.fleet.host import Host

collect_ignore_glob = ["test_*.py"] if os.environ.get("RUNG_TEST_FLEET") == "off" else []

ROOT = Path(__file__).resolve().parents[3]
RECAP = re.compile(r"^(\S+) +: ok=(\d+) +changed=(\d+) +unreachable=(\d+) +failed=(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Played:
    """The output and the exit code of a playbook run."""

    output: str
    code: int

    @property
    def changed(self) -> dict[str, int]:
        return {name: int(changed) for name, _, changed, _, _ in RECAP.findall(self.output)}

    @property
    def failed(self) -> set[str]:
        return {
            name
            for name, _, _, unreachable, failed in RECAP.findall(self.output)
            if (unreachable, failed) != ("0", "0")
        }


@dataclass(frozen=True)
class Site:
    """The bare machine, and the project's make targets."""

    fleet: Fleet
    folder: Path

    @property
    def host(self) -> Host:
        return self.fleet.hosts["pascal"]

    def make(self, target: str, **settings: object) -> Played:
        """Run a make target with the machine as the only host."""
        words = [
            "make",
            "--no-print-directory",
            "-C",
            ROOT,
            target,
            *(f"{key}={value}" for key, value in settings.items()),
        ]
        own = {
            "RUNG_HOSTS": str(self.fleet.inventory),
            "ANSIBLE_HOME": str(self.folder / "ansible"),
            "ANSIBLE_NOCOLOR": "1",
        }
        done = pace.run(words, env={**os.environ, **own}, capture_output=True, text=True, usual=600)
        return Played(done.stdout + done.stderr, done.returncode)

    def vars(self, **values: object) -> Path:
        """Write variables to a file for VARS, and return its path."""
        path = self.folder / "vars.json"
        path.write_text(json.dumps(values))
        return path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Bring up a bare machine that already has an account `rung`, with a password and with sudo."""
    with BareFleet.claimed() as fleet:
        site = Site(fleet.up(hosts=1), tmp_path_factory.mktemp("site"))
        site.host.run("useradd", "--create-home", "--groups", "sudo", "rung")
        site.host.run("chpasswd", input=b"rung:guess me\n")
        yield site


@pytest.fixture(scope="module")
def provisioned(site: Site) -> Played:
    """Provision the bare machine for the first time, and return the run."""
    played = site.make("provision")
    assert played.code == 0, played.output[-6000:]
    return played


@pytest.fixture
def campaign(site: Site, tmp_path: Path) -> Iterator[Campaign]:
    made = Campaign(tmp_path, site.fleet)
    yield made
    made.close()
