"""Tests the monitor of runs whose losses are finite but far too large, and of healthy runs."""

import math
import random

import pytest

from rung.jobs.model.fault import FaultKind
from rung.jobs.spec.recovery_spec import EarlyWarning
from rung.recovery.detect.detector import Detector
from rung.recovery.logs.lines import Line
from rung.recovery.monitors.blow_up import CONSECUTIVE, SPENT_READINGS, BlowUpMonitor


def follow(losses, warning=EarlyWarning(), warns_after=0):  # noqa: B008
    detector = Detector(warning=warning, warns_after=warns_after)
    for number, loss in enumerate(losses, 1):
        detector.feed(Line(number, f"rung| step step={number} loss={loss!r} lr=0.1"))
    return detector


def healthy(count, level=2.0, seed=1):
    chance = random.Random(seed)
    return [level * (0.5 + 0.5 * math.exp(-n / 40)) + chance.gauss(0, 0.05) for n in range(count)]


def test_a_loss_that_rises_steeply_from_the_first_steps_is_a_divergence_with_a_drift():
    fault = follow([2.3 * 6.0**n for n in range(20)]).first_fault(ended=False)
    assert fault is not None and fault.kind is FaultKind.DIVERGENCE and fault.shape == "drift"
    # The onset is the second reading, so no later checkpoint is good.
    assert fault.began == 2 and "when the log began" in fault.note


def test_a_run_that_one_step_ruined_is_a_divergence_with_a_spike():
    fault = follow([*healthy(60), *([3e9] * 8)]).first_fault(ended=False)
    assert fault is not None and (fault.shape, fault.began) == ("spike", 61)


def test_what_came_before_warnings_begin_is_no_divergence_and_what_comes_after_is():
    ruined = [*healthy(60), *([3e9] * 8)]
    assert follow([*ruined, *healthy(60)], warns_after=68).first_fault(ended=False) is None
    fault = follow([*healthy(128), *([3e9] * 8)], warns_after=68).first_fault(ended=False)
    assert fault is not None and fault.began == 129


def test_a_ruined_run_with_a_few_normal_losses_is_a_divergence():
    up, down = 5e7, 2.0
    ruined = follow([2.3] * 10 + [up, up, up, up, down, up, up, up, down, up])
    assert ruined.first_fault(ended=False).kind is FaultKind.DIVERGENCE


def test_a_few_bad_batches_are_no_divergence():
    losses = healthy(400)
    for at in range(20, 400, 3):
        losses[at] = 1e7
    # Another monitor may stop such a run, but not this one.
    assert not follow(losses)._numbers._warnings._blow_up.active
    assert follow([*healthy(100), 1e9]).first_fault(ended=True, clean_exit=True) is None


def test_a_run_that_ends_far_above_its_first_loss_is_a_divergence():
    slow = [2.0 * 1.12**n for n in range(40)]
    fault = follow(slow).first_fault(ended=True, clean_exit=True)
    assert fault is not None and fault.kind is FaultKind.DIVERGENCE and fault.shape == "drift"
    assert follow(healthy(40)).first_fault(ended=True, clean_exit=True) is None
    assert follow([2.0 * 1.05**n for n in range(40)])._numbers._warnings._blow_up.at_end() is None


def test_a_short_log_that_ends_while_the_loss_explodes_is_a_divergence():
    fault = follow([0.8, 2.4, 6e4, 1e13]).first_fault(ended=True)
    assert fault is not None and fault.kind is FaultKind.DIVERGENCE and "1e+13" in fault.note
    assert follow([0.8, 2.4, 6e4, 1e13]).first_fault(ended=False) is None


def test_a_short_log_with_a_bad_batch_or_its_average_at_the_end_is_no_divergence():
    for losses in ([0.8, 0.7, 0.7, 1e13], [0.8, 0.7, 1e13, 5e12], [0.8, 1e13, 0.7, 1e14], [0.8, 2.0, 70.0, 79.0]):
        assert follow(losses).first_fault(ended=True) is None, losses


@pytest.mark.parametrize(
    "losses",
    [[11.6, 8.9, 9104.2, 16210.6], [0.16, 24.0, 65.2, 60.4, 54.1], [2.3, 2.1, 1.9, 1.8, 300.0, 310.0]],
)
def test_a_few_losses_that_end_a_hundred_times_higher_are_a_divergence_at_the_end_only(losses):
    detector = follow(losses)
    assert detector.first_fault(ended=False) is None
    fault = detector.first_fault(ended=True)
    assert fault is not None and fault.kind is FaultKind.DIVERGENCE and f"loss about {losses[-1]:.4g}" in fault.note


@pytest.mark.parametrize(
    "losses",
    [
        [2.3, 2.1, 400.0],  # one bad batch
        [2.3, 2.1, 400.0, 2.2],
        [2.3, 2.1, 400.0, 380.0],  # and its average
        [2.3, 2.1, 800.0, 620.0, 500.0, 400.0, 330.0],
        [2.3, 2.1, 40.0, 60.0],  # harder data
        [0.5, -0.1, 300.0, 400.0],  # a critic
        [0.0001, 0.02, 0.5, 9.0],  # a first loss near zero
        [300.0, 2.1, 2.0, 400.0, 500.0],
    ],
)
def test_a_few_losses_that_come_back_or_may_grow_are_no_divergence(losses):
    assert follow(losses).first_fault(ended=True) is None


def test_a_few_losses_with_a_negative_part_may_grow():
    detector = Detector()
    for number, loss in enumerate([12.3, 9.1, 1530.0, 2530.0], 1):
        detector.feed(Line(number, f"step {number} loss {loss} policy_loss -0.02 value_loss {loss}"))
    assert detector.first_fault(ended=True) is None


def test_a_first_loss_near_zero_is_not_used_for_comparison():
    chance = random.Random(3)
    policy = [1e-6, *(chance.gauss(0, 0.4) for _ in range(300))]
    assert follow(policy).first_fault(ended=True, clean_exit=True) is None
    assert follow([0.0, *(abs(each) + 1.0 for each in policy)]).first_fault(ended=True, clean_exit=True) is None


def test_a_policy_loss_that_swings_around_zero_and_grows_is_no_divergence():
    chance = random.Random(4)
    policy = [chance.gauss(0, 0.05) for _ in range(100)] + [chance.gauss(3.0, 1.0) for _ in range(100)]
    assert follow(policy).first_fault(ended=True, clean_exit=True) is None


def test_a_loss_that_falls_again_is_no_divergence():
    up_and_down = [2.0 * 8.0**n for n in range(12)] + [2.0] * 60
    assert follow(up_and_down).first_fault(ended=True, clean_exit=True) is None


def test_without_the_early_warning_finite_losses_are_no_fault():
    assert follow([2.3 * 6.0**n for n in range(20)], warning=None).first_fault(ended=True) is None


def test_a_run_that_rises_at_first_and_stays_at_the_untrained_level_is_a_divergence():
    rise = [1.4, 27.0, 37.0, 27.0, 17.0, 4.4, 2.0]
    noise = [1.39 + 0.05 * math.sin(n) for n in range(120)]
    fault = follow(rise + noise).first_fault(ended=False)
    assert fault is not None and fault.kind is FaultKind.DIVERGENCE and fault.shape == "drift" and fault.began == 2
    assert follow(rise + noise[:60]).first_fault(ended=False) is None
    assert follow(rise + [each * 0.8 for each in noise]).first_fault(ended=False) is None
    assert follow([1.4, 27.0, *noise]).first_fault(ended=False) is None


def test_a_loss_that_is_ruined_after_a_long_good_run_is_seen_while_it_is():
    monitor = BlowUpMonitor()
    assert all(monitor.see(step, "loss", 2.0) is None for step in range(SPENT_READINGS + 20))
    assert not monitor.active
    found = [monitor.see(200 + step, "loss", 1e9) for step in range(10)]
    assert [blow_up is not None for blow_up in found] == [step == CONSECUTIVE - 1 for step in range(10)]
    assert monitor.active
    assert [monitor.see(300 + step, "loss", 2.0) for step in range(10)] == [None] * 10
    assert not monitor.active
