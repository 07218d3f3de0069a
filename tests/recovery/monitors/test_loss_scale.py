"""Tests the monitor of the loss scale: one back-off is normal, a collapse or a scale that goes up and down is not."""

from itertools import pairwise

from rung.jobs.model.fault import FaultKind
from rung.recovery.monitors.loss_scale import Backoff, LossScaleMonitor, read_backoff
from tests.recovery.detect.watched_log import at_end


def reports(scales, skipped=None, start=0):
    watch = LossScaleMonitor()
    found = [(start + i, kind) for i, s in enumerate(scales) if (kind := watch.report(start + i, s, skipped))]
    return found, watch


def halving(start, count):
    return [start / 2**n for n in range(count)]


def test_a_scale_falling_from_2_to_the_32_in_the_first_steps_is_no_fault():
    found, watch = reports([*halving(2.0**32, 18), *[2.0**14] * 300])
    assert found == [] and not watch.is_low


def test_a_single_back_off_and_its_recovery_are_no_fault():
    found, _ = reports([65536.0] * 500 + [32768.0] * 500 + [65536.0] * 500)
    assert found == []


def test_twenty_reports_below_one_are_one_collapse():
    found, watch = reports([*halving(16.0, 5), *halving(0.5, 60)])
    assert found == [(24, FaultKind.SCALE_COLLAPSE)]
    assert watch.low_since == 5


def test_nineteen_reports_below_one_are_no_collapse():
    found, _ = reports([0.5] * 19 + [1.0] + [0.5] * 19)
    assert found == []


def test_a_scale_of_minus_one_means_that_there_is_no_scaler():
    found, watch = reports([-1.0] * 300, skipped=False)
    assert found == [] and not watch.is_low and not watch.is_known


def test_a_scale_of_zero_is_a_collapse_at_once():
    assert reports([65536.0, 0.0])[0] == [(1, FaultKind.SCALE_COLLAPSE)]


def test_half_of_all_steps_skipped_with_the_scale_going_up_and_down_is_thrash():
    found, _ = reports([65536.0, 32768.0] * 80)
    assert found == [(99, FaultKind.SCALE_THRASH)]


def test_skips_without_a_scale_going_up_are_no_thrash():
    watch = LossScaleMonitor()
    assert not any(watch.report(step, 1024.0, step % 10 == 0) for step in range(400))


def test_five_per_cent_of_skipped_steps_are_no_thrash_and_more_are():
    def saw(period):
        return [32768.0 if step % period == 0 else 65536.0 for step in range(400)]

    assert reports(saw(25))[0] == []
    assert [kind for _, kind in reports(saw(15))[0]] == [FaultKind.SCALE_THRASH]


def test_skips_before_the_window_do_not_count():
    scales = [65536.0, 32768.0] * 20 + [65536.0] * 400
    assert reports(scales)[0] == []


def test_back_offs_in_words_are_read():
    def back_off(text):
        return read_backoff(text, text.lower())

    assert back_off("OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 2, reducing to 1") == Backoff(2, 1)
    assert back_off("Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 0.5") == Backoff(None, 0.5)
    assert back_off("NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 64.0").to == 64
    assert back_off("Loss scale reduced from 8.0 to 4.0 due to overflow") == Backoff(8, 4)
    assert back_off("loss scale: 4096.0 | number of skipped iterations: 0") is None


def test_the_same_back_off_from_every_rank_is_one_event():
    watch = LossScaleMonitor()
    assert not any(watch.back_off(10, Backoff(None, 0.5)) for _ in range(384))
    assert not watch.is_low


def test_a_back_off_that_cannot_go_lower_is_a_collapse():
    watch = LossScaleMonitor()
    assert [watch.back_off(step, Backoff(1, 1)) for step in range(3)] == [None, None, FaultKind.SCALE_COLLAPSE]
    high = LossScaleMonitor()
    assert not any(high.back_off(step, Backoff(262144, 262144)) for step in range(10))


def test_a_log_that_ends_below_one_ends_low():
    watch = LossScaleMonitor()
    for scale in (2, 1, 0.5):
        watch.back_off(None, Backoff(None, scale))
    assert not watch.is_low
    watch.back_off(None, Backoff(None, 0.25))
    assert watch.is_low


def test_a_single_back_off_far_below_one_ends_low():
    watch = LossScaleMonitor()
    watch.back_off(None, Backoff(None, 2.0**-6))
    assert not watch.is_low
    deep = LossScaleMonitor()
    deep.back_off(None, Backoff(None, 2.0**-7))
    assert deep.is_low


def test_two_back_offs_at_the_floor_end_low_and_one_does_not():
    watch = LossScaleMonitor()
    watch.back_off(1, Backoff(1, 1))
    assert not watch.is_low
    watch.back_off(2, Backoff(1, 1))
    assert watch.is_low


def test_a_scale_at_its_floor_with_skipped_steps_is_a_collapse():
    assert [kind for _, kind in reports([4.0, 2.0, 1.0, 1.0, 1.0, 1.0], skipped=True)[0]] == [FaultKind.SCALE_COLLAPSE]
    assert reports([4.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0], skipped=False)[0] == []
    # A scale that is always 1 belongs to bfloat16, which uses no loss scale.
    assert reports([1.0] * 9, skipped=True)[0] == []


def test_a_log_that_ends_after_a_straight_fall_below_one_ends_low():
    assert reports(halving(32768.0, 17))[1].is_low
    assert not reports([*halving(8.0, 4), 2.0, 1.0, 0.5])[1].is_low


def falling(*scales):
    watch = LossScaleMonitor()
    for attempted, to in pairwise(scales):
        watch.back_off(None, Backoff(attempted, to))
    return watch


def test_a_log_whose_last_word_is_a_straight_fall_to_two_ends_low():
    watch = falling(64, 32, 16, 8, 4, 2)
    assert watch.is_low
    # The run goes on, so the scaler has found its scale.
    watch.see_finite_loss()
    assert not watch.is_low


def test_a_short_fall_and_a_fall_to_a_normal_scale_do_not_end_low():
    assert not falling(32, 16, 8, 4, 2).is_low
    assert not falling(65536, 32768, 16384, 8192, 4096, 2048, 1024).is_low
    assert not falling(64, 32, 16, 32, 16, 8, 4, 2).is_low


def test_a_short_log_of_a_scale_that_goes_up_and_down_thrashes_at_its_end():
    swings = [8.0, 4.0, 8.0, 16.0, 8.0] * 6
    found, watch = reports(swings)
    assert found == [] and watch.thrashes_at_end
    # Too short, too few turns, or too few skipped steps: a scaler that grows every two thousand steps.
    assert not reports(swings[:20])[1].thrashes_at_end
    assert not reports([8.0, 4.0, 8.0, 4.0, 8.0] + [4.0] * 20)[1].thrashes_at_end
    assert not reports(([8.0] * 20 + [4.0] * 20) * 4)[1].thrashes_at_end


def test_a_scale_that_grows_is_no_back_off():
    text = "no gradient overflow for 2000 steps, scale: 2048 -> 4096"
    assert read_backoff(text, text) is None
    fell = "gradient overflow, scale: 4096 -> 2048"
    assert read_backoff(fell, fell) == Backoff(4096, 2048)


def test_words_about_a_scale_that_grew_begin_the_next_fall():
    texts = [
        f"step {n} loss 2.{n:02}\nstep {n}: loss scale increased to 16\nstep {n} loss 2.1\n" for n in range(0, 40, 4)
    ]
    skip = "gradient overflow, skipping step, loss scale 16 -> 8\n"
    assert at_end("".join(text + skip for text in texts)) is FaultKind.SCALE_THRASH
    # Without them, all ranks may print one and the same back-off.
    assert at_end("".join(f"step {n} loss 2.{n:02}\n{skip}" for n in range(40, 44))) is None
