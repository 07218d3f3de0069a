"""Tests the early warning: what is a divergence, and what is not."""

from __future__ import annotations

import math
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.jobs.spec.recovery_spec import EarlyWarning
from rung.recovery.detect.detector import Detector
from rung.recovery.logs.lines import Line
from rung.recovery.logs.reading import Reading
from rung.recovery.monitors.cusum import SINCE
from rung.recovery.monitors.divergence import MAX_NAMES, DivergenceMonitor
from rung.recovery.monitors.skipped_steps import SkippedStepMonitor

LIMITS = EarlyWarning()


def noise(count, level=2.0, spread=0.1, seed=0):
    source = random.Random(seed)
    return [level + source.gauss(0, spread) for _ in range(count)]


def learned(count=300, start=8.0, level=2.0, spread=0.1, seed=0):
    """Return a loss that falls from `start` and stays at `level`, with noise."""
    return [
        value + (start - level) * math.exp(-index / 25) for index, value in enumerate(noise(count, level, spread, seed))
    ]


def warnings(losses, norms=None, *, limits=LIMITS, first=0, every=1, name="loss"):
    watch, found = DivergenceMonitor(limits), []
    for index, loss in enumerate(losses):
        step = first + every * index
        norm = norms[index] if norms else None
        warned = watch.see(step, Reading(step, loss, grad_norm=norm, loss_name=name))
        found += [(step, warned)] if warned else []
    return found


def near(step, wanted, every=1):
    """Return whether an onset is right: not later, because a checkpoint must be older, and only a little earlier."""
    return wanted - 6 * every <= step <= wanted


# What is a divergence.


def test_a_loss_that_jumps_and_stays_gives_one_warning_with_its_onset():
    ((step, warned),) = warnings([*learned(300), *noise(200, 6.0)])
    # Below the untrained level it may still fall again, as with harder data.
    assert 300 + LIMITS.patience - 1 <= step <= 300 + SINCE + 8
    assert near(warned.onset, 300) and warned.shape == "spike"
    assert re.fullmatch(r"loss about (5\.9|6)\S* since step \d+, about (1\.9|2)\S* before", warned.description)


def test_a_loss_that_climbs_little_by_little_is_a_drift():
    climb = [value + 0.01 * index for index, value in enumerate(noise(600, seed=1))]
    ((step, warned),) = warnings([*learned(300), *climb])
    assert warned.shape == "drift"
    assert 300 <= warned.onset < step < 300 + 250


def test_a_jump_while_the_learning_rate_is_raised_is_a_drift():
    watch, found = DivergenceMonitor(LIMITS), []
    for step, loss in enumerate([*learned(300), *noise(100, 6.0)]):
        lr = 0.1 + max(0, step - 250) * 0.01
        found += [watch.see(step, Reading(step, loss, lr=lr))]
    assert [warned.shape for warned in found if warned] == ["drift"]


def test_exponential_growth_gives_a_warning_long_before_the_overflow():
    growth = [2.0 * 1.02**index for index in range(600)]
    ((step, _),) = warnings([*learned(300), *growth])
    assert step < 300 + 100


def test_the_monitor_works_with_a_negative_loss():
    ((_, warned),) = warnings([*learned(300, 3.0, -5.0), *noise(100, -1.0, seed=2)])
    assert near(warned.onset, 300)


def test_growing_gradients_give_an_earlier_warning_if_the_loss_rises_too():
    losses = [*learned(300), *[2.0 + 0.004 * index + noise(1, 0, 0.1, index)[0] for index in range(400)]]
    norms = [math.exp(value) for value in [*noise(300, 0.0, 0.2), *[0.02 * index for index in range(400)]]]
    ((alone, _),) = warnings(losses)
    ((both, warned),) = warnings(losses, norms)
    assert both < alone
    assert re.fullmatch(
        r"loss above its level since step \d+, and gradient norm about \S+, about \S+ before", warned.description
    )


def test_a_jump_above_the_untrained_level_gives_a_warning_at_once():
    ((step, warned),) = warnings([*learned(300), *noise(200, 12.0)])
    assert step <= 300 + LIMITS.patience + 8 and warned.shape == "spike"


def test_a_jump_that_falls_again_to_the_untrained_level_and_stays_is_a_divergence():
    explosion = [value + 40 * math.exp(-index / 20) for index, value in enumerate(noise(400, 8.0))]
    assert len(warnings([*learned(300), *explosion])) == 1


# What is no divergence.


@pytest.mark.parametrize("fall", [30, 100, 200])
@pytest.mark.parametrize("floor", [2.0, 3.0, 4.0])
def test_a_jump_that_falls_again_is_no_divergence(fall, floor):
    """A curriculum: the loss jumps when the harder data begins, and the run learns those as well."""
    harder = [value + (6.0 - floor) * math.exp(-index / fall) for index, value in enumerate(noise(800, floor))]
    course = [*learned(300), *harder]
    assert warnings(course) == []
    # What is learned then is the new level.
    assert len(warnings([*course, *noise(200, 20.0, seed=3)])) == 1


@pytest.mark.parametrize("seed", range(5))
def test_a_policy_loss_around_zero_is_no_divergence_by_its_height_alone(seed):
    source = random.Random(seed)
    losses = [source.gauss(0, 0.05) for _ in range(300)]
    losses += [source.gauss(min(0.4, 0.001 * index), 0.2) for index in range(900)]
    assert warnings(losses) == []
    grown = [math.exp(source.gauss(0, 0.2) + max(0.0, 0.02 * (index - 600))) for index in range(1200)]
    assert len(warnings(losses, grown)) == 1


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_no_divergence(seed):
    assert warnings(learned(2000, seed=seed)) == []


@pytest.mark.parametrize("seed", range(20))
def test_noise_without_a_variance_is_no_divergence(seed):
    source = random.Random(seed)
    heavy = [2.0 + 0.1 * source.gauss(0, 1) / math.sqrt(source.gammavariate(0.75, 1) / 0.75) for _ in range(2000)]
    norms = [math.exp(source.gauss(0, 1.5)) for _ in range(2000)]
    assert warnings(heavy, norms) == []


@pytest.mark.parametrize("length", [1, 3, 8, 14])
def test_a_spike_that_ends_within_the_patience_is_no_divergence(length):
    losses = learned(300)
    for _ in range(5):
        losses += [*noise(length, 50.0), *noise(100)]
    assert warnings(losses) == []


@pytest.mark.parametrize("decay", [3.0, 8.0, 20.0])
def test_a_spike_that_decays_slowly_is_no_divergence(decay):
    spike = [value + 6.0 * math.exp(-index / decay) for index, value in enumerate(noise(300, seed=3))]
    assert warnings([*learned(300), *spike]) == []


def test_no_warning_comes_in_the_warm_up():
    assert warnings([*learned(80, seed=4), *[40.0] * 10]) == []


def test_a_loss_that_falls_steeply_with_noise_is_no_divergence():
    falling = [10.0 * 0.97**index + 0.3 * noise(1, 0, 1, index)[0] for index in range(300)]
    assert warnings(falling) == []


def test_losing_less_than_a_quarter_of_the_progress_is_no_divergence():
    # As after a restart of a cosine schedule, or with harder data.
    assert warnings([*learned(300), *noise(1500, 3.2, seed=5)]) == []
    assert len(warnings([*learned(300), *noise(1500, 4.2, seed=5)])) == 1


def test_a_restart_in_the_same_log_is_no_divergence():
    watch = DivergenceMonitor(LIMITS)
    for step, loss in [*enumerate(learned(400)), *enumerate(learned(400, seed=6), 1), *enumerate(learned(400, seed=7))]:
        assert watch.see(step, Reading(step, loss)) is None


def test_losses_of_different_names_are_followed_separately():
    watch = DivergenceMonitor(LIMITS)
    for step, loss in enumerate(learned(600)):
        assert watch.see(step, Reading(step, loss, loss_name="loss")) is None
        if step % 20 == 0:
            assert watch.see(step, Reading(step, 40.0 + loss, loss_name="epoch_loss")) is None


def test_repeated_lines_of_one_step_count_once():
    watch = DivergenceMonitor(LIMITS)
    for step, loss in enumerate([*learned(300), *noise(10, 6.0), *noise(100)]):
        for _ in range(8):
            assert watch.see(step, Reading(step, loss)) is None


def test_growing_gradients_of_a_run_that_learns_are_no_divergence():
    norms = [math.exp(0.01 * index) for index in range(800)]
    assert warnings([3.0 - 0.002 * index + noise(1, 0, 0.05, index)[0] for index in range(800)], norms) == []


def test_a_log_of_every_fiftieth_step_is_judged_by_its_own_lines():
    assert warnings(learned(500), every=50) == []
    ((step, warned),) = warnings([*learned(300), *noise(100, 6.0)], every=50)
    assert near(warned.onset, 300 * 50, 50) and step > 300 * 50


def test_a_resumed_run_without_an_untrained_level_is_monitored_too():
    assert warnings(noise(1000), first=5000) == []
    ((_, warned),) = warnings([*noise(300), *noise(100, 4.0)], first=5000)
    assert near(warned.onset, 5300)


# The end of a divergence, and a second one.


def test_a_divergence_can_end_and_happen_again():
    watch, found = DivergenceMonitor(LIMITS), []
    course = [*learned(300), *noise(60, 6.0), *noise(200), *noise(60, 6.0)]
    for step, loss in enumerate(course):
        if watch.see(step, Reading(step, loss)):
            found.append(step)
        if step == 430:
            assert not watch.active
    assert len(found) == 2 and watch.active


# Skipped steps.


def skips(reports, limits=LIMITS):
    watch = DivergenceMonitor(limits)
    for step, (scale, skipped) in enumerate(reports):
        warned = watch.see(step, Reading(step, 2.0, scale=scale, skipped=skipped))
        if warned:
            return step, warned
    return None


def test_a_scale_that_falls_several_times_and_never_grows_is_a_divergence():
    scales = [65536.0 / 2 ** max(0, (step - 200) // 10) for step in range(400)]
    found = skips([(scale, None) for scale in scales])
    assert found is not None and found[0] == 250 and found[1].onset == 210
    assert found[1].description == "the loss scale fell 5 times in 128 reports and never grew"


def outliers(every, *, clip="off", loss=2.0, norm=1.0, count=600):
    """Return the warning of a run whose scaler skips one update in `every`, and whose scale does not grow again."""
    watch, scale, found = DivergenceMonitor(LIMITS), 65536.0, None
    watch.see(None, Reading(effective={"clip": None if clip == "off" else clip}, is_record=True))
    for step in range(count):
        skipped = step > 100 and step % every == 0
        scale = scale / 2 if skipped else scale
        height = loss(step) if callable(loss) else loss
        row = Reading(step, height, grad_norm=math.inf if skipped else norm, scale=scale, skipped=skipped)
        found = found or watch.see(step, row._replace(is_record=True))
    return found


def slow_rise(step):
    return 2.0 + max(0.0, 0.0008 * (step - 120))


def test_single_skipped_updates_of_a_run_that_goes_on_are_a_spike():
    found = outliers(20)
    assert (found.shape, found.description) == ("spike", "the loss scale fell 5 times in 128 updates and never grew")
    rising = outliers(20, loss=slow_rise)
    assert rising.shape == "drift" and "loss scale" in rising.description


def test_single_skipped_updates_of_a_clipped_run_that_goes_on_are_no_fault():
    assert outliers(20, clip=1.0) is None
    assert outliers(20, clip=1.0, loss=slow_rise) is not None


def test_back_offs_are_counted_in_updates_where_most_updates_are_not_reported():
    watch, scale = SkippedStepMonitor(LIMITS), 2.0**40
    for step in range(0, 20_000, 50):
        skipped = step % 500 == 0
        scale = scale / 2 if skipped else scale
        watch.add(step, scale, skipped, reports_all_skips=True)
        assert watch.description == ""


def test_a_scale_that_falls_only_in_the_first_steps_is_no_divergence():
    assert skips([(2.0**32 / 2 ** min(step, 17), step < 17) for step in range(600)]) is None


def test_a_back_off_after_every_growth_is_no_divergence():
    reports = [(65536.0 * (1 + step // 50 % 2), step % 100 == 99) for step in range(2000)]
    assert skips(reports) is None


def test_a_scale_that_falls_on_every_step_is_left_to_the_collapse_monitor():
    assert skips([(65536.0 / 2 ** max(0, step - 300), step >= 300) for step in range(330)]) is None


def test_many_skipped_steps_without_a_reported_scale_are_a_divergence():
    assert skips([(None, step >= 200) for step in range(300)])[0] == 209
    assert skips([(None, step % 5 == 0) for step in range(300)])[1].description == "20% of the last 101 steps skipped"
    assert skips([(None, step % 10 == 0) for step in range(1000)]) is None


# In the spec, and in the detector.


def test_every_threshold_can_be_set():
    course = [*learned(300), *noise(200, 6.0)]
    assert warnings(course, limits=EarlyWarning(patience=40))[0][0] >= 339
    assert warnings(course, limits=EarlyWarning(sigmas=100)) == []
    assert warnings(course, limits=EarlyWarning(rise=1.5)) == []
    assert warnings(course, limits=EarlyWarning(warm_up=400)) == []
    falls = [(65536.0 / 2 ** max(0, (step - 200) // 10), None) for step in range(400)]
    assert skips(falls, EarlyWarning(backoffs=9))[0] == 290
    often = [(None, step % 5 == 0) for step in range(300)]
    assert skips(often, EarlyWarning(skipped_share=0.3)) is None
    assert skips([(None, step >= 200) for step in range(300)], EarlyWarning(skipped_in_a_row=3))[0] == 202


def listed(losses, **options):
    detector = Detector(**options)
    found = [f for n, loss in enumerate(losses, 1) for f in detector.feed(Line(n, f"step {n} loss {loss:.5f}"))]
    return detector, found


def test_the_detector_acts_on_a_divergence_with_evidence_and_a_note():
    detector, (fault,) = listed([*learned(300), *noise(100, 6.0)])
    assert fault.kind == "divergence" and near(fault.began, 301) and fault.shape == "spike"
    assert fault.evidence.startswith(f"step {fault.step} loss") and "since step" in fault.note
    assert detector.first_fault(ended=False) == fault


def test_a_divergence_that_ended_is_not_acted_on():
    detector, found = listed([*learned(300), *noise(60, 6.0), *noise(200)])
    assert [fault.kind for fault in found] == ["divergence"]
    assert detector.first_fault(ended=False) is None and detector.first_fault(ended=True) is None


def test_a_divergence_is_the_first_cause_of_the_nan_that_follows():
    detector, found = listed([*learned(300), *noise(60, 6.0), math.nan, math.nan, math.nan])
    assert [fault.kind for fault in found] == ["divergence", "nan_loss"]
    assert detector.first_fault(ended=True).kind == "divergence"


def test_a_warning_without_stop_explains_only_the_end():
    course = [*learned(300), *noise(100, 6.0)]
    detector, _ = listed(course, warning=EarlyWarning(stop=False))
    assert detector.first_fault(ended=False) is None and detector.first_fault(ended=True).kind == "divergence"
    assert listed(course, warning=None)[1] == []


# Bounds.


def test_the_number_of_followed_names_is_bounded():
    watch = DivergenceMonitor(LIMITS)
    for step in range(5000):
        watch.see(step, Reading(step, float(step % 7), loss_name=f"loss_{step}"))
    assert len(watch._losses) == MAX_NAMES


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(0, 10**15)),
            st.one_of(st.none(), st.floats(), st.sampled_from([0.0, 1e308, -1e308])),
            st.one_of(st.none(), st.floats()),
            st.one_of(st.none(), st.floats()),
            st.one_of(st.none(), st.booleans()),
        ),
        max_size=200,
    )
)
def test_no_number_raises_an_exception(rows):
    watch = DivergenceMonitor(EarlyWarning(warm_up=16, patience=2))
    for step, loss, norm, scale, skipped in rows:
        watch.see(step, Reading(step, loss, grad_norm=norm, scale=scale, skipped=skipped))


def test_steps_without_a_record_do_not_count_as_skipped():
    # A fast run reports every skipped step but few of the others; here one step in 200 is skipped.
    watch = SkippedStepMonitor(LIMITS)
    for step in range(40, 40_000, 40):
        watch.add(step, 1024.0, False, reports_all_skips=True)
        if step % 200 == 0:
            watch.add(step + 1, 1024.0, True, reports_all_skips=True)
        assert not watch.description
    for step in range(40_000, 40_121):
        watch.add(step, 1024.0, step % 3 == 0, reports_all_skips=True)
    assert "skipped" in watch.description
