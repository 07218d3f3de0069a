"""Answers the requests for pages: the jobs, one job, its log, the hosts and the ledger. Nothing is changed here."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from rung.jobs.model.errors import UsageError
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import ENDED, JobState
from rung.recovery.evidence.read_ledger import read_ledger
from rung.runner.engines.process import ProcessEngine
from rung.runner.metrics.exposition import CONTENT_TYPE
from rung.runner.metrics.metrics import metrics_text
from rung.runner.plots.svg import embedded, plot_css
from rung.runner.report.curves import job_figure
from rung.runner.session.watching import unwatched
from rung.runner.views.hosts_table import with_bad_places
from rung.runner.views.ledger_tables import LEDGER_HEADERS, NO_TRIES, ledger_cells
from rung.runner.views.log_text import log_lines
from rung.runner.views.queue import job_row
from rung.runner.web.curve_reader import CurveReader
from rung.runner.web.host_survey import HostSurvey, with_leases
from rung.runner.web.job_view import job_view
from rung.runner.web.log_window import LogIndexes
from rung.runner.web.reading import ReadStore, snapshot
from rung.runner.web.rendering import make_templates

PAGE_JOBS = 50
TAIL_LINES = 40
MOST_PAGES = 1_000_000
ACTIVE = tuple(state.value for state in JobState if state not in ENDED)


@dataclass
class Pages:
    """The pages of one home."""

    paths: HomePaths
    survey: HostSurvey = field(default_factory=HostSurvey)
    logs: LogIndexes = field(default_factory=LogIndexes)
    curves: CurveReader = field(default_factory=CurveReader)
    templates: Environment = field(default_factory=make_templates)

    def jobs(self, request: Request) -> Response:
        """Show what needs a person, then the jobs, newest first."""
        wanted, number, now = _state(request), _number(request, "page", 1), time.time()
        with snapshot(self.paths.store) as store:
            counts = store.state_counts()
            states = ACTIVE if wanted == "active" else (wanted,) if wanted else ()
            jobs = store.job_page(states, PAGE_JOBS, (number - 1) * PAGE_JOBS)
            attempts = store.attempts_of([job.id for job in jobs])
            rows = [job_row(job, attempts[job.id], now) for job in jobs]
            found = _count(counts, states or tuple(counts))
            about = {"counts": counts, "wanted": wanted, "number": number, "pages": max(1, -(-found // PAGE_JOBS))}
            shown = {
                "rows": rows,
                "needs": store.needs(now),
                "active": _count(counts, ACTIVE),
                "states": list(JobState),
            }
            return self._page("jobs.html", store, **about, **shown, now=now)

    def job(self, request: Request) -> Response:
        """Show one job."""
        now = time.time()
        with snapshot(self.paths.store) as store:
            job = store.find(request.path_params["job"])
            view = job_view(store, job, self.paths, now)
            newest, tail = view.newest, []
            if newest is not None:
                tail = list(log_lines(self.paths.attempt(job.id, newest.number).log, TAIL_LINES))
            attempts = store.attempts(job.id)
            series, being_read = self.curves.of_job(job, attempts, self.paths)
            curves = embedded(job_figure(job, attempts, series), legend=True)
            shown = {"curves": curves, "being_read": being_read}
            watch = unwatched(self.paths, store, job)
            return self._page("job.html", store, view=view, tail=tail, **shown, now=now, nobody=watch)

    def metrics(self, request: Request) -> Response:
        """Return the numbers for Prometheus."""
        return Response(metrics_text(self.paths), media_type=CONTENT_TYPE)

    def plot_style(self, request: Request) -> Response:
        """Return the stylesheet of the curves."""
        return Response(plot_css(), media_type="text/css")

    def log(self, request: Request) -> Response:
        """Show a window of the log of one attempt: around a line, or its end."""
        with snapshot(self.paths.store) as store:
            job, number = store.find(request.path_params["job"]), int(request.path_params["attempt"])
            attempt = next((each for each in store.attempts(job.id) if each.number == number), None)
            if attempt is None:
                raise UsageError(f"{job.id} has no attempt {number}")
            fault = attempt.fault.line if attempt.fault else None
            line = _number(request, "line", 0) or None
            window = self.logs.window(self.paths.attempt(job.id, number).log, line, fault)
            about = {"job": job, "attempt": attempt, "fault": fault, "line": line}
            return self._page("log.html", store, window=window, **about)

    def hosts(self, request: Request) -> Response:
        """Show the hosts and GPUs, and who uses them."""
        found = self.survey.look()
        with snapshot(self.paths.store) as store:
            now = time.time()
            hosts = with_bad_places(with_leases(found.hosts, store.leases()), store.bad_places(now), now)
            running = [each for each in store.job_page(ACTIVE, PAGE_JOBS, 0) if each.state is not JobState.QUEUED]
            attempts = store.attempts_of([job.id for job in running])
            users = [(job.id, attempts[job.id][-1].host) for job in running if attempts[job.id]]
            return self._page("hosts.html", store, hosts=hosts, found=found, users=users, now=now)

    def ledger(self, request: Request) -> Response:
        """Show what each rung did for each fault."""
        with snapshot(self.paths.store) as store:
            rows = read_ledger(store.attempts_by_job(), ProcessEngine().gpu()).rows
            cells = [ledger_cells(row) for row in rows]
            return self._page("ledger.html", store, headers=LEDGER_HEADERS, cells=cells, nothing=NO_TRIES)

    def error(self, message: str, status: int) -> Response:
        return HTMLResponse(self.templates.get_template("error.html").render(message=message, cursor=None), status)

    def _page(self, template: str, store: ReadStore, **values: Any) -> Response:
        # Read in the same snapshot as the rest: the stream goes on with exactly what this page does not show yet.
        common = {"cursor": store.last_event(), "nobody": values.pop("nobody", None) or unwatched(self.paths, store)}
        return HTMLResponse(self.templates.get_template(template).render(**common, **values))


def _count(counts: Mapping[str, int], states: Sequence[str]) -> int:
    return sum(counts.get(state, 0) for state in states)


def _state(request: Request) -> str:
    """Return the state that is asked for: one, `active`, or nothing for all."""
    text = request.query_params.get("state", "")
    if text and text != "active" and text not in set(JobState):
        raise UsageError(f"state {text!r}: write active, or one of {', '.join(JobState)}")
    return text


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:10]) <= MOST_PAGES * PAGE_JOBS):
        raise UsageError(f"{name} {text[:60]!r}: write a number from 1 on")
    return int(text)
