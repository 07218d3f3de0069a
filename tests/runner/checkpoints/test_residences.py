"""Tests the search of a residence that several hosts can show: the first that answers counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import HomePaths
from rung.recovery.decide.checkpoint_choice import Checkpoint, Unseen
from rung.runner.checkpoints.residences import NewVerdict, Query, Source, residence_of, search
from rung.runner.seams.engine import Container, FileEntry, Request
from tests.support.pretend import PretendEngine

LAST = Attempt("a-1", 1, "ampere", Knobs(), None, "because", saved={"step_10.pt": 10})
UNSEEN = Unseen("ampere", "no answer", given_up=True)


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query("step_*.pt", [LAST], None, {}, tmp_path / "mirror")


def source(tmp_path: Path, *engines: PretendEngine) -> Source:
    paths, folder = HomePaths(tmp_path).attempt("a-1", 1), Path("/rung/job/checkpoints")
    request = Request("a-1", 1, ("x",), folder, {}, paths, folder, container=Container("train"))
    return Source(residence_of(LAST), engines, request, UNSEEN)


def an_engine(name: str, *, away: bool = False) -> PretendEngine:
    engine = PretendEngine(name, (), away=away)
    engine.files["checkpoints"] = [FileEntry("step_10.pt", 10, 1.0)]
    engine.verdicts["step_10.pt"] = {"verdict": "healthy", "step": 10, "detail": ""}
    return engine


def test_the_next_host_is_asked_when_one_does_not_answer(tmp_path: Path, query: Query) -> None:
    new: list[NewVerdict] = []
    found = search([source(tmp_path, an_engine("ampere", away=True), an_engine("turing"))], query, new.append)
    (seen,) = found
    # It is the residence that counts, and not the host that has shown it.
    assert isinstance(seen, Checkpoint) and (seen.name, seen.residence) == ("step_10.pt", ("ampere", 1))
    assert [verdict.verdict for _, verdict in new] == ["healthy"]


def test_what_no_host_shows_is_not_seen_and_not_gone(tmp_path: Path, query: Query) -> None:
    away = source(tmp_path, an_engine("ampere", away=True), an_engine("turing", away=True))
    (unseen,) = search([away], query, lambda verdict: None)
    assert isinstance(unseen, Unseen) and (unseen.host, unseen.why) == ("ampere", "no answer")
    (unseen,) = search([source(tmp_path)], query, lambda verdict: None)
    assert unseen == UNSEEN
