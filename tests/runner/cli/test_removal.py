"""Tests `rung rm` and `rung prune` on this machine: what goes, what stays, what is refused, and what they say."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rung.jobs.model.event import EventKind
from rung.jobs.model.state import JobState
from rung.runner.files.tree import size_text
from tests.support.ended_jobs import Shelf

RunRung = Callable[..., tuple[int, str, str]]
BIN = Path(sys.executable).parent


@pytest.fixture
def shelf(home: Path) -> Iterator[Shelf]:
    made = Shelf(home)
    yield made
    made.store.close()


@pytest.fixture
def old(shelf: Shelf) -> str:
    """Return a job that failed 40 days ago, with everything that a job can leave here."""
    job = shelf.add("old", knobs={"lr": 0.1})
    for step in (10, 20, 30, 40):
        shelf.write(job, f"checkpoints/step_{step}.pt")
    shelf.write(job, "checkpoints/result.txt")
    shelf.write(job, ".set-aside/attempt-2/step_50.pt")
    shelf.write(job, "attempts/1/work/train.py")
    return job


def du(*paths: Path) -> int:
    done = subprocess.run(["du", "-skc", "--", *paths], capture_output=True, text=True, check=True)
    return int(done.stdout.splitlines()[-1].split()[0]) << 10


def pruned(run_rung: RunRung, *words: str) -> dict[str, Any]:
    code, out, err = run_rung("prune", *words, "--yes", "--json")
    assert (code, err) == (0, "")
    return dict(json.loads(out))


def ids(run_rung: RunRung) -> list[str]:
    return [row["id"] for row in json.loads(run_rung("queue", "--json")[1])]


# prune


def test_the_newest_checkpoints_the_logs_and_the_results_stay(old: str, shelf: Shelf, run_rung: RunRung) -> None:
    data = pruned(run_rung, "--keep", "2")
    stays = {"checkpoints/step_30.pt", "checkpoints/step_40.pt", "checkpoints/result.txt", "attempts/1/log"}
    assert shelf.files(old) == stays
    assert {each["what"]: sorted(each["paths"]) for each in data["removed"]} == {
        "checkpoints": ["checkpoints/step_10.pt", "checkpoints/step_20.pt"],
        "checkpoints that were set aside": [".set-aside"],
        "work copies": ["attempts/1/work"],
    }
    assert ids(run_rung) == [old]
    told = [event.data["because"] for event in shelf.store.events(old) if event.kind == EventKind.PRUNED]
    assert len(told) == 1 and "work copies" in told[0]


def test_the_figures_are_those_of_du(old: str, shelf: Shelf, run_rung: RunRung) -> None:
    folder = shelf.home / "jobs" / old
    os.link(folder / "checkpoints/step_10.pt", folder / "attempts/1/work/same")
    with (folder / "attempts/1/work/sparse").open("wb") as file:
        file.truncate(1 << 30)
    goes = [folder / "checkpoints/step_10.pt", folder / "checkpoints/step_20.pt", folder / ".set-aside"]
    goes.append(folder / "attempts/1/work")
    expected = du(*goes)
    code, out, _ = run_rung("prune", "--dry-run", "--json")
    data = json.loads(out)
    assert (code, data["bytes"], sum(each["bytes"] for each in data["planned"])) == (0, expected, expected)
    text = run_rung("prune", "--dry-run")[1]
    assert f"in all {expected / 1024:.1f} KiB, as `du` counts it" in text
    whole = du(folder)
    assert json.loads(run_rung("rm", old, "--dry-run", "--json")[1])["bytes"] == whole


def test_a_dry_run_changes_nothing(old: str, shelf: Shelf, run_rung: RunRung) -> None:
    before = shelf.files(old)
    assert run_rung("prune", "--dry-run", "--keep", "0")[0] == 0
    assert run_rung("rm", old, "--dry-run")[0] == 0
    assert shelf.files(old) == before and ids(run_rung) == [old]


def test_jobs_that_ended_lately_or_not_at_all_are_left_alone(shelf: Shelf, run_rung: RunRung) -> None:
    for name, state, days in (
        ("late", JobState.FAILED, 29), ("queued", JobState.QUEUED, 90), ("running", JobState.RUNNING, 90),
        ("recovering", JobState.RECOVERING, 90), ("stopping", JobState.STOPPING, 90),
    ):  # fmt: skip
        job = shelf.add(name, state=state, days=days)
        for path in ("checkpoints/step_10.pt", "checkpoints/step_20.pt", "attempts/1/work/x", ".set-aside/y"):
            shelf.write(job, path)
    before = {job.id: shelf.files(job.id) for job in shelf.store.jobs()}
    assert pruned(run_rung, "--keep", "0")["planned"] == []
    assert {job: shelf.files(job) for job in before} == before


def test_the_last_checkpoint_of_a_job_that_succeeded_stays(shelf: Shelf, run_rung: RunRung) -> None:
    done, failed = shelf.add("done", state=JobState.SUCCEEDED), shelf.add("failed")
    for job in (done, failed):
        shelf.write(job, "checkpoints/step_10.pt")
        shelf.write(job, "checkpoints/step_20.pt")
    pruned(run_rung, "--keep", "0")
    assert (shelf.files(done), shelf.files(failed)) == (
        {"checkpoints/step_20.pt", "attempts/1/log"},
        {"attempts/1/log"},
    )


def test_what_an_active_job_began_with_stays(old: str, shelf: Shelf, run_rung: RunRung) -> None:
    child = shelf.add("child", state=JobState.RUNNING, start={"job": old, "step": 10, "file": "step_10.pt"})
    code, out, _ = run_rung("prune", "--keep", "1", "--yes")
    assert code == 0 and "a job that has not ended began with step_10.pt" in out
    assert {"checkpoints/step_10.pt", "checkpoints/step_40.pt"} <= shelf.files(old)
    # When that job has ended, it goes too.
    with shelf.store.transaction():
        shelf.store.move(child, JobState.FAILED, reason="", at=1.0)
    pruned(run_rung, "--keep", "1")
    assert "checkpoints/step_10.pt" not in shelf.files(old)


def test_copies_of_a_hosts_checkpoints_that_nobody_verified_stay(old: str, shelf: Shelf, run_rung: RunRung) -> None:
    shelf.write(old, "mirror/step_5.pt")
    pruned(run_rung)
    assert "mirror/step_5.pt" in shelf.files(old)


def test_a_folder_of_the_user_is_kept_and_named(shelf: Shelf, run_rung: RunRung, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    for step in (10, 20, 30):
        (mine / f"step_{step}.pt").write_text("mine")
    job = shelf.add("own", checkpoint={"dir": str(mine)})
    shelf.write(job, "attempts/1/work/x")
    data = pruned(run_rung, "--keep", "0")
    assert [(each["what"], each["why"].split(",")[0]) for each in data["kept"]] == [
        (str(mine), "checkpoint.dir is a folder of yours")
    ]
    code, out, _ = run_rung("rm", job, "--yes")
    assert code == 0 and f"kept: {job} on this machine: {mine}" in out
    assert len(list(mine.iterdir())) == 3


def test_links_out_of_the_folder_are_not_followed(shelf: Shelf, run_rung: RunRung, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    for name in ("step_10.pt", "step_20.pt", "x"):
        (precious / name).write_text("precious")
    linked, inner = shelf.add("linked"), shelf.add("inner")
    (shelf.home / "jobs" / linked / "checkpoints").symlink_to(precious)
    (shelf.home / "jobs" / linked / ".set-aside").symlink_to(precious)
    shelf.write(inner, "attempts/1/work/x")
    (shelf.home / "jobs" / inner / "attempts/1/work/data").symlink_to(precious)
    (shelf.home / "jobs" / inner / "attempts" / "1" / "work.part").symlink_to(precious)
    data = pruned(run_rung, "--keep", "0")
    assert any(each["why"] == "a link leads there, and Rung follows none" for each in data["kept"])
    assert run_rung("rm", linked, inner, "--yes")[0] == 0
    assert len(list(precious.iterdir())) == 3 and ids(run_rung) == []


def test_a_job_that_was_pruned_is_not_looked_at_again(old: str, shelf: Shelf, run_rung: RunRung) -> None:
    pruned(run_rung, "--keep", "2")
    shelf.write(old, "attempts/1/work/new")
    assert pruned(run_rung, "--keep", "2")["planned"] == []
    assert [each["what"] for each in pruned(run_rung, "--keep", "1")["removed"]] == ["checkpoints", "work copies"]


@pytest.mark.parametrize("words", [("--older", "soon"), ("--older", "-1d"), ("--keep", "-1"), ("--keep", "few")])
def test_a_wrong_value_is_one_line(words: tuple[str, str], old: str, run_rung: RunRung) -> None:
    code, out, err = run_rung("prune", *words, "--yes")
    assert (code, out, len(err.splitlines())) == (2, "", 1)


# rm


def test_a_removed_job_leaves_no_file_and_is_in_no_list(old: str, shelf: Shelf, run_rung: RunRung) -> None:
    other = shelf.add("other")
    code, out, err = run_rung("rm", "old", "--yes")
    assert (code, err) == (0, "") and "in all" in out
    assert not (shelf.home / "jobs" / old).exists() and shelf.files(other) == {"attempts/1/log"}
    assert ids(run_rung) == [other]
    for command in ("history", "logs", "checkpoints", "cancel", "retry", "rm", "pull"):
        code, _, err = run_rung(command, old)
        assert (code, err) == (2, f"rung: there is no job '{old}'; `rung queue` lists them\n"), command
    # The next job gets no id that was used before.
    assert shelf.add("old") == "old-3"


def recovered(home: Path) -> str:
    """Run a real job that recovers from a fault, and return the last line of its story."""
    (home.parent / "train.py").write_text(
        "import sys\n"
        "lr = float(sys.argv[1])\n"
        "for step in range(1, 21):\n"
        "    bad = lr > 0.05 and step >= 5\n"
        "    print(f'step {step} loss {\"nan\" if bad else 1 / step}', flush=True)\n"
        "    if bad and step > 8: sys.exit('loss is nan')\n"
    )
    job_file = home.parent / "job.yaml"
    spec = {"name": "real", "run": f"{sys.executable} train.py {{lr}}", "knobs": {"lr": 0.1}}
    job_file.write_text(yaml.safe_dump({**spec, "recovery": {"trials": "off", "ladder": ["lower_lr"]}}))
    done = subprocess.run([BIN / "rung", "launch", "-f", job_file], check=True, capture_output=True, text=True)
    return " ".join(done.stdout.split())


def test_the_ledger_loses_nothing_and_the_story_tells_what_du_says(run_rung: RunRung, home: Path) -> None:
    told = recovered(home)
    assert f"its files here take {size_text(du(home / 'jobs' / 'real-1'))};" in told
    ladder, calibration = run_rung("ladder", "--json"), run_rung("ladder", "--calibration", "--json")
    assert json.loads(ladder[1])[0]["tries"] == 1
    assert run_rung("rm", "real", "--yes")[0] == 0
    assert (run_rung("ladder", "--json"), run_rung("ladder", "--calibration", "--json")) == (ladder, calibration)


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.RUNNING, JobState.RECOVERING, JobState.STOPPING])
def test_a_job_that_has_not_ended_is_refused_and_so_is_all_beside_it(
    state: JobState, old: str, shelf: Shelf, run_rung: RunRung
) -> None:
    job = shelf.add("busy", state=state)
    code, out, err = run_rung("rm", old, job, "--yes")
    assert (code, out) == (2, "")
    assert err == f"rung: job {job} is {state}: end it first with `rung cancel {job}`\n"
    assert shelf.files(old) and ids(run_rung) == [old, job]


def test_a_checkpoint_that_another_job_still_needs_is_refused(old: str, shelf: Shelf, run_rung: RunRung) -> None:
    child = shelf.add("child", state=JobState.RUNNING, start={"job": old, "step": 10, "file": "step_10.pt"})
    code, _, err = run_rung("rm", old, "--yes")
    assert code == 2 and child in err and "step_10.pt" in err and len(err.splitlines()) == 1
    shelf.write(child, "mirror/step_10.pt")
    assert run_rung("rm", old, "--yes")[0] == 0


def test_an_attempt_that_may_still_run_is_refused(shelf: Shelf, run_rung: RunRung) -> None:
    job = shelf.add("lost", image="example.org/train@sha256:" + "0" * 64)
    with shelf.store.transaction():
        shelf.store.give_up(shelf.store.attempts(job)[0], at=1.0)
    code, _, err = run_rung("rm", job, "--yes")
    assert code == 2 and "may still run on ampere" in err


def test_a_host_that_is_gone_is_said_and_the_job_stays_half_removed_until_it_is_given_up(
    shelf: Shelf, run_rung: RunRung, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "hosts.yml").write_text("all:\n  hosts: {}\n")
    monkeypatch.setenv("RUNG_HOSTS", str(tmp_path / "hosts.yml"))
    job = shelf.add("away", image="example.org/train@sha256:" + "0" * 64)
    code, out, err = run_rung("rm", job, "--yes")
    assert code == 1 and "cannot be asked: ampere" in out and "ampere" in err
    assert shelf.files(job) == set(), "the rest goes on"
    (row,) = json.loads(run_rung("queue", "--json")[1])
    assert row["reason"].startswith("being removed, and not yet gone from ampere")
    code, _, err = run_rung("retry", job)
    assert code == 2 and "is being removed" in err
    code, _, _ = run_rung("prune", "--yes")
    assert code == 1
    assert run_rung("rm", job, "--yes", "--give-up-hosts")[0] == 0
    assert ids(run_rung) == []


def test_two_removals_and_a_retry_keep_out_of_each_others_way(old: str, shelf: Shelf, run_rung: RunRung) -> None:
    with (shelf.home / "removal.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for words in (("rm", old, "--yes"), ("prune", "--yes"), ("retry", old)):
            code, _, err = run_rung(*words)
            assert code == 2 and "try again when it has ended" in err, words
    assert run_rung("retry", old)[0] == 0
    assert run_rung("rm", old, "--yes")[0] == 2


def test_without_a_terminal_nothing_goes_unless_it_is_said(old: str, shelf: Shelf, run_rung: RunRung) -> None:
    before = shelf.files(old)
    for words in (("rm", old), ("prune",), ("rm", old, "--json"), ("prune", "--json")):
        code, _, err = run_rung(*words)
        assert code == 2 and "add --yes" in err and len(err.splitlines()) == 1
    assert shelf.files(old) == before


@pytest.mark.parametrize(("answer", "code", "stays"), [(b"n\n", 130, True), (b"y\n", 0, False)])
def test_on_a_terminal_it_asks(answer: bytes, code: int, stays: bool, old: str, shelf: Shelf) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen([BIN / "rung", "rm", old], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    while b"remove this?" not in shown:
        shown += os.read(ours, 4096)
    os.write(ours, answer)
    assert process.wait() == code
    os.close(ours)
    assert (shelf.home / "jobs" / old).exists() is stays


def test_a_removal_that_was_killed_goes_on(old: str, shelf: Shelf, run_rung: RunRung) -> None:
    with shelf.store.transaction():
        shelf.store.begin_removal(old, at=1.0)
    assert ids(run_rung) == [old]
    assert run_rung("rm", old, "--yes")[0] == 0
    assert ids(run_rung) == []
