"""Tests decide about faults that no knob causes: the same again after a wait, on another host, or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.gpu import Gpu, Member
from rung.jobs.model.knobs import RungName
from rung.recovery.decide.checkpoint_choice import MIRROR, Unseen
from rung.recovery.decide.decide import Relaunch, Stop, Wait, decide
from tests.support.jobs_in_trouble import a_checkpoint, a_fault, a_job, an_attempt, carried_out

F = FaultKind
A100 = Gpu("NVIDIA A100", (8, 0))


def test_a_checkpoint_that_cannot_be_loaded_does_not_count_against_the_rung():
    job = a_job()
    found = [a_checkpoint(60), a_checkpoint(80)]
    one = an_attempt(1, job.knobs, a_fault(F.NAN_LOSS))
    clip = decide(job, [one], found, None)
    assert isinstance(clip, Relaunch) and clip.checkpoint == found[1]
    torn = replace(
        a_fault(F.UNKNOWN_EXIT, None), evidence="RuntimeError: PytorchStreamReader failed reading zip archive"
    )
    two = carried_out(2, clip, torn)
    again = decide(job, [one, two], found, None)
    assert isinstance(again, Relaunch) and again.rung is None and again.knobs == clip.knobs
    assert again.checkpoint == found[0]
    three = carried_out(3, again, a_fault(F.NAN_LOSS))
    lower = decide(job, [one, two, three], found, None)
    assert isinstance(lower, Relaunch) and lower.undone[0][0] == "raise_clip" and lower.rung is RungName.LOWER_LR


def test_an_infra_fault_keeps_the_knobs_and_doubles_the_delay():
    job = a_job(recovery={"infra_retries": 3})
    attempts, delays = [an_attempt(1, job.knobs, a_fault(F.INFRA_FAULT))], []
    while isinstance(decision := decide(job, attempts, [], None), Relaunch):
        assert decision.rung is None and decision.knobs == job.knobs
        delays.append(decision.delay)
        attempts.append(carried_out(len(attempts) + 1, decision, a_fault(F.CUDA_FAULT)))
    assert delays == [5.0, 10.0, 20.0]


def test_an_infra_fault_does_not_decide_about_a_rung():
    job = a_job()
    one = an_attempt(1, job.knobs, a_fault(F.NAN_LOSS))
    two = carried_out(2, decide(job, [one], [], None), a_fault(F.INFRA_FAULT, 50))
    again = decide(job, [one, two], [], None)
    assert isinstance(again, Relaunch) and again.knobs.clip == 1.0
    three = carried_out(3, again, a_fault(F.NAN_LOSS, 100))
    decision = decide(job, [one, two, three], [], None)
    assert isinstance(decision, Relaunch) and decision.undone[0][0] == "raise_clip" and decision.knobs.clip == 5.0


def test_an_unknown_exit_is_tried_once_more():
    job = a_job()
    attempts = [an_attempt(1, job.knobs, a_fault(F.UNKNOWN_EXIT, None))]
    again = decide(job, attempts, [], None)
    assert isinstance(again, Relaunch) and again.rung is None and again.knobs == job.knobs
    attempts.append(carried_out(2, again, a_fault(F.UNKNOWN_EXIT, None)))
    assert isinstance(decide(job, attempts, [], None), Stop)
    assert attempts[-1].fault.evidence in decide(job, attempts, [], None).diagnosis


def test_an_unknown_exit_after_progress_is_tried_again_up_to_max_attempts():
    job = a_job(recovery={"max_attempts": 4})
    attempts = [an_attempt(1, job.knobs, a_fault(F.UNKNOWN_EXIT, 100))]
    for step in (5000, 9000, 20_000):
        again = decide(job, attempts, [], None)
        assert isinstance(again, Relaunch) and again.rung is None
        attempts.append(carried_out(len(attempts) + 1, again, a_fault(F.UNKNOWN_EXIT, step)))
    end = decide(job, attempts, [], None)
    assert isinstance(end, Stop) and "4 attempts" in end.diagnosis


def test_an_image_without_kernels_for_the_gpu_stops_at_once():
    job = a_job()
    decision = decide(job, [an_attempt(1, job.knobs, a_fault(F.IMAGE_ARCH))], [], A100)
    assert isinstance(decision, Stop) and "architecture" in decision.diagnosis


def on_host(number: int, host: str, kind: F = F.INFRA_FAULT, **fields: Any) -> Attempt:
    return replace(an_attempt(number, a_job().knobs, a_fault(kind)), host=host, **fields)


def test_a_job_moves_to_another_host_after_two_faults_on_one_host():
    job = a_job()
    once = decide(job, [on_host(1, "a")], [], None, ["b"])
    assert isinstance(once, Relaunch) and (once.avoid, once.delay) == ((), 5.0)
    assert "another host" not in once.because
    twice = decide(job, [on_host(1, "a"), on_host(2, "a")], [], None, ["b"])
    assert isinstance(twice, Relaunch) and twice.avoid == ("a",)
    assert twice.because.endswith("on another host than a") and twice.knobs == job.knobs


def test_the_decision_names_another_host_only_if_there_is_one():
    attempts = [on_host(1, "a"), on_host(2, "a")]
    alone = decide(a_job(), attempts, [], None, [])
    assert isinstance(alone, Relaunch) and alone.avoid == () and "another host" not in alone.because
    # The other host failed as often, so the job cannot move.
    both = [on_host(1, "b"), on_host(2, "b"), on_host(3, "a"), on_host(4, "a")]
    stuck = decide(a_job(recovery={"infra_retries": 9}), both, [], None, ["b"])
    assert isinstance(stuck, Relaunch) and stuck.avoid == ()


def test_a_job_stays_on_its_new_host_after_one_fault_there():
    decision = decide(a_job(), [on_host(1, "a"), on_host(2, "a"), on_host(3, "b")], [], None, ["a", "c"])
    assert isinstance(decision, Relaunch) and decision.avoid == ()


def test_a_job_leaves_a_lost_host_at_once_after_any_fault():
    lost = decide(a_job(), [on_host(1, "a", host_lost=True)], [], None, ["b"])
    assert isinstance(lost, Relaunch) and (lost.avoid, lost.delay) == (("a",), 0.0)
    assert "again after" not in lost.because and "on another host than a" in lost.because
    climbed = decide(a_job(), [on_host(1, "a", F.NAN_LOSS, host_lost=True)], [], None, ["b"])
    assert isinstance(climbed, Relaunch) and climbed.rung is not None and climbed.avoid == ("a",)


@pytest.mark.parametrize("leading", ["unseen", "seen"])
def test_a_job_on_several_hosts_leaves_a_lost_one_though_nobody_knows_which_it_is(leading: str) -> None:
    lost = on_host(1, "a", host_lost=True, members=(Member("b"),))
    copy = replace(a_checkpoint(80), residence=MIRROR)
    away = [Unseen("a", "no answer", given_up=True)] if leading == "unseen" else []
    moved = decide(a_job(), [lost], [*away, copy], None, ["b", "c"])
    # Other hosts are named as those that could take it, and not as those to avoid: one of its own may be among them.
    assert isinstance(moved, Relaunch) and moved.avoid == () and moved.checkpoint == copy
    assert moved.because.endswith("; on hosts that answer")
    if away:
        waits = decide(a_job(), [lost], [*away, copy], None, [])
        assert isinstance(waits, Wait) and "no other host could take the job" in waits.because
