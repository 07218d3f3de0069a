"""Tests what the faults of hosts excuse in the evidence, and what they do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.chaos.docker_jobs import DockerJobs
from tests.chaos.evidence import (
    AWAY,
    CONTAINER_KILLED,
    CONTAINER_REMOVED,
    CUT,
    ENDS_IT,
    ENGINE_KILLED,
    FROZEN,
    POWER_LOST,
    JobEvidence,
)
from tests.chaos.example import FIRST, LAST, LAST_LOG, LEDGER, edited, found, job, start
from tests.chaos.faults import KINDS
from tests.chaos.host_faults import HOST_FAULTS, HOST_KINDS
from tests.chaos.ledger import runs_of

OVERLAP = edited(6, t=5)
LOST = replace(FIRST, fault="infra_fault", host_lost=True)
INFRA = replace(FIRST, fault="infra_fault")


def happened(evidence: JobEvidence, attempt: int, *kinds: str) -> JobEvidence:
    return replace(evidence, injected={**evidence.injected, attempt: frozenset(kinds)})


def test_only_an_attempt_that_was_given_up_with_its_host_may_run_beside_the_next() -> None:
    beside = "attempt 2 began while attempt 1 still ran"
    for kind in AWAY:
        assert found(happened(job(OVERLAP, (LOST, LAST)), 1, kind)) == []
        assert beside in found(happened(job(OVERLAP), 1, kind))
    assert beside in found(job(OVERLAP, (LOST, LAST)))


@pytest.mark.parametrize("kind", [FROZEN, CUT])
def test_a_link_that_was_cut_and_a_frozen_host_are_no_cause(kind: str) -> None:
    assert found(happened(job(attempts=(INFRA, LAST)), 1, kind))
    assert found(happened(job(attempts=(FIRST, replace(LAST, fault="infra_fault"))), 2, kind))


@pytest.mark.parametrize("kind", [CONTAINER_KILLED, CONTAINER_REMOVED, POWER_LOST, ENGINE_KILLED])
def test_what_ends_a_container_is_a_fault_of_the_machine_and_no_other(kind: str) -> None:
    ended = job(LEDGER[:4], (INFRA,), state="FAILED")
    assert found(ended)
    assert found(happened(ended, 1, kind)) == []
    assert found(happened(job(LEDGER[:4], (replace(INFRA, fault="unknown_exit"),), state="FAILED"), 1, kind))


def test_a_log_may_lack_only_its_end_and_of_a_removed_container_only_if_it_says_so() -> None:
    short = replace(LAST, log=LAST_LOG[:1], shown=None)
    gap = replace(LAST, log=LAST_LOG[1:], shown=None)
    for kind in (POWER_LOST, ENGINE_KILLED):
        assert found(happened(job(attempts=(FIRST, short)), 2, kind)) == []
        assert found(happened(job(attempts=(FIRST, gap)), 2, kind))
    assert found(happened(job(attempts=(FIRST, short)), 2, CONTAINER_REMOVED))
    assert found(happened(job(attempts=(FIRST, replace(short, incomplete=True))), 2, CONTAINER_REMOVED)) == []
    assert found(happened(job(attempts=(FIRST, replace(gap, incomplete=True))), 2, CONTAINER_REMOVED))
    assert found(happened(job(attempts=(FIRST, short)), 2, CONTAINER_KILLED, CUT, FROZEN))


@pytest.mark.parametrize("kind", ENDS_IT)
def test_a_recorded_end_counts_whatever_happened_to_the_host(kind: str) -> None:
    failed = happened(job(state="FAILED"), 2, kind)
    assert found(failed) == []
    assert found(replace(failed, recorded={2: 0})) == ["is FAILED, and its last process made all steps"]
    again = happened(job([*LEDGER, start(11, 12, 3)], (FIRST, LAST, replace(LAST, number=3))), 2, kind)
    assert "attempt 3 began after attempt 2 had finished" in found(replace(again, recorded={2: 0}))
    assert "attempt 3 began after attempt 2 had finished" not in found(again)


def test_two_containers_with_the_same_pid_are_two_processes() -> None:
    both = [{**each, "pid": 7, "where": f"container {each['attempt']}"} for each in LEDGER]
    mixed = [both[0], both[6], *both[1:6], *both[7:]]
    first, second = runs_of(mixed)
    assert (len(first.records), len(second.records)) == (6, 4)


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (b"step 1\n", "step 1\n"),
        ("größer\n".encode(), "größer\n"),
        (b"noise \xff\xfe\x00\x1b\n", "noise \ufffd\ufffd\x00\x1b\n"),
        # Two bytes of three: Go reads each of them as a character of its own.
        (b"\xe2\x82a", "\ufffd\ufffda"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
    ],
)
def test_an_engine_keeps_bytes_that_are_no_text_as_go_reads_them(line: bytes, kept: str) -> None:
    assert DockerJobs.as_logged(object.__new__(DockerJobs), line) == kept.encode()


def test_hosts_have_the_faults_of_controllers_and_jobs_too() -> None:
    assert set(KINDS) - set(HOST_KINDS) == {"wrapper killed"}
    assert set(HOST_KINDS) - set(KINDS) == {*HOST_FAULTS, "container killed", "container removed"}
