"""Tests what queue and record of an attempt on a cluster mean together."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from rung.jobs.model.engine import SAVED_EXIT, EndedBy
from rung.jobs.model.paths import AttemptPaths
from rung.runner.engines.on_host.done_record import read_done, write_done
from rung.runner.engines.slurm.job_table import BatchJob
from rung.runner.engines.slurm.outcome import is_settled, observe
from rung.runner.engines.slurm.site_record import SiteRecord, parse_record
from rung.runner.seams.engine import Observation, Presence

BEGAN = SiteRecord(True, 100.0, "turing")


def done(code: int, *, told: bool = False) -> SiteRecord:
    return SiteRecord(True, 100.0, "turing", code, 160.0, told)


def job(state: str, reason: str = "", nodes: str = "turing") -> BatchJob:
    return BatchJob("5", "rung-s-j-1-1", state, reason, nodes)


def seen(batch: BatchJob | None, record: SiteRecord, *, stopped: bool = False) -> Observation:
    return observe(batch, record, "lab", stopped=stopped)


def test_what_the_cluster_never_had_is_absent() -> None:
    assert seen(None, SiteRecord()).presence is Presence.ABSENT


def test_a_job_in_the_queue_waits_and_says_why() -> None:
    found = seen(job("PENDING", "Priority", ""), SiteRecord())
    assert (found.presence, found.detail) == (Presence.WAITING, "batch job 5 waits in the queue of lab (Priority)")
    found = seen(job("RUNNING"), SiteRecord())
    assert (found.presence, found.detail) == (Presence.WAITING, "batch job 5 begins on turing")


@pytest.mark.parametrize("state", ["PENDING", "CANCELLED"])
def test_a_job_that_would_wait_for_ever_is_refused_also_when_it_is_out_of_the_queue(state: str) -> None:
    endless = replace(job(state, "PartitionTimeLimit", ""), partition="gpu")
    found = seen(endless, SiteRecord())
    assert found.presence is Presence.REFUSED
    assert "batch job 5 and would never start it (PartitionTimeLimit): ask for a time within" in found.detail
    # Of several partitions, another one may take it; and a job that we stopped was not refused.
    several = seen(replace(endless, partition="gpu,long"), SiteRecord())
    assert several.presence is (Presence.WAITING if state == "PENDING" else Presence.LOST)
    assert seen(endless, SiteRecord(), stopped=True).presence is not Presence.REFUSED


def test_a_job_that_has_begun_runs_on_its_node() -> None:
    assert seen(job("RUNNING"), BEGAN) == Observation(Presence.RUNNING, started_at=100.0, node="turing")


def test_a_job_whose_wrapper_still_asks_for_the_gpus_begins_and_shows_no_gpus_yet() -> None:
    found = seen(job("RUNNING"), parse_record("claimed - "))
    assert (found.presence, found.detail) == (Presence.WAITING, "batch job 5 begins on turing")
    assert seen(None, parse_record("claimed - ")).presence is Presence.LOST


@pytest.mark.parametrize(
    ("state", "record", "code", "sent", "by"),
    [
        ("COMPLETED", done(0), 0, None, EndedBy.ITSELF),
        ("FAILED", done(3), 3, None, EndedBy.ITSELF),
        ("FAILED", done(137), None, 9, None),
        ("TIMEOUT", done(143), None, 15, EndedBy.TIME_LIMIT),
        ("COMPLETED", done(SAVED_EXIT, told=True), SAVED_EXIT, None, EndedBy.TIME_LIMIT),
        ("PREEMPTED", done(SAVED_EXIT, told=True), SAVED_EXIT, None, EndedBy.PREEMPTION),
        # torchrun's code for a rank that has saved, and srun's for one that it ended then.
        ("FAILED", done(1, told=True), 1, None, EndedBy.TIME_LIMIT),
        ("FAILED", done(143, told=True), None, 15, EndedBy.TIME_LIMIT),
        ("COMPLETED", done(0, told=True), 0, None, EndedBy.ITSELF),
        # Nobody had said that its time was up, so the code is the script's own.
        ("FAILED", done(SAVED_EXIT), SAVED_EXIT, None, EndedBy.ITSELF),
        ("PREEMPTED", done(143), None, 15, EndedBy.PREEMPTION),
        ("OUT_OF_MEMORY", done(137), None, 9, EndedBy.OUT_OF_MEMORY),
        ("CANCELLED", done(143), None, 15, EndedBy.ADMINISTRATOR),
        # It had come to its end when the limit struck.
        ("TIMEOUT", done(0), 0, None, EndedBy.ITSELF),
    ],
)
def test_a_record_tells_how_and_the_queue_who(
    state: str, record: SiteRecord, code: int | None, sent: int | None, by: EndedBy | None
) -> None:
    found = seen(job(state), record)
    assert (found.presence, found.exit_code, found.signal, found.ended_by) == (Presence.ENDED, code, sent, by)
    assert (found.started_at, found.ended_at, found.node) == (100.0, 160.0, "turing")


@pytest.mark.parametrize(
    ("batch", "by"), [(job("NODE_FAIL"), EndedBy.NODE_FAILURE), (job("TIMEOUT"), EndedBy.TIME_LIMIT), (None, None)]
)
def test_what_began_and_left_no_record_is_lost(batch: BatchJob | None, by: EndedBy | None) -> None:
    found = seen(batch, BEGAN)
    assert (found.presence, found.ended_by) == (Presence.LOST, by)
    assert "left no completion record" in found.detail


def test_a_job_that_is_stopped_in_the_queue_has_ended() -> None:
    found = seen(job("CANCELLED", nodes=""), SiteRecord(), stopped=True)
    assert (found.presence, found.signal) == (Presence.ENDED, signal.SIGTERM)
    assert seen(job("CANCELLED", nodes=""), SiteRecord()).presence is Presence.LOST


@pytest.mark.parametrize(
    ("batch", "record", "settled"),
    [
        (job("COMPLETED"), done(0), True),
        (None, done(0), True),
        # The queue will say who ended it.
        (job("COMPLETING"), done(143), False),
        # A shared file system may show the record later.
        (job("COMPLETED"), BEGAN, False),
        (None, BEGAN, False),
        (job("CANCELLED", nodes=""), SiteRecord(), True),
    ],
)
def test_an_end_counts_when_queue_and_record_agree(batch: BatchJob | None, record: SiteRecord, settled: bool) -> None:
    assert is_settled(batch, record) is settled


def test_the_gpus_of_the_node_are_those_that_its_driver_lists(tmp_path: Path) -> None:
    said = "1, GPU-b, 40960, 580.95.05, 8.0, NVIDIA A100-SXM4-40GB;No devices were found;"
    record = parse_record("began 5 17 1763445600 turing ", said)
    (gpu,) = record.gpus
    assert (gpu.index, gpu.uuid, gpu.type, gpu.capability) == (1, "GPU-b", "A100", (8, 0))
    assert seen(job("RUNNING"), record).gpus == (gpu,)
    ended = seen(job("COMPLETED"), replace(record, exit_code=0))
    paths = AttemptPaths(tmp_path)
    write_done(paths, ended)
    assert ended.gpus == (gpu,) and read_done(paths) == ended
    assert seen(job("NODE_FAIL"), record).gpus == (gpu,)


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ("none - ", SiteRecord()),
        ("none 12 ", SiteRecord(log_size=12)),
        ("claimed - ", SiteRecord(True, prepares=True)),
        ("began - ", SiteRecord(True)),
        ("began 5 17 1763445600 turing ", SiteRecord(True, 1763445600.0, "turing", log_size=5)),
        (
            'done 9 {"exit_code": 3, "began_at": 5, "ended_at": 9, "told": true, "node": "n[1-2]"}   ',
            SiteRecord(True, 5.0, "n[1-2]", 3, 9.0, told=True, log_size=9),
        ),
        ("strange 9 ", SiteRecord(True, strange=True, log_size=9)),
        ('done 9 {"exit_code": "3"}', SiteRecord(True, strange=True, log_size=9)),
        ("done 9 [[[[", SiteRecord(True, strange=True, log_size=9)),
        ("whatever a job prints", SiteRecord()),
    ],
)
def test_a_line_about_a_record_is_read_and_nothing_else_is_believed(line: str, record: SiteRecord) -> None:
    assert parse_record(line) == record


def test_a_full_disk_leaves_no_draft_of_an_end(tmp_path: Path) -> None:
    paths = AttemptPaths(tmp_path / "1")
    paths.folder.mkdir()
    draft = paths.done.with_suffix(".draft")
    draft.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        write_done(paths, Observation(Presence.ENDED, 0))
    assert not draft.is_symlink() and read_done(paths) is None
