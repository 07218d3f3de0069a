"""Tests that a host is asked once what is in a checkpoint folder between a fault and the next attempt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import HomePaths
from rung.recovery.decide.checkpoint_choice import Unseen
from rung.runner.checkpoints.residences import Query, Source, search
from rung.runner.checkpoints.whole_folder import KEPT_SECONDS, LastSeen, Seen
from rung.runner.seams.engine import Container, FileEntry, Request
from tests.support.pretend import PretendEngine, World

NAN = b"".join(b"step %d loss nan\n" % step for step in range(50, 80))
HERE = ("ampere", 1)
SECOND = Attempt("a-1", 2, "ampere", Knobs(), None, "")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, {"ampere": ["A100"], "turing": ["TITANRTX"]})
    yield made
    made.close()


def running(world: World) -> str:
    recovery = {"ladder": ["raise_clip"], "trials": "off"}
    job = world.submit("a", "A100", run="x {clip}", knobs={"clip": 5.0}, recovery=recovery)
    world.until(lambda: world.is_running(job))
    return job


def looks_until_the_relaunch(world: World, job: str) -> list[str]:
    """Let a run fail; return what is done with its files until the next attempt has started."""
    ampere = world.engine("ampere")
    before = len(ampere.calls)
    ampere.append_log(f"{job}/1", NAN)
    world.until(lambda: f"{job}/2" in ampere.there)
    return [what for what, _ in ampere.calls[before:] if what in ("list_files", "run", "move", "start")]


def test_a_job_without_a_checkpoint_takes_one_look_and_the_next_attempt_starts_when_it_is_asked_about(
    world: World,
) -> None:
    job = running(world)
    assert looks_until_the_relaunch(world, job) == ["list_files", "start"]
    asked = [what for what, name in world.engine("ampere").calls if name == f"{job}/2"]
    assert asked[:2] == ["observe", "start"]


def test_a_checkpoint_that_is_resumed_from_is_looked_for_once_and_verified(world: World) -> None:
    job = running(world)
    world.engine("ampere").save(f"{job}/1", 10, 20)
    world.turn(3)
    assert looks_until_the_relaunch(world, job) == ["list_files", "run", "start"]
    assert world.last(job).resumed_from == "step_20.pt"


def test_a_poisoned_one_is_moved_without_another_look(world: World) -> None:
    job, ampere = running(world), world.engine("ampere")
    ampere.save(f"{job}/1", 10, 20)
    ampere.verdicts["step_20.pt"]["verdict"] = "poisoned"
    world.turn(3)
    assert looks_until_the_relaunch(world, job) == ["list_files", "run", "move", "start"]
    assert world.last(job).resumed_from == "step_10.pt" and ampere.moved == [("step_20.pt",)]
    (event,) = [event.data for event in world.store.events(job) if event.kind == "set_aside"]
    assert event["files"] == ["step_20.pt"]


def test_a_controller_that_is_killed_after_the_decision_looks_again(world: World) -> None:
    job, ampere = running(world), world.engine("ampere")
    ampere.append_log(f"{job}/1", NAN)
    world.until(lambda: len(world.store.attempts(job)) == 2)
    assert f"{job}/2" not in ampere.there
    world.restart()
    before = len(ampere.calls)
    world.until(lambda: f"{job}/2" in ampere.there)
    assert [what for what, _ in ampere.calls[before:] if what == "list_files"]


def test_what_was_seen_counts_once_for_the_next_attempt_of_that_folder_and_only_for_a_while() -> None:
    now, files = [0.0], [FileEntry("step_10.pt", 10, 1.0)]
    last = LastSeen(lambda: now[0])

    def keep() -> None:
        last.keep("a-1", Seen(1, now[0], {HERE: files}))

    assert last.take(SECOND) is None
    keep()
    assert last.take(SECOND) == files and last.take(SECOND) is None
    for other in (replace(SECOND, number=3), replace(SECOND, residence=2), replace(SECOND, host="turing")):
        keep()
        assert last.take(other) is None
    keep()
    now[0] += KEPT_SECONDS + 1
    assert last.take(SECOND) is None
    keep()
    now[0] += KEPT_SECONDS + 1
    last.keep("b-1", Seen(1, now[0]))
    assert list(last._seen) == ["b-1"], "what nobody took goes by itself"


def listed(tmp_path: Path, host: str, seen: Seen | None) -> list[str]:
    """Search a folder with two files, as this host shows it; return what is found in it."""
    engine = PretendEngine(host, ())
    engine.files["checkpoints"] = [FileEntry("step_10.pt", 10, 1.0), FileEntry("events.log", 10, 2.0)]
    folder = Path("/rung/job/checkpoints")
    paths = HomePaths(tmp_path).attempt("a-1", 1)
    request = Request("a-1", 1, ("x",), folder, {}, paths, folder, container=Container("train"))
    source = Source(HERE, [engine], request, Unseen("ampere", "no answer"), seen)
    found = search([source], Query("step_*.pt", [], None, {}, tmp_path / "mirror"), lambda verdict: None)
    return [each.name for each in found if not isinstance(each, Unseen)]


def test_the_whole_folder_is_kept_and_only_what_matches_is_a_checkpoint(tmp_path: Path) -> None:
    seen = Seen(1, 0.0)
    assert listed(tmp_path, "ampere", seen) == ["step_10.pt"]
    assert [entry.name for entry in seen.folders[HERE]] == ["step_10.pt", "events.log"]


def test_what_another_host_shows_of_a_shared_folder_is_not_kept(tmp_path: Path) -> None:
    seen = Seen(1, 0.0)
    listed(tmp_path, "turing", seen)
    assert seen.folders == {}
