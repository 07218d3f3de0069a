"""Tests `rung report`: the line for a chat, the page of a job, the report of a night, hostile text in each."""

import json
import re
import stat
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rung.jobs.job import Attempt, Job, Outcome
from rung.jobs.model.event import EventKind
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.jobs.model.trial import Candidate, Trial
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.report.curves import job_figure, kept_until, read_series
from rung.runner.report.job_report import job_page
from rung.runner.report.since_report import since_page, since_report, since_text
from rung.runner.report.summary import summary_line
from rung.runner.report.write import write_page
from rung.runner.state.store import Store
from rung.runner.views.history import history
from tests.conftest import Ran

EVIL = "<script>alert(1)</script>\x1b[31m\u202e"
SHOWN = "<script>alert(1)</script>"
A100 = Gpu("A100", (8, 0), uuid="GPU-1")
Rung = Callable[..., Ran]


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    home.mkdir(mode=0o700)
    opened = Store(home / "rung.db")
    yield opened
    opened.close()


def attempt(job: Job, number: int, **changes) -> Attempt:
    at = 1000.0 * number
    times = {"started_at": at, "progress_at": at + 10, "ended_at": at + 410}
    known = {"asked": job.knobs, "rung": None, "because": "why", "gpus": (A100,), "outcome": Outcome.FAULT, **times}
    return Attempt(job.id, number, "h1", **{**known, **changes})


@pytest.fixture
def recovered(store: Store, home: Path) -> Job:
    """Return a job that finished after two recoveries: 1000 steps, of which 40 were run again, and one trial."""
    spec = {"name": "mmgcn", "run": "x", "knobs": {"lr": 1e-3}, "success": {"metric": "val_auc", "above": 0.9}}
    fault = Fault(FaultKind.NAN_LOSS, f"loss is nan {EVIL}", line=7, step=420, note=EVIL)
    with store.transaction():
        job = store.add_job(JobSpec.model_validate(spec), Path("/"), at=900.0)
        trial = Trial(1, 0, (Candidate("lower_lr", job.knobs, 0.1),), 400, 420, 440, 100)
        rows = [
            attempt(job, 1, by_person=True, first_step=0, furthest_step=420, fault=fault, hands=""),
            attempt(job, 2, trial=trial, planned_step=400, furthest_step=410, outcome=Outcome.STOPPED),
            attempt(
                job, 3, rung="lower_lr", after_fault="nan_loss", planned_step=400, furthest_step=710,
                asked=Knobs(lr=1e-4), effective={"lr": 1e-3}, first_step=400, because=f"nan_loss at step 420: {EVIL}",
                resumed_from=f"step_{EVIL}.pt",
            ),
            attempt(
                job, 4, rung="fp32_modules", after_fault="nan_loss", planned_step=700, first_step=700,
                furthest_step=1000, metrics={"val_auc": 0.9072}, outcome=Outcome.SUCCEEDED, ended_at=4310.0,
            ),
        ]  # fmt: skip
        for each in rows:
            store.put_attempt(each)
        store.add_event(job.id, 1, EventKind.FAULT, fault.to_dict(), at=1400.0)
        verdict = {"file": f"step_{EVIL}.pt", "verdict": "healthy", "step": 400, "detail": EVIL}
        store.add_event(job.id, 1, EventKind.CHECKPOINT, verdict, at=1401.0)
        row = {"rung": EVIL, "steps": 10, "loss": None, "ms": 3.5, "verdict": EVIL}
        store.add_event(job.id, 2, EventKind.TRIALS, {"because": EVIL, "table": [row]}, at=2500.0)
        for to in (JobState.LAUNCHING, JobState.RUNNING, JobState.SUCCEEDED):
            store.move(job.id, to, reason=f"as it went {EVIL}", at=4400.0)
    for number, steps in ((1, range(421)), (2, range(400, 411)), (3, range(400, 711)), (4, range(700, 1001))):
        log = HomePaths(home).attempt(job.id, number).log
        log.parent.mkdir(parents=True)
        log.write_text("".join(f"step {step} | loss {3 - step / 500} | lr 1e-3 {EVIL}\n" for step in steps))
    return store.job(job.id)


class Page(HTMLParser):
    """Collects the tags, the attributes and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.names: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.names |= {name for name, _ in attrs}

    handle_startendtag = handle_starttag

    def handle_data(self, data):
        self.text += data


def check_page(text: str) -> Page:
    page = Page(text)
    assert not {"script", "link", "img", "iframe", "a", "object"} & set(page.tags)
    assert not [name for name in page.names if name.startswith("on") or name in ("src", "href", "style")]
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "url(" not in text
    return page


def test_the_first_line_says_how_it_went_and_only_what_is_known(store: Store, recovered: Job, home: Path) -> None:
    data = history(store, recovered, HomePaths(home), 5000.0)
    # Run again: 20 and 10 steps of the runs, and the 10 of the trial; the last took 1 s a step, the first 0.95 s.
    assert summary_line(data) == (
        "mmgcn finished after 2 recoveries (lower_lr, fp32_modules): 4 % of steps run again, 5.0 % slower, "
        "val_auc 0.9072"
    )
    with store.transaction():
        plain = store.add_job(JobSpec.model_validate({"name": "plain", "run": "x"}), Path("/"), at=1.0)
    assert summary_line(history(store, plain, HomePaths(home), 5.0)) == "plain is queued: 0 steps in 0s"


def test_the_page_of_a_job_says_what_a_site_was_asked_for_where_its_node_reports_no_gpu(
    store: Store, home: Path
) -> None:
    with store.transaction():
        job = store.add_job(JobSpec.model_validate({"name": "far", "run": "x"}), Path("/"), at=900.0)
        store.put_attempt(attempt(job, 1, gpus=(), node="n1", gpus_asked="A100:1"))
    text = check_page(job_page(store, job, HomePaths(home), 5000.0)).text
    unseen = "A100:1 asked; the node reports none"
    # In the costs of the job, and as the place and the cost of the attempt.
    assert text.count(unseen) == 3 and f"h1, node n1 ({unseen})" in text
    assert "GPU-seconds" not in text and "GPU-hours" not in text


def test_the_page_of_a_job_shows_everything_and_runs_nothing(store: Store, recovered: Job, home: Path) -> None:
    text = job_page(store, recovered, HomePaths(home), 5000.0)
    page = check_page(text)
    assert page.text.count(SHOWN) >= 10
    for part in (
        "Times and costs",
        "Curves",
        "Attempts",
        "Trials",
        "Checkpoints",
        "What happened",
        "line 7 of its log",
    ):
        assert part in page.text
    assert "0.001: it did not take" in page.text  # lr was asked to be 1e-4
    assert "svg" in page.tags
    assert text.index("mmgcn finished after 2 recoveries") < text.index("Times and costs")


def test_what_a_resume_threw_away_is_faded_and_a_trial_is_thin(store: Store, recovered: Job, home: Path) -> None:
    attempts = store.attempts(recovered.id)
    assert kept_until(attempts) == {1: 400, 3: 700, 4: None}
    loss = job_figure(recovered, attempts, read_series(recovered, attempts, HomePaths(home))).panels[0]
    spans = [(curve.look.value, curve.points[0][0], curve.points[-1][0]) for curve in loss.curves]
    assert spans == [
        ("own", 0, 400),
        ("lost", 400, 420),
        ("trial", 400, 410),
        ("own", 400, 700),
        ("lost", 700, 710),
        ("own", 700, 1000),
    ]
    figure = job_figure(recovered, attempts, read_series(recovered, attempts, HomePaths(home)))
    assert [(mark.kind.value, mark.step) for mark in figure.marks] == [("fault", 420), ("rung", 400), ("rung", 700)]
    assert [(band.first, band.last) for band in figure.bands] == [(0, 400), (400, 700), (700, 1000)]


def test_a_trial_that_won_is_a_part_of_the_run_and_what_it_replaces_is_faded(job_with_winner: tuple) -> None:
    job, attempts, paths = job_with_winner
    assert kept_until(attempts) == {1: 0, 2: 100, 3: None}
    figure = job_figure(job, attempts, read_series(job, attempts, paths))
    assert [(curve.look.value, curve.points[-1][0]) for curve in figure.panels[0].curves] == [
        ("own", 0),
        ("lost", 170),
        ("own", 100),
        ("lost", 104),
        ("own", 300),
    ]
    assert [(mark.kind.value, mark.step) for mark in figure.marks] == [("fault", 170), ("rung", 0)]
    assert [band.label for band in figure.bands] == ["2 lower_lr", "3 lower_lr"]


@pytest.fixture
def job_with_winner(store: Store, home: Path) -> tuple:
    """Return a job whose last run goes on at step 100 of a trial that began anew."""
    with store.transaction():
        job = store.add_job(JobSpec.model_validate({"name": "gpt", "run": "x"}), Path("/"), at=900.0)
    trial = Trial(1, 0, (Candidate("lower_lr", job.knobs, 0.1),), 0, 170, 104, 100, won=True)
    fault = Fault(FaultKind.DIVERGENCE, "loss 9", step=170)
    attempts = [
        attempt(job, 1, by_person=True, furthest_step=170, fault=fault),
        attempt(job, 2, rung="lower_lr", trial=trial, furthest_step=104, outcome=Outcome.STOPPED),
        attempt(job, 3, rung="lower_lr", planned_step=100, furthest_step=300, outcome=Outcome.SUCCEEDED),
    ]
    for number, steps in ((1, range(171)), (2, range(105)), (3, range(100, 301))):
        log = HomePaths(home).attempt(job.id, number).log
        log.parent.mkdir(parents=True)
        log.write_text("".join(f"step {step} | loss {step % 7}\n" for step in steps))
    return job, attempts, HomePaths(home)


def test_the_report_of_a_night_names_what_needs_a_person(store: Store, recovered: Job, home: Path) -> None:
    with store.transaction():
        bad = store.add_job(JobSpec.model_validate({"name": EVIL[:25], "run": "x"}), Path("/"), at=4500.0)
        store.move(bad.id, JobState.FAILED, reason=f"no rung was left {EVIL}", at=4600.0)
    found = since_report(store, HomePaths(home), 3900.0, 5000.0)
    assert len(found.ended) == 2
    assert found.recovered == (f"{recovered.id}: fp32_modules; finished after 2 recoveries",)
    assert found.other_relaunches == ()
    (needs,) = found.needs_person
    assert needs.startswith(f"{bad.id} failed: no rung was left")
    page = check_page(since_page(found))
    assert SHOWN in page.text
    assert "0 jobs ended, 0 recovered, 0 need a person" in since_report(store, HomePaths(home), 4900.0, 5000.0).line


def test_a_job_that_was_relaunched_and_then_failed_is_not_called_recovered(
    store: Store, recovered: Job, rung: Rung, home: Path
) -> None:
    """Its line, its own report and what needs a person say the same, also after a person has retried it."""
    fault = Fault(FaultKind.NAN_LOSS, "loss is nan", step=30)
    with store.transaction():
        job = store.add_job(JobSpec.model_validate({"name": "large", "run": "x"}), Path("/"), at=4500.0)
        store.put_attempt(attempt(job, 1, by_person=True, fault=fault, started_at=4500.0))
        relaunched = {"rung": "lower_lr", "after_fault": "nan_loss", "started_at": 4600.0}
        store.put_attempt(attempt(job, 2, fault=fault, **relaunched))
        for to in (JobState.LAUNCHING, JobState.RUNNING, JobState.FAILED):
            store.move(job.id, to, reason="no rung is left", at=4700.0)
    found = since_report(store, HomePaths(home), 4450.0, 5000.0)
    assert found.recovered == ()
    assert found.other_relaunches == (f"{job.id}: lower_lr; failed after 1 recovery; it needs a person",)
    assert found.needs_person == (f"{job.id} failed: no rung is left",)
    assert "1 job ended, 0 recovered, 1 needs a person" in found.line
    own = summary_line(history(store, store.job(job.id), HomePaths(home), 5000.0))
    assert own == "large failed after 1 recovery (lower_lr): no rung is left" and own in found.ended[0]
    for shown in (since_text(found), check_page(since_page(found)).text):
        assert "Other relaunches" in shown and found.other_relaunches[0] in shown

    with store.transaction():
        store.move(job.id, JobState.QUEUED, reason="a person asked", at=4800.0)
        store.reopen(job.id, job.knobs, 2)
        store.put_attempt(attempt(job, 3, by_person=True, after_fault="nan_loss", started_at=4801.0))
        for to in (JobState.LAUNCHING, JobState.RUNNING):
            store.move(job.id, to, reason="as it went", at=4802.0)
    found = since_report(store, HomePaths(home), 4450.0, 5000.0)
    assert found.recovered == found.needs_person == ()
    assert found.other_relaunches[0].startswith(
        f"{job.id}: lower_lr; is running after 1 recovery and 1 retry by a person"
    )


def test_the_command_writes_a_private_file_and_prints_the_line(
    store: Store, recovered: Job, rung: Rung, home: Path, tmp_path: Path
) -> None:
    store.close()
    page = tmp_path / "job.html"
    done = rung("report", "mmgcn", "-o", page)
    assert done.code == 0, done.err
    first, second = done.out.splitlines()
    assert re.match(r"mmgcn finished after 2 recoveries \(lower_lr, fp32_modules\): ", first)
    assert second == f"written to {page}"
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    check_page(page.read_text())
    assert rung("report", "mmgcn").out.splitlines()[0] == first
    facts = json.loads(rung("report", "mmgcn", "--json").out)
    assert (facts["line"], facts["recoveries"]) == (first, ["lower_lr", "fp32_modules"])
    assert json.loads(rung("report", "--since", "2000-01-01", "--json").out)["recovered"] == []
    assert "\x1b" not in rung("report", "--since", "2000-01-01").out
    assert rung("report", "--since", "30d", "-o", page).code == 0
    assert "What Rung did" in page.read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "name a job, or a time"),
        (("mmgcn", "--since", "1h"), "name a job, or a time"),
        (("--since", "soon"), "--since soon"),
        (("mmgcn", "-o", "."), "is a folder"),
        (("mmgcn", "-o", "no/such/folder/r.html"), "cannot be written there"),
    ],
)
def test_bad_input_is_one_line(store: Store, recovered: Job, rung: Rung, words: tuple[str, ...], says: str) -> None:
    store.close()
    done = rung("report", *words)
    assert done.code == 2
    assert says in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "r.html"
    write_page(target, "old")
    write_page(target, "new \ud800")
    assert target.read_text() == "new ?"
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]
