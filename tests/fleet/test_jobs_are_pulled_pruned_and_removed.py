"""Tests `rung pull`, `rung prune` and `rung rm` on hosts: what comes, what goes, and what stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rung.jobs.model.paths import HostPaths
from tests.fleet.campaign import Campaign
from tests.fleet.host import ACCOUNT, Host

# Slow: CI runs these after the others.
pytestmark = [pytest.mark.long, pytest.mark.sample]

SAVED = {"checkpoint": {"pattern": "step_*.pt"}}


def job_root(campaign: Campaign, job: str) -> str:
    return HostPaths(f"/home/{ACCOUNT}", campaign.store.store_id).job_root(job)


def trees(campaign: Campaign, host: Host) -> set[str]:
    folder = HostPaths(f"/home/{ACCOUNT}", campaign.store.store_id).trees
    return set(host.run("ls", folder).split())


def as_account(host: Host, script: str) -> None:
    """Do something on a host as a job could have done it."""
    host.run("setpriv", f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", "--init-groups", "sh", "-c", script)


def trained(campaign: Campaign, name: str, steps: int, **fields: object) -> tuple[str, Host]:
    """Run a training on ampere until it has made some steps, and let it end."""
    job = campaign.train(name, "A100:1", **SAVED, **fields)
    campaign.wait(lambda: campaign.running(job, steps=steps))
    campaign.finish(job)
    campaign.wait_for_end(job)
    return job, campaign.fleet.hosts["ampere"]


def checkpoints(campaign: Campaign, host: Host, job: str) -> list[str]:
    listed = host.run("ls", f"{job_root(campaign, job)}/stays/1/checkpoints").split()
    return sorted((name for name in listed if name.startswith("step_")), key=lambda name: int(name[5:-3]))


def test_results_come_from_a_host_and_no_link_leads_out(campaign: Campaign) -> None:
    campaign.control()
    job, host = trained(campaign, "first", 12)
    root, to = job_root(campaign, job), campaign.folder / "pulled"
    out = f"{root}/stays/1/out"
    as_account(host, f"mkdir -p {out}/deep && echo fine >{out}/deep/a.json && ln -s /etc/hostname {out}/deep/link.json")
    as_account(host, f"ln -s /home/{ACCOUNT}/.ssh {out}/keys && head -c 300000 /dev/urandom >'{out}/b c.json'")
    newest = checkpoints(campaign, host, job)[-1]

    campaign.rung("pull", job, "--to", to)
    there = host.run("sha256sum", f"{root}/stays/1/checkpoints/{newest}").split()[0]
    data = json.loads(campaign.rung("pull", job, "--to", to, "--json"))
    files = {each["path"]: each for each in data["files"]}
    assert set(files) == {f"checkpoints/{newest}", "logs/attempt-1/log", "history.json"}
    assert files[f"checkpoints/{newest}"]["sha256"] == there
    assert not any(each["new"] for each in files.values()), "the second pull finds all of it"

    data = json.loads(campaign.rung("pull", job, "out/**/*.json", "--to", to, "--json"))
    assert {each["path"] for each in data["files"]} == {"output/out/deep/a.json", "output/out/b c.json"}
    assert (to / "output/out/deep/a.json").read_text() == "fine\n"
    data = json.loads(campaign.rung("pull", job, "out", "--to", to, "--json"))
    assert not any("keys" in each["path"] or "link" in each["path"] for each in data["files"])

    (to / "output/out/deep/a.json").write_text("mine\n")
    campaign.rung("pull", job, "out/deep/*", "--to", to, expect=2)
    assert (to / "output/out/deep/a.json").read_text() == "mine\n"
    campaign.rung("pull", job, "out/deep/*", "--to", to, "--force")
    assert (to / "output/out/deep/a.json").read_text() == "fine\n"
    assert not host.run("sh", "-c", f"ls {root}/outgoing 2>/dev/null || true").split(), "nothing is left there"
    assert not [path for path in to.rglob("*") if path.name.startswith(".")]


def test_what_an_old_job_left_goes_and_what_others_need_stays(campaign: Campaign, tmp_path: Path) -> None:
    campaign.control()
    old, host = trained(campaign, "old", 22)
    (campaign.folder / "work-other").mkdir()
    (campaign.folder / "work-other" / "own.py").write_text("# another tree\n")
    other = campaign.train("other", "A100:1", **SAVED)
    campaign.wait(lambda: campaign.running(other, steps=6))
    root, names, shipped = job_root(campaign, old), checkpoints(campaign, host, old), trees(campaign, host)
    # What a job may have put in the way: a folder that is closed, links that lead out, and one name more of a file.
    as_account(
        host, f"cd {root}/stays/1/checkpoints && ln {names[0]} step_1.pt && mkdir step_2.pt && touch step_2.pt/x"
    )
    as_account(host, f"mkdir -p {root}/set-aside/1/attempt-2 && echo x >{root}/set-aside/1/attempt-2/step_99.pt")
    as_account(host, f"echo precious >/home/{ACCOUNT}/precious && ln -s /home/{ACCOUNT} {root}/set-aside/1/home")
    assert json.loads(campaign.rung("prune", "--older", "1h", "--dry-run", "--json"))["planned"] == []

    plan = json.loads(campaign.rung("prune", "--older", "0s", "--keep", "2", "--dry-run", "--json"))
    gone = {path for each in plan["planned"] for path in each["paths"] if each["job"] == old}
    stay = {f"stays/1/checkpoints/{name}" for name in names[-2:]}
    assert gone == {f"stays/1/checkpoints/{name}" for name in ["step_1.pt", "step_2.pt", *names[:-2]]} | {
        "set-aside", "attempts/1/work",
    }  # fmt: skip
    paths = [f"{root}/{path}" for path in sorted(gone)]
    counted = sum(int(line.split()[0]) << 10 for line in host.run("du", "-sk", "--", *paths).splitlines())
    assert sum(each["bytes"] for each in plan["planned"] if each["job"] == old) == counted

    host.cut()
    failed = json.loads(campaign.rung("prune", "--older", "0s", "--yes", "--json", expect=1))
    assert "ampere" in failed["unreachable"] and failed["removed"] == []
    host.reconnect()
    campaign.wait(
        lambda: campaign.rung("prune", "--older", "0s", "--dry-run", "--json", expect=None).find(names[0]) > 0
    )
    as_account(host, f"chmod 000 {root}/stays/1/checkpoints/step_2.pt")
    campaign.rung("prune", "--older", "0s", "--keep", "2", "--yes")
    assert set(checkpoints(campaign, host, old)) == {path.rpartition("/")[2] for path in stay}
    assert host.run("cat", f"/home/{ACCOUNT}/precious") == "precious"
    assert host.run("ls", root).split() == ["attempts", "stays"]
    assert json.loads(campaign.rung("prune", "--older", "0s", "--dry-run", "--json"))["planned"] == []
    assert campaign.running(other, steps=6), "a job that runs loses nothing"

    before = campaign.rung("ladder", "--json")
    campaign.rung("rm", other, "--yes", expect=2)
    campaign.rung("rm", old, expect=2)
    removed = json.loads(campaign.rung("rm", old, "--yes", "--json"))
    assert removed["failed"] == [] and {each["where"] for each in removed["removed"]} == {"here", "ampere"}
    assert host.run("ls", root.removesuffix(f"/{old}")).split() == [other]
    left = trees(campaign, host)
    assert len(shipped - left) == 1 and left < shipped
    assert not (campaign.home / "jobs" / old).exists()
    assert [row["id"] for row in json.loads(campaign.rung("queue", "--json"))] == [other]
    assert campaign.rung("ladder", "--json") == before
    campaign.finish(other)
    campaign.wait_for_end(other)
    assert campaign.steps(other, 1)[-1] >= 6
