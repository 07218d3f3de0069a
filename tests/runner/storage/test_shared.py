"""Tests what is removed from a folder that several hosts share: once, through any of them, and never what one uses."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.job import Job
from rung.jobs.model.errors import HostUnreachable
from rung.jobs.model.gpu import Member
from rung.jobs.model.host import Host
from rung.jobs.model.paths import HomePaths
from rung.runner.context import Context
from rung.runner.seams.engine import FileEntry, Request
from rung.runner.seams.storage import DiskUse, FoundFile, ShippedTree
from rung.runner.storage.plan import TREES, Plan, Removal
from rung.runner.storage.plan_prune import plan_prune
from rung.runner.storage.plan_rm import plan_rm
from rung.runner.storage.pull import chosen_by_pattern
from rung.runner.storage.remove import Remover
from rung.runner.storage.shared import place_of, trees_on
from tests.support.ended_jobs import DAY, IMAGE, Shelf

OLD, NEEDED = "0" * 64, "1" * 64


@dataclass
class Disk:
    """A folder with files of jobs, which several hosts may have."""

    trees: dict[str, frozenset[str]] = field(default_factory=dict)
    removed: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)


class Machine:
    """A host: what it uses of its disk, and whether it answers. It serves as its engine, its storage and its trees."""

    def __init__(self, name: str, disk: Disk) -> None:
        self.host = self.where = name
        self.disk, self.away = disk, False
        self.uses: set[str] = set()

    def _reach(self) -> None:
        if self.away:
            raise HostUnreachable(f"{self.host}: no answer")

    def storage(self, request: Request) -> Machine:
        return self

    def trees(self) -> Trees:
        self._reach()
        return Trees(self)

    def list_files(self, request: Request, pattern: str) -> list[FileEntry]:
        self._reach()
        return []

    def disk_use(self, paths: Sequence[str]) -> dict[str, DiskUse]:
        self._reach()
        return {path: DiskUse(1024) for path in paths if path in (".", "attempts/1/work", "attempts/2/work")}

    def remove(self, paths: Sequence[str]) -> None:
        self._reach()
        self.disk.removed.append((self.host, tuple(paths)))

    def remove_all(self) -> None:
        self.remove((".",))

    def files(self, folder: str, pattern: str) -> list[FoundFile]:
        self._reach()
        return [FoundFile("result.json", 10, 1.0)]


class Trees:
    def __init__(self, machine: Machine) -> None:
        self._machine, self._disk = machine, machine.disk

    def list(self) -> list[ShippedTree]:
        self._machine._reach()
        there = [ShippedTree(tree, 90 * DAY, jobs) for tree, jobs in self._disk.trees.items()]
        return [tree for tree in there if tree.id not in self._machine.uses]

    def disk_use(self, ids: Sequence[str]) -> DiskUse:
        return DiskUse(100 * len(ids))

    def remove(self, ids: Sequence[str]) -> None:
        self._machine._reach()
        for tree in ids:
            del self._disk.trees[tree]


class Lab:
    """Three hosts, of which ampere and turing share a folder, and a job that ran on both, one after the other."""

    def __init__(self, home: Path) -> None:
        self.shelf, shared = Shelf(home), Disk({OLD: frozenset(), NEEDED: frozenset()})
        self.machines = {name: Machine(name, shared) for name in ("turing", "ampere")}
        self.machines["pascal"] = Machine("pascal", Disk())
        self.hosts = [
            Host("turing", "turing", shared="/srv", shares_with=("ampere",)),
            Host("ampere", "ampere", shared="/srv", shares_with=("turing",)),
            Host("pascal", "pascal"),
        ]
        self.context = Context(self.shelf.store, self, HomePaths(home), {})  # type: ignore[arg-type]
        job = self.shelf.add("old", image=IMAGE)
        store = self.shelf.store
        with store.transaction():
            store.put_attempt(replace(store.attempts(job)[0], number=2, host="turing", residence=2))
        self.job: Job = store.job(job)

    def on(self, host: str) -> Any:
        return self.machines[host]

    @property
    def disk(self) -> Disk:
        return self.machines["ampere"].disk

    def prune(self) -> Plan:
        return plan_prune(self.context, older=30 * DAY, keep=0, now=time.time())


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path / "home")
    yield made
    made.shelf.store.close()


def of_trees(removals: Sequence[Removal]) -> list[tuple[str, tuple[str, ...]]]:
    return [(each.where, each.paths) for each in removals if each.what == TREES]


def test_hosts_that_share_a_folder_are_one_place(lab: Lab) -> None:
    assert [place_of(lab.hosts, name) for name in ("turing", "ampere", "pascal")] == ["ampere", "ampere", "pascal"]
    # One that is no longer listed is a place of its own: nobody knows what it shares.
    assert place_of(lab.hosts, "gone") == "gone"


@pytest.mark.parametrize("user", ["ampere", "turing"])
def test_a_tree_that_any_host_of_the_folder_uses_stays(lab: Lab, user: str) -> None:
    lab.machines[user].uses = {NEEDED}
    assert of_trees(lab.prune().removals) == [("ampere", (OLD,))]


def test_a_tree_that_is_used_since_it_was_planned_stays(lab: Lab) -> None:
    plan = lab.prune()
    assert of_trees(plan.removals) == [("ampere", (OLD, NEEDED))]
    lab.machines["turing"].uses = {NEEDED}
    Remover(lab.context, lambda removal: None).prune(plan, older=30 * DAY, keep=0)
    assert lab.disk.trees == {NEEDED: frozenset()}


@pytest.mark.parametrize("away", ["ampere", "turing"])
def test_while_a_host_of_the_folder_does_not_answer_its_trees_stay_and_the_rest_goes(lab: Lab, away: str) -> None:
    lab.machines[away].away = True
    plan = lab.prune()
    assert of_trees(plan.removals) == []
    why = f"{away}: no answer; what it shares with other hosts may be in use there, and stays"
    assert plan.unreachable == {"shipped trees on ampere": why}
    Remover(lab.context, lambda removal: None).prune(plan, older=30 * DAY, keep=0)
    other = "turing" if away == "ampere" else "ampere"
    # Of both attempts, and once.
    assert lab.disk.removed == [(other, ("attempts/1/work", "attempts/2/work"))]
    assert lab.disk.trees.keys() == {OLD, NEEDED}


def test_a_host_that_goes_away_between_plan_and_removal_keeps_the_trees(lab: Lab) -> None:
    plan = lab.prune()
    lab.machines["turing"].away = True
    removed = Remover(lab.context, lambda removal: None).prune(plan, older=30 * DAY, keep=0)
    assert lab.disk.trees.keys() == {OLD, NEEDED}
    assert [line.split(":")[0] for line in removed.failed] == ["ampere"] and "turing: no answer" in removed.failed[0]


def test_rm_counts_and_removes_the_folder_of_a_job_once(lab: Lab) -> None:
    lab.machines["ampere"].away = True
    lab.disk.trees[OLD] = frozenset({lab.job.id})
    plan = plan_rm(lab.context, [lab.job])
    on_hosts = [(each.where, each.paths) for each in plan.of(lab.job.id) if each.where != "here"]
    assert on_hosts == [("ampere", (".",))] and of_trees(plan.removals) == []
    removed = Remover(lab.context, lambda removal: None).remove_jobs(plan, [lab.job], give_up_hosts=False)
    assert (removed.failed, lab.disk.removed) == ([], [("turing", (".",))])
    assert [job.id for job in lab.shelf.store.jobs()] == []


def test_the_volumes_of_each_host_are_named_as_kept(lab: Lab) -> None:
    job = lab.shelf.store.job(lab.shelf.add("own", image=IMAGE, volumes=["/data:/data"]))
    with lab.shelf.store.transaction():
        (attempt,) = lab.shelf.store.attempts(job.id)
        lab.shelf.store.put_attempt(replace(attempt, members=(Member("turing"),)))
    kept = [(each.where, each.what) for each in plan_rm(lab.context, [job]).kept]
    assert kept == [("ampere", "/data"), ("turing", "/data")]


def test_pull_reads_the_folder_through_the_host_that_answers(lab: Lab) -> None:
    lab.machines["turing"].away = True
    found = chosen_by_pattern(lab.context, lab.job, "*.json")
    assert [each.into for each in found] == ["checkpoints", "output", "work"]
    assert {file.path for each in found for file in each.files} == {"result.json"}
    lab.machines["ampere"].away = True
    with pytest.raises(HostUnreachable, match="turing: no answer"):
        chosen_by_pattern(lab.context, lab.job, "*.json")


def test_a_host_alone_is_asked_as_before(lab: Lab) -> None:
    lab.machines["pascal"].away = True
    with pytest.raises(HostUnreachable):
        trees_on(lab, "pascal")  # type: ignore[arg-type]
