"""Tests that the alerts, the board and their page name only metrics that exist, with labels that they have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from rung.jobs.job import Attempt, Outcome
from rung.jobs.model.engine import DOCKER
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.jobs.model.trial import Candidate, Trial
from rung.runner.metrics.metrics import metrics_text
from rung.runner.metrics.turn_times import TurnTimes
from tests.support.ended_jobs import IMAGE, Shelf

DOCS = Path(__file__).resolve().parents[3] / "docs"
ALERTS = yaml.safe_load((DOCS / "prometheus" / "alerts.yaml").read_text(encoding="utf-8"))
BOARD = json.loads((DOCS / "prometheus" / "board.json").read_text(encoding="utf-8"))
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
QUERIES = [(rule["alert"], rule["expr"]) for rule in RULES]
QUERIES += [(panel["title"], target["expr"]) for panel in BOARD["panels"] for target in panel["targets"]]
NAME = re.compile(r"\brung_[a-z_]+\b")
SELECTOR = re.compile(r"\b(rung_[a-z_]+)\{([^}]*)\}")
LABEL = re.compile(r'(\w+) *(?:=~|!~|!=|=) *"')
BY = re.compile(r"(?:by|on) \(([^)]*)\)")
# What Prometheus adds by itself.
TARGET_LABELS = {"instance", "job"}


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Return every metric that can be there, with its labels: of a home in which everything has happened."""
    shelf = Shelf(tmp_path_factory.mktemp("home"))
    shelf.home.chmod(0o700)
    job = shelf.add("a", state=JobState.RUNNING, image=IMAGE, resources={"gpu": "A100:1"})
    gpu, fault = Gpu("A100", (8, 0), uuid="GPU-1"), Fault(FaultKind.NAN_LOSS, "loss: nan")
    trial = Trial(1, 0, (Candidate("fp32", Knobs()),), 0, 1, 2, 3, won=True, goes_on=True)
    first = replace(shelf.store.attempts(job)[0], fault=fault)
    tried = Attempt(
        job,
        2,
        "ampere",
        Knobs(),
        "fp32",
        "",
        trial=trial,
        image=IMAGE,
        engine=DOCKER,
        gpus=(gpu,),
        after_fault="nan_loss",
    )
    with shelf.store.transaction():
        shelf.store.put_attempt(first)
        shelf.store.put_attempt(replace(tried, outcome=Outcome.PENDING))
        shelf.store.lease(tried, at=1.0)
    shelf.store.close()
    TurnTimes(HomePaths(shelf.home).turn_times, dict).turn(lambda: 0)
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(metrics_text(HomePaths(shelf.home))):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.mark.parametrize(("title", "query"), QUERIES)
def test_a_query_names_only_metrics_and_labels_that_exist(title: str, query: str, metrics: dict[str, set[str]]) -> None:
    names = set(NAME.findall(query))
    assert names and names <= set(metrics), f"{title}: {names - set(metrics)}"
    for name, labels in SELECTOR.findall(query):
        assert set(LABEL.findall(labels)) <= metrics[name] | TARGET_LABELS, f"{title}: {name}"
    known = TARGET_LABELS.union(*(metrics[name] for name in names))
    assert {label.strip() for found in BY.findall(query) for label in found.split(",")} <= known, title


def test_every_metric_is_in_the_page_and_the_page_names_no_other(metrics: dict[str, set[str]]) -> None:
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in metrics}
    assert set(re.findall(r"^\| `(rung_[a-z_]+)", page, re.MULTILINE)) == families
    named = set(NAME.findall(page)) - {"rung_inside"}
    assert named <= families | set(metrics), named - families


def test_the_alerts_say_what_is_wrong_and_what_to_do() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES) >= 5
    for rule in RULES:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}


def boxes() -> Iterator[tuple[str, set[tuple[int, int]]]]:
    for panel in BOARD["panels"]:
        at: dict[str, Any] = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        yield panel["title"], cells


def test_the_panels_of_the_board_are_apart_and_fit_its_width() -> None:
    taken: set[tuple[int, int]] = set()
    for title, cells in boxes():
        assert not cells & taken and max(x for x, _ in cells) < 24, title
        taken |= cells
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"]) > 8
