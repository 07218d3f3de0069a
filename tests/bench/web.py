"""Measures the page: against a plain page of the same size from the same server, and what it costs the controller.

What a machine does besides comes and goes. So the two sides of each ratio are measured right after each other, each
goes first as often as the other, and what is printed is the median of these ratios, with its quartiles.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

from rung.jobs.job import Attempt
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.recovery.logs.reading import Reading
from rung.recovery.series.thinning import ROWS_PER_LEVEL
from rung.runner.metrics.turn_times import WRITE_SECONDS, read_turns
from rung.runner.series.write import SeriesWriter
from rung.runner.state.home import make_home
from rung.runner.state.store import Store
from tests import pace
from tests.bench.hosts import cpu_seconds

JOBS, POINTS = 1000, 1_000_000
ROUNDS, FIRST_LOOKS = 40, 3
# Jobs that run while the turns are timed, and for how long with and without somebody who looks, in turns.
RUNNING, WINDOW, PAIRS = 8, 3 * WRITE_SECONDS, 6
PLAIN = "/plain/"
LOOP = "i=0; while [ ! -e ../go ]; do i=$((i+1)); echo step $i loss 0.5; sleep 0.2; done"
Where = tuple[int, str]
# Seconds until the first byte, seconds until the last one, and the answer.
Got = tuple[float, float, bytes]


def main(options: Sequence[str] = ()) -> None:
    if options[:1] == ["--serve"]:
        serve()
        return
    short = "--short" in options
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RUNG_HOME"] = str(Path(folder) / "home")
        pages(HomePaths(Path(folder) / "home"), 10_000 if short else POINTS, 6 if short else ROUNDS)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RUNG_HOME"] = str(Path(folder) / "home")
        turns(Path(folder), 2 if short else PAIRS)


def pages(paths: HomePaths, points: int, rounds: int) -> None:
    """Time the list and two jobs with long series: one has ended, and one has new points at each look."""
    make_home(paths)
    store = Store(paths.store)
    add_ended(store, paths.home)
    ended, running = (add_long(store, paths, points, ended=ended) for ended in (True, False))
    store.close()
    ended[1].finish(live=True)
    first = [first_look(f"/jobs/{ended[0]}") for _ in range(FIRST_LOOKS)]
    with server() as where:
        print(f"The page against a plain page of the same size from the same server, {rounds} pairs of requests each")
        print(f"  {'':48} {'bytes':>9} {'first byte':>32} {'whole answer':>32}")
        report(f"the list, {JOBS:,} jobs", "/", where, rounds)
        report(f"a job with {points:,} points, looked at again", f"/jobs/{ended[0]}", where, rounds)
        name = "the same while it runs, new points at each look"
        report(name, f"/jobs/{running[0]}", where, rounds, Growing(running[1], points))
    print(
        f"  the first look at that job after a start: {1000 * median(first):.0f} ms, the median of {len(first)} starts"
    )


def add_ended(store: Store, folder: Path) -> None:
    """Add many jobs that have ended."""
    spec = JobSpec.model_validate({"name": "many", "run": "true"})
    with store.transaction():
        for number in range(JOBS):
            job = store.add_job(spec, folder, at=float(number))
            for state in (JobState.LAUNCHING, JobState.RUNNING, JobState.SUCCEEDED):
                store.move(job.id, state, reason="finished", at=float(number))
            times = {"started_at": 1.0, "ended_at": 9.0}
            store.put_attempt(Attempt(job.id, 1, "localhost", Knobs(), None, "", by_person=True, **times))


def add_long(store: Store, paths: HomePaths, points: int, *, ended: bool) -> tuple[str, SeriesWriter]:
    """Add a job with a long series; return its id, and what goes on writing its series."""
    states = (JobState.LAUNCHING, JobState.RUNNING, *([JobState.SUCCEEDED] if ended else []))
    with store.transaction():
        job = store.add_job(JobSpec.model_validate({"name": "long", "run": "true"}), paths.home, at=float(JOBS))
        for state in states:
            store.move(job.id, state, reason="as it goes", at=float(JOBS))
        times = {"started_at": 1.0, "ended_at": 9.0 if ended else None, "furthest_step": points}
        store.put_attempt(Attempt(job.id, 1, "localhost", Knobs(), None, "", by_person=True, **times))
    place = paths.attempt(job.id, 1)
    place.log.parent.mkdir(parents=True)
    place.log.write_text("step 1 loss 2\n", encoding="utf-8")
    writer = SeriesWriter(place, time.time)
    Growing(writer, 0).add(points)
    return job.id, writer


class Growing:
    """A series that gets new points: as many as it takes until the file grows."""

    def __init__(self, writer: SeriesWriter, step: int) -> None:
        self._writer, self._step = writer, step

    def add(self, points: int) -> None:
        for _ in range(points):
            self._writer.add(self._step, Reading(loss=2 + self._step % 7 / 10, grad_norm=1.5, lr=0.001, scale=65536.0))
            self._step += 1
        self._writer.write(live=True)

    def __call__(self) -> None:
        # A row holds at most as many readings as there are for each row of a level: these make a few rows.
        self.add(max(1, 4 * self._step // ROWS_PER_LEVEL))


def first_look(path: str) -> float:
    """Return the seconds of the first answer of a server that has just started."""
    with server() as where:
        return get(path, where)[1]


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
def server() -> Iterator[Where]:
    """Run the server in a process of its own; return its port and the cookie."""
    process = subprocess.Popen([sys.executable, "-m", "tests.bench.web", "--serve"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield admission(process.stdout.readline().strip())
    finally:
        process.terminate()
        process.wait()


def admission(link: str) -> Where:
    """Return the port of a link, and the cookie that its token is."""
    port, token = int(link.partition("127.0.0.1:")[2].partition("/")[0]), link.partition("token=")[2]
    return port, f"rung_{port}={token}"


def report(name: str, path: str, where: Where, rounds: int, before: Callable[[], None] = lambda: None) -> None:
    """Print one row. `before` is called before each look at the page, outside of its time."""
    size = len(get(path, where)[2])
    page: list[Got] = []
    plain: list[Got] = []
    for number in range(rounds):
        for is_page in (True, False) if number % 2 else (False, True):
            if is_page:
                before()
                page.append(get(path, where))
            else:
                plain.append(get(f"{PLAIN}{size}", where))
    cells = [f"{1000 * median(got[part] for got in page):.1f} ms, {ratios(page, plain, part)}" for part in (0, 1)]
    print(f"  {name:48} {size:9,} {cells[0]:>32} {cells[1]:>32}")


def ratios(page: Sequence[Got], plain: Sequence[Got], part: int) -> str:
    return spread([one[part] / other[part] for one, other in zip(page, plain, strict=True)])


def spread(found: Sequence[float]) -> str:
    """Return the median of some ratios, and between which numbers the middle half of them is."""
    low, middle, high = quantiles(found, n=4, method="inclusive")
    digits = 1 if middle >= 10 else 2
    return f"{middle:.{digits}f} x ({low:.{digits}f} to {high:.{digits}f})"


def get(path: str, where: Where) -> Got:
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
        measured = [pair(paths, process.pid, where, looks_first=number % 2 == 1) for number in range(pairs)]
    finally:
        (folder / "go").touch()
        process.terminate()
        process.wait()
    print(f"The turns of a controller with {RUNNING} running jobs, {pairs} pairs of {WINDOW:.0f} s in turns")
    for name, part in (("time", 0), ("CPU time", 1)):
        unseen, seen = ([each[side][part] for each in measured] for side in (False, True))
        found = spread([one / other for one, other in zip(seen, unseen, strict=True)])
        alone, looked_at = (1000 * median(side) for side in (unseen, seen))
        print(f"  {name} of a turn: {alone:.1f} ms, while somebody looks {looked_at:.1f} ms: {found}")
    looks = median(each[True][2] for each in measured)
    print(f"  who looks asks for list, job and log again and again: {looks:.0f} pages a second")


def pair(paths: HomePaths, pid: int, where: Where, *, looks_first: bool) -> dict[bool, tuple[float, float, float]]:
    """Return the seconds and the CPU seconds of a turn and the pages a second, with and without somebody who looks."""
    found = {}
    for looking in (looks_first, not looks_first):
        looks = where if looking else None
        turns, seconds, cpu = figures(paths, pid, looks)
        began = time.monotonic()
        count = spend(WINDOW, looks)
        rate = count / (time.monotonic() - began)
        more_turns, more_seconds, more_cpu = figures(paths, pid, looks)
        made = more_turns - turns
        found[looking] = ((more_seconds - seconds) / made, (more_cpu - cpu) / made, rate)
    return found


def spend(seconds: float, where: Where | None) -> int:
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


def figures(paths: HomePaths, pid: int, where: Where | None) -> tuple[int, float, float]:
    """Return the turns so far, their seconds, and the controller's CPU seconds, right after it has written them."""
    first = found = read_turns(paths.turn_times)
    while found is None or found == first:
        spend(0.05, where)
        found = read_turns(paths.turn_times)
    return found.turns, found.seconds, cpu_seconds(pid)


if __name__ == "__main__":
    main(sys.argv[1:])
