"""A machine that nobody has prepared, for the tests of provisioning, and running the make targets on it."""

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
    """What a run of a playbook said, and what it counted for each host."""

    said: str
    code: int

    @property
    def changed(self) -> dict[str, int]:
        return {name: int(changed) for name, _, changed, _, _ in RECAP.findall(self.said)}

    @property
    def failed(self) -> set[str]:
        return {
            name for name, _, _, unreachable, failed in RECAP.findall(self.said) if (unreachable, failed) != ("0", "0")
        }


@dataclass(frozen=True)
class Site:
    """The machine, and a person with the project's Makefile."""

    fleet: Fleet
    folder: Path

    @property
    def host(self) -> Host:
        return self.fleet.hosts["pascal"]

    def make(self, target: str, **settings: object) -> Played:
        """Run a make target as a person does, with the machine as the list of hosts."""
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
        """Write variables to a file, which may be named in VARS."""
        path = self.folder / "vars.json"
        path.write_text(json.dumps(values))
        return path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Bring a bare machine up, which had an account of that name before, with a password and with sudo."""
    with BareFleet.claimed() as fleet:
        site = Site(fleet.up(hosts=1), tmp_path_factory.mktemp("site"))
        site.host.run("useradd", "--create-home", "--groups", "sudo", "rung")
        site.host.run("chpasswd", input=b"rung:guess me\n")
        yield site


@pytest.fixture(scope="module")
def provisioned(site: Site) -> Played:
    """Return what the first run on a bare machine said."""
    played = site.make("provision")
    assert played.code == 0, played.said[-6000:]
    return played


@pytest.fixture
def campaign(site: Site, tmp_path: Path) -> Iterator[Campaign]:
    made = Campaign(tmp_path, site.fleet)
    yield made
    made.close()
