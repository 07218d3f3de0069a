"""Tests that the shown line, step and speed are those of the training that decided, not of what stands beside it."""

from __future__ import annotations

import pytest

from rung.jobs.job import Job
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.controller.log_watch import LogWatch, fault_at_end
from rung.runner.seams.engine import Observation, Presence
from tests.recovery.detect.watched_log import steps, watch

FAILED = Observation(Presence.ENDED, exit_code=1)
SCAN = "".join(f" 50%|#####     | {n}/40 [00:00<00:00, 812.3it/s]\n" for n in (10, 20, 40))
SHARDS = "Writing shards: 100%|##########| 40/40 [00:00<00:00, 561.9it/s]\n"
OTHER = "Shards: 100%|##########| 40/40 [00:00<00:00, 561.9 examples/s]\n"
RECORDS = steps([4 - n / 10 for n in range(8)], 1)


@pytest.mark.parametrize("more", ["]\n", "language: en\n", "rung| note the clip was not found\n", "---\n}\n"])
def test_a_fault_at_the_end_shows_the_line_of_its_numbers(more: str) -> None:
    losses = [2.0 * 1.12**n for n in range(40)]
    fault = watch(steps(losses) + more)[0].first_fault(ended=True)
    assert fault is not None and fault.kind is FaultKind.DIVERGENCE
    assert fault.evidence.startswith("rung| step step=39 ") and fault.line == 40
    low = steps([2.0] * 30) + steps([2.0, 2.0], 30, scale=0.5, skipped=1)
    fault = watch(low + more)[0].first_fault(ended=True)
    assert fault is not None and fault.kind is FaultKind.SCALE_COLLAPSE and fault.line == 32


@pytest.mark.parametrize("more", ["]\n", "rung| note the clip was not found\n", "rung: the log ends early\n", "----\n"])
def test_an_unknown_end_shows_the_last_line_that_says_something(tmp_path, more: str) -> None:
    (tmp_path / "log").write_text(f"step 1 loss 2.0\nno GPU, stopping\n{more}")
    watch = LogWatch(tmp_path / "log", Job("a-1", JobSpec(name="a", run=("x",)), JobState.RUNNING, "", 0, 0, Knobs()))
    watch.read_to_end()
    fault = fault_at_end(FAILED, watch)
    assert fault is not None and fault.evidence == "exit code 1; last line: no GPU, stopping"


@pytest.mark.parametrize("bar", [SCAN, SHARDS, OTHER])
@pytest.mark.parametrize(
    "training",
    [
        RECORDS,
        "".join(f"step {n} loss {4 - n / 10}\n" for n in range(1, 9)),
        "".join(f" 4%|#  | {n}/200 [00:01<00:02, 2.5it/s, loss={4 - n / 10}]\n" for n in range(1, 9)),
    ],
    ids=["records", "named steps", "a bar with losses"],
)
def test_a_bar_that_counts_data_or_files_gives_no_step_and_no_speed(bar: str, training: str) -> None:
    for log in (bar + training, bar + training + bar):
        progress = watch(log)[0].progress
        assert (progress.first_step, progress.step, progress.furthest_step) == (1, 8, 8)
        assert progress.throughput == ({"it/s": 2.5} if "2.5it/s" in training else {})


def test_the_bar_during_which_records_come_gives_the_speed() -> None:
    bars = [f" 4%|#  | {n}/200 [00:01<00:02, {n}.5it/s]\n" for n in range(1, 4)]
    log = SCAN + "".join(bar + steps([4.0 - n], n) for n, bar in enumerate(bars, 1)) + SCAN
    assert watch(log)[0].progress.throughput == {"it/s": 3.5}
    assert watch("".join(bars))[0].progress.throughput == {}


def test_a_line_with_a_speed_and_no_bar_gives_the_speed() -> None:
    assert watch("train_samples_per_second: 151.2\n")[0].progress.throughput == {"samples/s": 151.2}
