"""Tests what the pages show: jobs in pages, what needs a person, hostile text as text, and errors in one line."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Callable
from html.parser import HTMLParser

import pytest
from starlette.testclient import TestClient

from rung.jobs.job import Outcome
from rung.jobs.model.engine import PROCESS
from rung.jobs.model.event import EventKind
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.hosts.survey import Report
from rung.runner.hosts.this_machine import HERE
from rung.runner.metrics.exposition import CONTENT_TYPE
from rung.runner.views.times import local_time
from rung.runner.web.access import Access
from rung.runner.web.app import make_app
from rung.runner.web.host_survey import HostSurvey
from rung.runner.web.pages import Pages
from rung.runner.web.reading import ReadStore, snapshot
from tests.support.places import died, record
from tests.support.web_home import WebHome

ALLOWED_TAGS = set(
    re.findall(
        r"\w+",
        "html head meta title link script body a header nav span main div p section h1 h2 h3 h4 ul ol li b small table "
        "thead tbody tr th td form button details summary label input noscript code dl dt dd del ins time em article "
        "figure svg desc g rect line path polyline circle text tspan defs clippath",
    )
)


class Tags(HTMLParser):
    """Collects the tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.shown = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_data(self, data: str) -> None:
        self.shown += f" {data}"


def shown(client: TestClient, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return re.sub(r"\s+", " ", Tags(answer.text).shown)


def test_a_job_has_its_curves_without_a_style_of_their_own(client: TestClient, web_home: WebHome) -> None:
    page = client.get(f"/jobs/{web_home.recovered().id}").text
    figure = page[page.index('<figure class="curves"') : page.index("</figure>")]
    assert "rung-plot-line" in figure and ">loss" in figure
    assert "style" not in figure
    assert ".rung-plot-line" in client.get("/plots.css").text


def test_the_numbers_for_prometheus_are_there_too(client: TestClient, web_home: WebHome) -> None:
    web_home.recovered()
    answer = client.get("/metrics")
    assert answer.headers["content-type"] == CONTENT_TYPE
    assert "rung_jobs_submitted_total 1" in answer.text


def test_hostile_text_is_text_on_every_page(client: TestClient, web_home: WebHome) -> None:
    web_home.hostile()
    for path in (
        "/",
        "/jobs/hostile-1",
        "/jobs/hostile-1/log/1",
        "/hosts",
        "/ledger",
        "/jobs/<script>alert(1)<%2Fscript>",
    ):
        text = client.get(path).text
        found = Tags(text)
        assert found.tags <= ALLOWED_TAGS
        assert not {name for name in found.attributes if name.startswith("on") or name == "style"}
        assert all(link.startswith(("/", "#")) for link in found.links)
        assert not set(text) & {"\x1b", "\u202e", "\x07"}
    assert "<script>alert(1)</script>red gnp.exe <img src=x onerror=alert(2)>" in shown(client, "/jobs/hostile-1")
    assert "<script>alert(1)</script>red gnp.exe" in shown(client, "/jobs/hostile-1/log/1")


def test_a_thousand_jobs_come_in_pages_newest_first(client: TestClient, web_home: WebHome) -> None:
    spec = JobSpec.model_validate({"name": "many", "run": "true"})
    with web_home.store.transaction():
        for number in range(1000):
            web_home.store.add_job(spec, web_home.paths.home, at=float(number))
    web_home.add("odd", JobState.FAILED, "no rung was left")
    first, second = client.get("/").text, client.get("/?page=2").text
    rows = re.compile(r'id="row-([\w-]+)"')
    assert rows.findall(first) == ["odd-1001", *(f"many-{number}" for number in range(1000, 951, -1))]
    assert rows.findall(second)[0] == "many-951" and "page 2 of 21" in second
    assert rows.findall(client.get("/?state=FAILED").text) == ["odd-1001"]
    assert rows.findall(client.get("/?state=active&page=20").text)[-1] == "many-1"
    assert rows.findall(client.get("/?page=4000").text) == []


def test_only_the_jobs_of_a_page_are_decoded(
    client: TestClient, web_home: WebHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What makes a thousand jobs quick: the page reads as many rows as it shows."""
    spec = JobSpec.model_validate({"name": "many", "run": "true"})
    with web_home.store.transaction():
        ids = [web_home.store.add_job(spec, web_home.paths.home, at=1.0).id for _ in range(300)]
        for job_id in ids:
            web_home.store.move(job_id, JobState.CANCELLED, reason="", at=1.0)
    decoded: list[int] = []
    decode = ReadStore._decode
    monkeypatch.setattr(
        ReadStore, "_decode", lambda self, make, rows: decoded.append(len(rows)) or decode(self, make, rows)
    )
    assert client.get("/?page=3").status_code == 200
    assert 50 <= sum(decoded) <= 100


@pytest.mark.parametrize(
    "path", ["/?page=0", "/?page=-1", "/?page=x", "/?page=" + "9" * 5000, "/?state=no", "/jobs/no", "/jobs/no/log/1"]
)
def test_a_wrong_address_is_answered_with_one_line(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.text.count("rung: ") == 1


def test_what_needs_a_person_comes_first(client: TestClient, web_home: WebHome) -> None:
    fault = Fault(FaultKind.NAN_LOSS, "loss nan", step=3)
    web_home.add("broken", JobState.FAILED, "no rung was left")
    web_home.add("old", JobState.FAILED, "long ago", ago=30 * 86_400)
    away, gone_at = web_home.add("away", JobState.RUNNING), time.time() - 700
    web_home.attempt(away, 1, host="titan", unreachable_since=gone_at)
    waiting = web_home.add("waiting", JobState.RECOVERING, "its checkpoints are on ampere, which does not answer")
    web_home.attempt(waiting, 1, host="ampere", fault=fault, outcome=Outcome.FAULT)
    web_home.event(waiting, EventKind.WAITING_FOR_HOST, 1, 0, because="ampere does not answer")
    last = web_home.add("last", JobState.RUNNING, recovery={"ladder": ["lower_lr", "fp32"]})
    web_home.attempt(last, 1, fault=fault, outcome=Outcome.FAULT)
    web_home.attempt(last, 2, rung="fp32", asked=Knobs(lr=0.001))
    well = web_home.add("well", JobState.RUNNING)
    web_home.attempt(well, 1)
    text = shown(client, "/")
    needs = text[text.index("Needs you") : text.index(" Jobs all ")]
    assert "failed broken-1 no rung was left" in needs
    assert f"waiting for a host away-3 titan has not answered since {local_time(gone_at)}" in needs
    assert "waiting for a host waiting-4 its checkpoints are on ampere" in needs
    assert "ladder near its end last-5 fp32 is the last rung of its ladder" in needs
    assert "well-6" not in needs and "old-2" not in needs
    assert "no controller is running, so nobody watches 4 active jobs" in text


def test_a_job_shows_attempts_trials_checkpoints_and_the_way_to_its_fault(
    client: TestClient, web_home: WebHome
) -> None:
    web_home.recovered()
    text = shown(client, "/jobs/recovered-1")
    assert "attempt 2: step 1200 of 3000, loss 0.61" in text
    assert "lr 0.001 → 0.0001" in text and "lr 0.0001 0.0001" in text
    assert "lower_lr 60 1.32 4 best" in text
    assert "step_600.pt 600 not_finite" in text and "step_400.pt 400 healthy attempt 2" in text
    assert 'href="/jobs/recovered-1/log/1?line=700#L700"' in client.get("/jobs/recovered-1").text
    log = client.get("/jobs/recovered-1/log/1?line=700").text
    assert re.search(r'<div class="line fault" id="L700">.*step 700 loss nan.*fault: nan_loss', log)
    assert log.count('class="line fault"') == 1


def test_a_job_whose_node_reports_no_gpu_shows_what_was_asked_for(client: TestClient, web_home: WebHome) -> None:
    job = web_home.add("far", JobState.RUNNING)
    web_home.attempt(job, 1, host="lab", node="n1", gpus=(), gpus_asked="A100:1")
    text = shown(client, "/jobs/far-1")
    assert "0 lost, A100:1 asked; the node reports none" in text
    assert "attempt 1 on lab, node n1 (A100:1 asked; the node reports none)" in text


def test_hosts_show_who_uses_them(web_home: WebHome, client: TestClient, wait_until: Callable[..., None]) -> None:
    wait_until(lambda: "Asked" in shown(client, "/hosts"))


def test_a_gpu_that_is_set_aside_is_shown_with_its_host_and_among_what_needs_you(
    web_home: WebHome, access: Access, wait_until: Callable[..., None]
) -> None:
    now = time.time()
    attempts = [died(name, now - 60, host="localhost", engine=PROCESS) for name in "ab"]
    first, second = record(web_home.store, web_home.paths.home, attempts)
    pages = Pages(web_home.paths, HostSurvey(ask=lambda: [Report(HERE, engine="processes")]))
    client = TestClient(make_app(web_home.paths, access, pages), base_url="http://127.0.0.1:8321")
    client.get("/", params={"token": access.token})
    wait_until(lambda: "Asked" in shown(client, "/hosts"))
    page = shown(client, "/hosts")
    assert "localhost's TITANRTX 0 is set aside until" in page and f"jobs {first}, {second}; the last: " in page
    assert f"set aside {second} check localhost's TITANRTX 0, then `rung hosts --clear localhost`" in shown(client, "/")


def test_a_host_that_cannot_be_asked_is_shown_as_a_line(wait_until: Callable[..., None]) -> None:
    def fail() -> list[object]:
        raise OSError("no such list")

    survey = HostSurvey(ask=fail)  # type: ignore[arg-type]
    assert survey.look().asking
    wait_until(lambda: survey.look().error == "no such list")


def test_the_page_reads_and_cannot_write(web_home: WebHome) -> None:
    """A write of the controller succeeds at once while a page is being read, and the page cannot write."""
    job = web_home.add("a")
    with snapshot(web_home.paths.store) as store:
        assert store.job(job.id).state is JobState.QUEUED
        with web_home.store.transaction():
            web_home.store.move(job.id, JobState.CANCELLED, reason="", at=2.0)
        assert store.job(job.id).state is JobState.QUEUED, "a page is of one moment"
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            store._db.execute("UPDATE jobs SET reason = 'x'")
    assert web_home.store.job(job.id).state is JobState.CANCELLED


def test_a_cancel_is_the_one_of_the_command_line(
    post: Callable[..., tuple[int, dict[str, str]]], web_home: WebHome
) -> None:
    job = web_home.add("a", JobState.RUNNING)
    status, answer = post(f"/jobs/{job.id}/cancel")
    assert status == 200 and answer["said"].startswith("a-1 is RUNNING; cancelling; no controller is running")
    assert web_home.store.job(job.id).cancel_requested
    assert post("/jobs/none/cancel") == (409, {"error": "there is no job 'none'; `rung queue` lists them"})
    done = web_home.add("b", JobState.SUCCEEDED)
    assert post(f"/jobs/{done.id}/cancel")[1] == {"error": "job b-2 is SUCCEEDED already; there is nothing to cancel"}


def test_a_retry_changes_the_knobs_that_were_changed(
    post: Callable[..., tuple[int, dict[str, str]]], web_home: WebHome
) -> None:
    job = web_home.add("a", JobState.FAILED)
    assert post(f"/jobs/{job.id}/retry", nonsense="1")[1]["error"].startswith("--set nonsense: no such knob; known: ")
    assert post(f"/jobs/{job.id}/retry", lr="many")[0] == 409
    status, answer = post(f"/jobs/{job.id}/retry", lr="1e-4")
    assert status == 200 and answer["said"].startswith("a-1 is QUEUED again")
    assert web_home.store.job(job.id).knobs.lr == 1e-4
    assert post(f"/jobs/{job.id}/retry")[1]["error"].startswith("job a-1 is QUEUED; only a FAILED")


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"knobs": [1]}', b'{"knobs": {"lr": 1}}', b"x" * 100_000])
def test_a_retry_with_a_strange_body_changes_nothing(client: TestClient, web_home: WebHome, body: bytes) -> None:
    web_home.add("a", JobState.FAILED)
    answer = client.post("/jobs/a-1/retry", content=body, headers={"origin": "http://127.0.0.1:8321"})
    assert answer.status_code in (400, 409, 413) and answer.json()["error"]
    assert web_home.store.job("a-1").state is JobState.FAILED


def test_the_home_keeps_no_token(client: TestClient, web_home: WebHome, access: object) -> None:
    client.get("/")
    for folder, _, files in os.walk(web_home.paths.home):
        for name in files:
            with open(os.path.join(folder, name), "rb") as file:  # noqa: PTH118, PTH123
                assert access.token.encode() not in file.read()  # type: ignore[attr-defined]
