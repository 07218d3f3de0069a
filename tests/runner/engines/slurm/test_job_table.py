"""Tests what is read from Slurm's lists of jobs, whatever a cluster prints there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.jobs.model.engine import EndedBy
from rung.jobs.model.terminal_text import clean
from rung.runner.engines.slurm.job_table import ENDED_BY, BatchJob, Phase, newest, parse_queue, parse_submitted

LISTED = """\
12|rung-abc-mmgcn-1-1|RUNNING|None|turing|2026-11-18T06:00:00|gpu|rung/abc/mmgcn-1/1@f00
13|rung-abc-mmgcn-2-1|PENDING|Resources||2026-11-18T06:00:01|gpu,urgent|rung/abc/mmgcn-2/1@f00
somebody else's line
14|sleep|COMPLETED|None|ampere|2026-11-18T06:00:02|gpu|(null)
"""


def test_each_line_is_a_job_and_other_lines_are_none() -> None:
    running, waiting, other = parse_queue(LISTED)
    assert running == BatchJob(
        "12", "rung-abc-mmgcn-1-1", "RUNNING", "", "turing", "2026-11-18T06:00:00", "gpu", "rung/abc/mmgcn-1/1@f00"
    )
    assert (running.phase, running.ended_by) == (Phase.RUNNING, None)
    assert (waiting.phase, waiting.reason, waiting.nodes) == (Phase.WAITING, "Resources", "")
    assert (waiting.partition, waiting.mark) == ("gpu,urgent", "rung/abc/mmgcn-2/1@f00")
    assert (other.phase, other.ended_by, other.mark) == (Phase.ENDED, EndedBy.ITSELF, "")


@pytest.mark.parametrize("state", sorted(ENDED_BY))
def test_every_state_of_an_end_says_what_ended_the_job(state: str) -> None:
    (job,) = parse_queue(f"1|name|{state} by 1000|None|n|t|p|m")
    assert job.phase is Phase.ENDED and job.ended_by is ENDED_BY[state]


@pytest.mark.parametrize("flag", ["COMPLETING", "SIGNALING", "STAGE_OUT", "CONFIGURING", "SUSPENDED", "NEW_IN_99.05"])
def test_a_state_that_is_no_end_is_not_taken_for_one(flag: str) -> None:
    (job,) = parse_queue(f"1|name|{flag}|None|n|t|p|m")
    assert job.phase is Phase.RUNNING and job.ended_by is None


def test_a_number_that_came_again_does_not_make_it_our_job() -> None:
    theirs = BatchJob("7", "rung-abc-a-1-1", "RUNNING", mark="rung/other/a-1/1@f")
    older = BatchJob(
        "7", "rung-abc-a-1-1", "FAILED", nodes="n1", submitted="2026-11-18T06:00:00", mark="rung/abc/a-1/1@f"
    )
    newer = BatchJob("2", "rung-abc-a-1-1", "RUNNING", submitted="2026-11-18T06:00:05", mark="rung/abc/a-1/1@g")
    assert newest([theirs, newer, older], "rung-abc-a-1-1", "rung/abc/a-1/1") == newer
    # A second batch job of the attempt, which ended when it found that the first one runs it.
    ended = replace(older, submitted="2026-11-18T06:00:09")
    assert newest([newer, ended], "rung-abc-a-1-1", "rung/abc/a-1/1") == newer
    assert newest([theirs], "rung-abc-a-1-1", "rung/abc/a-1/1") is None
    assert newest([newer], "rung-abc-a-1-1", "rung/abc/a-1/11") is None


def test_a_job_that_sbatch_refused_is_none_although_the_cluster_lists_it() -> None:
    refused = "3|rung-abc-a-1-1|FAILED|BadConstraints||2026-11-18T06:00:00|gpu|rung/abc/a-1/1@f"
    assert newest(parse_queue(refused), "rung-abc-a-1-1", "rung/abc/a-1/1") is None


@pytest.mark.parametrize(
    ("printed", "number"),
    [("17\n", "17"), ("17;lab\n", "17"), ("", None), ("sbatch: error", None), ("-1", None), ("²", None)],
)
def test_the_number_of_a_new_job_is_what_sbatch_prints(printed: str, number: str | None) -> None:
    assert parse_submitted(printed) == number


@given(st.text())
def test_no_text_raises_and_no_control_code_gets_through(text: str) -> None:
    for job in parse_queue(f"1|{text}|{text}|{text}|{text}|{text}|{text}|{text}"):
        said = f"{job.reason}{job.nodes}{job.mark}{job.name}"
        assert clean(said) == said
