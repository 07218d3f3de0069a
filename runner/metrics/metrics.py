"""Builds the metrics of a RUNG_HOME: what its store, its controller and its lock show now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version

from rung.jobs.job import Verdict
from rung.jobs.model.engine import INTERRUPTIONS
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import ENDED, JobState
from rung.runner.metrics.counted import count
from rung.runner.metrics.exposition import Family, MetricType, Sample, exposition, histogram
from rung.runner.metrics.job_counts import RELAUNCH_BOUNDS, Counts
from rung.runner.metrics.store_reader import StoreReader, reading
from rung.runner.metrics.turn_times import TurnFigures, read_turns
from rung.runner.state.home import refuse_shared_home
from rung.runner.state.lock import is_owned

# What a controller said about hosts counts for so long. It asks only while a job may need another host.
HOSTS_SECONDS = 60.0


def metrics_text(paths: HomePaths, wall: Callable[[], float] = time.time) -> str:
    """Return all metrics in the text format of Prometheus. The store is only read; without one all counts are 0."""
    refuse_shared_home(paths)
    families = list(_controller(paths))
    if paths.store.exists():
        with reading(paths) as reader:
            families += _store(reader, paths, wall())
    else:
        families += [_jobs({}), *_watched(paths, {}), *_counters(Counts(), 0)]
    return exposition(families)


def _store(reader: StoreReader, paths: HomePaths, now: float) -> Iterator[Family]:
    states = reader.jobs_by_state()
    yield _jobs(states)
    yield from _watched(paths, states)
    yield from _counters(count(reader, paths.counted), reader.submitted())
    leased = [Sample(gpus, {"host": host}) for host, gpus in reader.leased_gpus().items()]
    yield _gauge("rung_gpus_leased", "GPUs that jobs have leased, by host.", leased)
    turns = read_turns(paths.turn_times) or TurnFigures()
    asked = turns.hosts if now - turns.at < HOSTS_SECONDS else {}
    hosts = sorted({**asked, **reader.hosts_in_use()}.items())
    answers = [Sample(answers, {"host": host}) for host, answers in hosts]
    yield _gauge("rung_host_reachable", "1: the host answers, 0: it does not. Only hosts that jobs need now.", answers)


def _jobs(states: Mapping[str, int]) -> Family:
    samples = [Sample(states.get(state.value, 0), {"state": state.value}) for state in JobState]
    return _gauge("rung_jobs", "Jobs that `rung queue` lists, by state.", samples)


def _watched(paths: HomePaths, states: Mapping[str, int]) -> Iterator[Family]:
    owned = is_owned(paths)
    active = sum(count for state, count in states.items() if state not in {str(ended) for ended in ENDED})
    yield _gauge("rung_controller_up", "1: a controller is running.", [Sample(owned, {})])
    yield _gauge("rung_unwatched_jobs", "Active jobs that no controller watches.", [Sample(0 if owned else active, {})])


def _controller(paths: HomePaths) -> Iterator[Family]:
    yield _gauge("rung_build_info", "The version of Rung that writes these metrics.", [Sample(1, _version())])
    turns = read_turns(paths.turn_times)
    if turns is None:
        return
    name = "rung_controller_turn_seconds"
    both = [Sample(turns.seconds, {}, "_sum"), Sample(turns.turns, {}, "_count")]
    yield Family(name, MetricType.SUMMARY, "How long the turns of the controllers took.", both)
    gauges = {
        "last_turn_seconds": ("How long the last turn of the controller took.", turns.last),
        "longest_turn_seconds": ("How long the longest turn of this controller took.", turns.longest),
        "last_turn_timestamp_seconds": ("When the last turn ended, within a few seconds.", turns.at),
    }
    for key, (text, value) in gauges.items():
        yield _gauge(f"rung_controller_{key}", text, [Sample(value, {})])


def _version() -> dict[str, str]:
    try:
        return {"version": version("rung")}
    except PackageNotFoundError:
        return {"version": "unknown"}


def _counters(counts: Counts, submitted: int) -> Iterator[Family]:
    """Yield what only rises: over restarts, and also when jobs are removed."""
    yield _counter("jobs_submitted", "Jobs submitted.", [Sample(submitted, {})])
    ended = _labelled(counts, "ended", ("state",), [str(state) for state in JobState if state in ENDED])
    yield _counter("jobs_ended", "Jobs that came to an end, by the state; one that is retried ends again.", ended)
    yield _counter("launches", "Attempts started, trials included.", _single(counts, "launches"))
    yield _counter(
        "faults", "Faults of the jobs' own runs, without those of trials.", _labelled(counts, "faults", ("fault",))
    )
    recoveries = _labelled(counts, "recoveries", ("fault", "rung"))
    yield _counter("recoveries", "Relaunches that Rung decided, by the fault before and the rung taken.", recoveries)
    interruptions = _labelled(counts, "interruptions", ("ended_by",), [str(each) for each in INTERRUPTIONS])
    yield _counter("interruptions", "Healthy runs that their site ended, by what it did.", interruptions)
    verdicts = _labelled(counts, "verdicts", ("verdict",), [str(verdict) for verdict in Verdict])
    yield _counter("verdicts", "What was seen of runs after a fault.", verdicts)
    yield _counter("trials", "Trials, by rung.", _labelled(counts, "trials", ("rung",)))
    yield _counter("trials_won", "Trials that won, by rung.", _labelled(counts, "trials_won", ("rung",)))
    yield _counter("steps_lost", "Steps run again, or made only by a trial.", _single(counts, "steps_lost"))
    buckets = [counts["relaunch", str(index)] for index in range(len(RELAUNCH_BOUNDS) + 1)]
    samples = histogram(RELAUNCH_BOUNDS, buckets, counts[("relaunch_ms",)] / 1000)
    text = "Seconds from a fault to the next launch that Rung began, a trial or the run itself."
    yield Family("rung_fault_to_relaunch_seconds", MetricType.HISTOGRAM, text, samples)


def _single(counts: Counts, name: str) -> list[Sample]:
    return [Sample(counts[(name,)], {})]


def _labelled(counts: Counts, name: str, labels: tuple[str, ...], known: Iterable[str] = ()) -> list[Sample]:
    """Return a sample for each combination of labels that was counted; `known` values are there from the beginning."""
    found = {(word,): 0 for word in known} | {key[1:]: value for key, value in counts.items() if key[0] == name}
    return [Sample(value, dict(zip(labels, key, strict=True))) for key, value in sorted(found.items())]


def _gauge(name: str, text: str, samples: list[Sample]) -> Family:
    return Family(name, MetricType.GAUGE, text, samples)


def _counter(name: str, text: str, samples: list[Sample]) -> Family:
    return Family(f"rung_{name}_total", MetricType.COUNTER, text, samples)
