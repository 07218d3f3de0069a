"""Tests the verdict on a precision: PASS, MARGINAL, FAIL, or undecided."""

import math
from dataclasses import replace

import pytest

from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.spec.job_spec import JobSpec, Success
from rung.recovery.logs.lines import Line
from rung.recovery.logs.progress import Progress
from rung.recovery.series.point import Point
from rung.recovery.validation.run_figures import FigureReader, Figures
from rung.recovery.validation.verdict import Rule, Run, Verdict, judge, rule_of

RULE = Rule("hmean", "higher")


def run(value=0.8863, precision="amp_fp16", **more):
    values = {} if value is None else {"hmean": value}
    effective = more.pop("effective", {})
    figures = replace(more.pop("figures", Figures()), progress=Progress(values=values, effective=effective))
    return Run(f"ocr-{precision}-1", precision, more.pop("finished", True), "finished", figures=figures, **more)


def base(value=0.8863, **more):
    return run(value, "fp32", **more)


NAN = Fault(FaultKind.NAN_LOSS, "train/loss=NaN", step=40)


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (0.8863, "PASS"),
        (0.8850, "PASS"),  # 0.15 % apart, as in the field report
        (0.8863 * 0.9901, "PASS"),
        (0.8863 * 0.9899, "MARGINAL"),
        (0.8863 * 0.9801, "MARGINAL"),
        (0.8863 * 0.9799, "FAIL"),
        (0.7816, "FAIL"),  # 11.8 %, the degraded run of the report
        (0.8863 * 1.015, "MARGINAL"),
        # A difference for the better is never a FAIL.
        (0.8863 * 1.5, "MARGINAL"),
    ],
)
def test_the_difference_of_the_metric_decides_the_verdict(value, verdict):
    found = judge(base(), run(value), RULE)
    assert found.verdict == verdict
    assert found.difference == pytest.approx((value / 0.8863 - 1) * 100)
    assert "hmean" in found.because and "in amp_fp16" in found.because


def test_a_difference_in_either_direction_counts_if_the_better_direction_is_unknown():
    assert judge(base(), run(0.8863 * 1.5), Rule("hmean")).verdict is Verdict.FAIL
    assert judge(base(), run(0.8863 * 1.5), Rule("hmean", "lower")).verdict is Verdict.FAIL
    assert judge(base(), run(0.8863 * 0.5), Rule("hmean", "lower")).verdict is Verdict.MARGINAL


def test_the_bounds_come_from_the_rule_of_the_job():
    rule = Rule("hmean", "higher", pass_below=0.1, marginal_below=0.2)
    assert [judge(base(1.0), run(value), rule).verdict for value in (0.9995, 0.9985, 0.9975)] == [
        "PASS",
        "MARGINAL",
        "FAIL",
    ]


def test_missing_the_success_bound_of_the_job_is_a_fail_with_any_difference():
    rule = replace(RULE, success=Success(metric="hmean", above=0.886))
    assert judge(base(), run(0.8859), rule).verdict is Verdict.FAIL
    # A bound that FP32 does not reach either is ignored.
    assert judge(base(0.8855), run(0.8850), rule).verdict is Verdict.PASS
    below = Rule("hmean", "lower", success=Success(metric="hmean", below=0.887))
    assert judge(base(), run(0.8871), below).verdict is Verdict.FAIL


def test_a_fault_of_the_run_is_a_fail_and_one_of_the_machine_is_undecided():
    failed = run(None, finished=False, fault=NAN)
    found = judge(base(), failed, RULE)
    assert found.verdict is Verdict.FAIL and "nan_loss at step 40" in found.because
    lost = run(None, finished=False, fault=Fault(FaultKind.INFRA_FAULT, "killed"))
    assert judge(base(), lost, RULE).verdict is Verdict.UNDECIDED
    assert judge(base(), run(None, finished=False), RULE).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("baseline", "said"),
    [
        (base(None, finished=False, fault=NAN), "FP16 is not the cause"),
        (base(None, finished=False, fault=Fault(FaultKind.INFRA_FAULT, "killed")), "did not come to its end"),
        (base(None), "never reported hmean"),
        (base(math.nan), "is nan"),
        (base(effective={"precision": "amp_fp16"}), "does not reach the script"),
        (base(began=500), "went on from step 500"),
    ],
)
def test_the_verdict_is_undecided_without_a_valid_baseline(baseline, said):
    found = judge(baseline, run(), RULE)
    assert found.verdict is Verdict.UNDECIDED and said in found.because


def test_a_metric_that_only_fp32_has_is_a_fail():
    assert judge(base(), run(None), RULE).verdict is Verdict.FAIL
    assert judge(base(), run(math.nan), RULE).verdict is Verdict.FAIL


def test_a_comparison_of_fp32_with_itself_is_undecided():
    assert judge(base(), run(effective={"precision": "fp32"}), RULE).verdict is Verdict.UNDECIDED
    course = tuple(Point(step, 1 / (step + 1)) for step in range(30))
    same = [each(figures=Figures(points=course)) for each in (base, run)]
    assert "exactly the same losses" in judge(*same, RULE).because
    other = run(figures=Figures(points=(*course[:-1], Point(29, 0.5))))
    assert judge(same[0], other, RULE).verdict is Verdict.PASS
    # Too few losses to compare: a script that prints one per epoch.
    few = [each(figures=Figures(points=course[:5])) for each in (base, run)]
    assert judge(*few, RULE).verdict is Verdict.PASS


def test_a_difference_from_a_metric_of_zero_is_undecided():
    assert judge(base(0.0), run(0.0), RULE).verdict is Verdict.PASS
    assert judge(base(0.0), run(0.001), RULE).verdict is Verdict.UNDECIDED


def test_losses_that_were_not_finite_make_a_pass_marginal():
    shaken = run(figures=Figures(losses=100, bad_losses=3))
    found = judge(base(), shaken, RULE)
    assert found.verdict is Verdict.MARGINAL and "3 of its 100 losses" in found.because
    assert judge(base(figures=Figures(losses=100, bad_losses=3)), shaken, RULE).verdict is Verdict.PASS


def test_the_rule_comes_from_the_job_file():
    spec = {"name": "n", "run": "true", "success": {"metric": "val_loss", "below": 2.0}}
    assert rule_of(JobSpec.model_validate({"name": "n", "run": "true"})) is None
    rule = rule_of(JobSpec.model_validate(spec))
    assert (rule.metric, rule.better, rule.pass_below, rule.marginal_below) == ("val_loss", "lower", 1.0, 2.0)
    own = {"metric": "hmean", "better": "higher", "pass_below": 3, "marginal_below": 4}
    rule = rule_of(JobSpec.model_validate({**spec, "validation": own}))
    assert (rule.metric, rule.better, rule.pass_below, rule.marginal_below) == ("hmean", "higher", 3.0, 4.0)
    # A bound on another metric is not used for this one.
    assert rule.success is None and rule_of(JobSpec.model_validate(spec), "hmean").better is None


LOG = """\
rung| step step=1 loss=2.0 grad_norm=1.0 scale=65536 skipped=0
rung| step step=2 loss=nan grad_norm=inf scale=32768 skipped=1
rung| step step=3 loss=1.0 grad_norm=3.0 scale=32768 skipped=0
rung| step step=4 loss=0.5 grad_norm=5.0 scale=32768 skipped=0
rung| metric step=4 hmean=0.88
rung| usage updates=3 seconds_per_step=0.25 rss_bytes=1000 gpu_bytes=2000 gpu="NVIDIA TITAN RTX" capability=7.5
rung| usage updates=1 seconds_per_step=9.0 rss_bytes=5
rung| usage updates=x seconds_per_step=-1 capability=99999.1 gpu="broken
"""


def test_the_figures_are_read_from_a_log():
    reader = FigureReader()
    for number, text in enumerate(LOG.splitlines(), 1):
        reader.feed(Line(number, text))
    found = reader.figures()
    assert (found.losses, found.bad_losses, found.norms, found.bad_norms, found.skipped) == (4, 1, 4, 1, 1)
    assert (found.median_norm, found.largest_norm, found.lowest_scale) == (3.0, 5.0, 32768)
    assert found.progress.values["hmean"] == 0.88 and found.progress.furthest_step == 4
    assert [point.step for point in found.points] == [1, 2, 3, 4]
    usage = found.usage
    assert (usage.updates, usage.seconds_per_step, usage.gpu_bytes, usage.rss_bytes) == (3, 0.25, 2000, 1000)
    assert (usage.gpu, usage.capability) == ("NVIDIA TITAN RTX", (7, 5))


def test_the_norms_of_a_long_run_are_thinned_and_keep_their_median():
    reader = FigureReader()
    for step in range(1, 20_001):
        reader.feed(Line(step, f"rung| step step={step} loss=1.0 grad_norm={step % 1000}"))
    found = reader.figures()
    assert found.norms == 20_000 and found.largest_norm == 999
    assert found.median_norm == pytest.approx(500, abs=5)
    assert len(reader._sampled_norms) <= 4097
