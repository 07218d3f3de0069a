"""Measures the page: against a plain page of the same size from the same server, and what it costs the controller."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from rung.jobs.job import Attempt
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.recovery.logs.reading import Reading
from rung.runner.metrics.turn_times import WRITE_SECONDS, read_turns
from rung.runner.series.write import SeriesWriter
from rung.runner.state.home import make_home
from rung.runner.state.store import Store
from tests import pace
from tests.bench.hosts import cpu_seconds

JOBS, POINTS = 1000, 1_000_000
ROUNDS = 20
# Jobs that run while the turns are timed, and for how long with and without somebody who looks, in turns.
RUNNING, WINDOW, PAIRS = 8, 3 * WRITE_SECONDS, 3
PLAIN = "/plain/"
LOOP = "i=0; while [ ! -e ../go ]; do i=$((i+1)); echo step $i loss 0.5; sleep 0.2; done"
Times = tuple[list[float], list[float]]


def main(options: Sequence[str] = ()) -> None:
    if options[:1] == ["--serve"]:
        serve()
        return
    short = "--short" in options
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RUNG_HOME"] = str(Path(folder) / "home")
        paths = HomePaths(Path(folder) / "home")
        job = fill(paths, 10_000 if short else POINTS)
        with server() as (port, cookie):
            print("The page against a plain page of the same size from the same server, in the same run")
            print(f"  {'':32} {'bytes':>9} {'first byte':>22} {'whole answer':>22}")
            for name, path in ((f"the list, {JOBS:,} jobs", "/"), (f"a job with {POINTS:,} points", f"/jobs/{job}")):
                report(name, path, (port, cookie), 5 if short else ROUNDS)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RUNG_HOME"] = str(Path(folder) / "home")
        turns(Path(folder), 1 if short else PAIRS)


def fill(paths: HomePaths, points: int) -> str:
    """Write a home with many jobs that have ended, the newest of which has a long series; return its id."""
    make_home(paths)
    store, spec = Store(paths.store), JobSpec.model_validate({"name": "many", "run": "true"})
    with store.transaction():
        for number in range(JOBS):
            job = store.add_job(spec, paths.home, at=float(number))
            for state in (JobState.LAUNCHING, JobState.RUNNING, JobState.SUCCEEDED):
                store.move(job.id, state, reason="finished", at=float(number))
            times = {"started_at": 1.0, "ended_at": 9.0, "furthest_step": points}
            store.put_attempt(Attempt(job.id, 1, "localhost", Knobs(), None, "", by_person=True, **times))
    store.close()
    place = paths.attempt(job.id, 1)
    place.log.parent.mkdir(parents=True)
    place.log.write_text("step 1 loss 2\n", encoding="utf-8")
    writer = SeriesWriter(place, time.time)
    for step in range(points):
        writer.add(step, Reading(loss=2 + step % 7 / 10, grad_norm=1.5, lr=0.001, scale=65536.0))
    writer.finish(live=True)
    return job.id


def serve() -> None:
    """Serve the page, and below PLAIN a page of as many bytes as its address says, behind the same guard."""
    from starlette.responses import HTMLResponse
    from starlette.types import ASGIApp, Receive, Scope, Send

    from rung.runner.web import app as web_app
    from rung.runner.web import serve as web_serve
    from rung.runner.web.access import Access

    def with_plain(paths: HomePaths, access: Access) -> ASGIApp:
        guard = web_app.make_app(paths, access)
        inner = guard._app  # type: ignore[attr-defined]

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            path = scope.get("path", "")
            plain = path.startswith(PLAIN)
            answer = HTMLResponse(b"x" * int(path.removeprefix(PLAIN))) if plain else inner
            await answer(scope, receive, send)

        guard._app = app  # type: ignore[attr-defined]
        return guard

    web_serve.make_app = with_plain
    web_serve.serve(HomePaths(Path(os.environ["RUNG_HOME"])), 0, lambda link: print(link, flush=True))


@contextmanager
def server() -> Iterator[tuple[int, str]]:
    """Run the server in a process of its own; return its port and the cookie."""
    process = subprocess.Popen([sys.executable, "-m", "tests.bench.web", "--serve"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield admission(process.stdout.readline().strip())
    finally:
        process.terminate()
        process.wait()


def admission(link: str) -> tuple[int, str]:
    """Return the port of a link, and the cookie that its token is."""
    port, token = int(link.partition("127.0.0.1:")[2].partition("/")[0]), link.partition("token=")[2]
    return port, f"rung_{port}={token}"


def report(name: str, path: str, where: tuple[int, str], rounds: int) -> None:
    _, first_look, body = get(path, where)
    size = len(body)
    page: Times = ([], [])
    plain: Times = ([], [])
    for _ in range(rounds):
        for address, times in ((path, page), (f"{PLAIN}{size}", plain)):
            first, whole, body = get(address, where)
            assert len(body) == size or address == path
            times[0].append(first)
            times[1].append(whole)
    cells = [f"{1000 * median(a):.1f} ms, {median(a) / median(b):.0f} x" for a, b in zip(page, plain, strict=True)]
    print(f"  {name:32} {size:9,} {cells[0]:>22} {cells[1]:>22}; the first look {1000 * first_look:.0f} ms")


def get(path: str, where: tuple[int, str]) -> tuple[float, float, bytes]:
    """Return the seconds until the first byte and until the last one, and the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", where[0], timeout=120)
    began = time.perf_counter()
    connection.request("GET", path, headers={"cookie": where[1]})
    answer = connection.getresponse()
    first = time.perf_counter() - began
    body = answer.read()
    whole = time.perf_counter() - began
    connection.close()
    assert answer.status == 200, path
    return first, whole, body


def turns(folder: Path, pairs: int) -> None:
    """Time the turns of a controller with running jobs while nobody looks at its page, and while somebody does."""
    rung, paths = str(Path(sys.executable).parent / "rung"), HomePaths(folder / "home")
    os.environ["RUNG_MAX_PARALLEL"] = str(RUNNING)
    process = subprocess.Popen([rung, "controller", "--web", "--port", "0"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    where = admission(process.stdout.readline().strip())
    threading.Thread(target=process.stdout.read, daemon=True).start()
    try:
        for number in range(RUNNING):
            work = folder / f"work{number}"
            work.mkdir()
            file = work / "job.yaml"
            file.write_text(f"name: printer-{number}\nrun: sh -c '{LOOP}'\nworkdir: .\n", encoding="utf-8")
            subprocess.run([rung, "launch", str(file)], check=True, capture_output=True)
        store = Store(paths.store)
        pace.until(lambda: all(job.state is JobState.RUNNING for job in store.jobs()), 300, every=1)
        store.close()
        seen, unseen, looks = measure(paths, process.pid, where, pairs)
    finally:
        (folder / "go").touch()
        process.terminate()
        process.wait()
    print(f"The turns of a controller with {RUNNING} running jobs, {pairs} pairs of {WINDOW:.0f} s in turns")
    for name, one, other in (("time", unseen[0], seen[0]), ("CPU time", unseen[1], seen[1])):
        print(
            f"  {name} of a turn: {1000 * one:.1f} ms, while somebody looks {1000 * other:.1f} ms: {other / one:.2f} x"
        )
    print(f"  who looks asks for list, job and log again and again: {looks:.0f} pages a second")


def measure(
    paths: HomePaths, pid: int, where: tuple[int, str], pairs: int
) -> tuple[tuple[float, float], tuple[float, float], float]:
    """Return the seconds and the CPU seconds of a turn with and without somebody who looks, and the pages a second."""
    found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    count = 0
    for _ in range(pairs):
        for looking in (False, True):
            looks = where if looking else None
            turns, seconds, cpu = figures(paths, pid, looks)
            count += spend(WINDOW, looks)
            more_turns, more_seconds, more_cpu = figures(paths, pid, looks)
            made = more_turns - turns
            found[looking].append(((more_seconds - seconds) / made, (more_cpu - cpu) / made))
    seen, unseen = ((median(a for a, _ in rows), median(b for _, b in rows)) for rows in (found[True], found[False]))
    return seen, unseen, count / (pairs * WINDOW)


def spend(seconds: float, where: tuple[int, str] | None) -> int:
    """Let this time pass, looking at one page after the other; return how many. None: without looking."""
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        if where is None:
            time.sleep(0.1)
            continue
        for path in ("/", "/jobs/printer-0-1", "/jobs/printer-0-1/log/1"):
            get(path, where)
            count += 1
    return count


def figures(paths: HomePaths, pid: int, where: tuple[int, str] | None) -> tuple[int, float, float]:
    """Return the turns so far, their seconds, and the controller's CPU seconds, right after it has written them."""
    first = found = read_turns(paths.turn_times)
    while found is None or found == first:
        spend(0.05, where)
        found = read_turns(paths.turn_times)
    return found.turns, found.seconds, cpu_seconds(pid)


if __name__ == "__main__":
    main(sys.argv[1:])
