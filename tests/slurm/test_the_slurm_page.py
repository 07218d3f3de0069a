"""Tests the path of a new user of a cluster: the commands of docs/slurm.md, word for word, to the first recovery."""

from __future__ import annotations

import json
import re
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import pace
from tests.slurm.site import BIN, SiteLab
from tests.support.sshd import Sshd

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "slurm.md").read_text(encoding="utf-8")
(SECTION,) = re.findall(r"^## From `ssh login`.*?(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
# What the page calls these, and a script as a user would write it, with a fault of its own.
LOGIN, VENV, PROJECT = "login.example.org", "/home/ada/venvs/train", "my-project"
SCRIPT = ROOT / "tests" / "flow" / "first_jobs" / "plain_loop.py"
# What differs between two runs, and between two processors: each rounds FP16 in its own way.
VARIES = [(r"\b\d+:\d\d\b", "0:00"), (r"\d+\.\d+ [KM]iB", "SIZE"), (r"\b0\.00\d+\b", "LOSS"), (r" +", " ")]


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```", SECTION, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for block in found]


def commands() -> list[str]:
    """Return what the section tells a user to type, in its order."""
    lines = [line for block in blocks("console") for line in block.splitlines()]
    assert all(line.startswith("$ ") for line in lines)
    return [line.removeprefix("$ ") for line in lines]


def same(text: str) -> list[str]:
    """Return the lines of a story without what differs: a run may end before the next look sees where it resumed."""
    for pattern, instead in VARIES:
        text = re.sub(pattern, instead, text)
    return [line.rstrip() for line in text.splitlines() if " resumed " not in line]


@pytest.fixture
def user(lab: SiteLab) -> Iterator[SiteLab]:
    """Return a user with a script, the page's list of hosts, and SSH to the login node under the page's name."""
    # A login has the variables of the cluster by itself.
    own = f"SetEnv SLURM_CONF={lab.cluster.config} PATH={lab.cluster.env()['PATH']} HOME={lab.folder / 'there'}"
    (lab.folder / "there").mkdir()
    sshd = Sshd(lab.folder / "sshd", lab.folder, settings=(own,))
    (lab.folder / ".ssh" / "config").write_text(
        f"Host {LOGIN}\n  HostName 127.0.0.1\n  Port {sshd.port}\n  User {sshd.user}\n"
    )
    sshd.introduce()
    sshd.start()
    hosts, _ = blocks("yaml")
    assert hosts.count(VENV) == 1
    (lab.folder / "hosts.yml").write_text(hosts.replace(VENV, str(BIN.parent)))
    (lab.folder / PROJECT).mkdir()
    shutil.copy(SCRIPT, lab.folder / PROJECT / "train.py")
    try:
        yield lab
    finally:
        lab.rung("controller", "--stop", expect=None)
        sshd.kill()


def typed(user: SiteLab, lines: list[str]) -> str:
    """Return what commands print that are typed one after the other."""
    # The controller starts by itself, as it does for a user.
    env = {name: value for name, value in user.env.items() if name != "RUNG_CONTROLLER"}
    done = pace.run(
        ["bash", "-ec", "\n".join(lines)], cwd=user.folder, env=env, capture_output=True, text=True, usual=300
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.long
@pytest.mark.sample
def test_the_commands_of_the_page_lead_to_a_recovery_on_the_cluster(user: SiteLab) -> None:
    look, there, init, *rest = commands()[1:]
    assert [line.split()[:2] for line in (look, init, *rest)] == [
        ["rung", word] for word in ("hosts", "init", "check", "launch", "history")
    ]
    shown = typed(user, commands()[:1])
    assert re.search(r"^lab +slurm\S* [0-9].* 4 a100, 2 p100, 2 titanrtx$", shown, re.MULTILINE), shown
    (host,) = json.loads(typed(user, [look]))
    assert {each["name"] for each in host["site"]["partitions"]} == {"gpu", "urgent"}
    typed(user, [there, init])
    _, asked = blocks("yaml")
    with (user.folder / PROJECT / "job.yaml").open("a") as file:
        file.write(asked)
    check, launch, history = rest
    assert "at lab it would start as plain, with sbatch --partition=gpu --time=720 " in typed(user, [there, check])
    story = typed(user, [there, launch])
    (expected,) = blocks("text")
    assert expected, "the page shows a story"
    assert same(story) == same(expected), story
    ((before, after),) = re.findall(r"the loss fell from (\S+) to (\S+) over", story)
    assert float(after) < float(before)
    assert not list((user.folder / "there").rglob("trees/**/__pycache__")), "Rung's own files are as it sent them"
    told = typed(user, [there, history])
    assert told.count("on lab, node ampere (A100:1 asked; the node reports none)") == 2, told
    kept = json.loads(user.rung("history", "train", "--json"))
    assert not [each for each in kept["events"] if each["kind"] == "waiting_for_host"]
    first, second = kept["attempts"]
    assert (first["fault"]["kind"], second["rung"]) == ("fp16_overflow", "clamp_constants")
    assert second["resumed_step"] == second["planned_step"] > 0
