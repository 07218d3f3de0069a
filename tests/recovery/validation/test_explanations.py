"""Tests the answers after a validation: whether a run is slower, needs less memory, is worse, and the causes."""

from dataclasses import replace

import pytest

from rung.jobs.model.fault import Fault, FaultKind
from rung.recovery.logs.progress import Progress
from rung.recovery.validation.explanations import Setting, Source, memory, paces, same_device, slower, worse
from rung.recovery.validation.run_figures import Figures, Usage
from rung.recovery.validation.verdict import Judgement, Run, Verdict

AMP = Setting("amp_fp16", 64)


def run(seconds=0.1, gpu="NVIDIA A100-SXM4-40GB", capability=(8, 0), gpu_bytes=1 << 30, **figures):
    usage = Usage(100, seconds, gpu_bytes if gpu else None, 1 << 30, gpu, capability if gpu else None)
    return Run("j-1", "amp_fp16", True, "finished", figures=Figures(usage=usage, losses=100, **figures))


def causes(answer):
    return " / ".join(answer.causes)


def test_a_faster_run_has_no_causes():
    found = slower(run(0.1), run(0.05), AMP)
    assert found.answer.startswith("no, 50% faster") and not found.causes


@pytest.mark.parametrize(
    ("made", "setting", "named", "unnamed"),
    [
        ({"gpu": ""}, AMP, ["on a CPU", "autocast converts"], ["tensor cores want", "TF32", "P100"]),
        ({"gpu": "Tesla P100-PCIE-16GB", "capability": (6, 0)}, AMP, ["P100 has no tensor cores"], ["TF32", "CPU"]),
        ({}, Setting("amp_fp16", 8), ["a batch of 8 is small", "TF32"], ["no tensor cores", "CPU"]),
        (
            {"gpu": "NVIDIA TITAN RTX", "capability": (7, 5)},
            Setting("amp_fp16", 8),
            ["a batch of 8 is small"],
            ["TF32"],
        ),
        ({"seconds": 0.002}, AMP, ["launching kernels"], ["multiples of 8", "is small"]),
        ({}, AMP, ["multiples of 8"], ["is small", "launching"]),
        ({}, Setting("native_fp16", 64), ["multiples of 8"], ["autocast"]),
        ({"skipped": 20}, AMP, ["20% of its updates were skipped"], []),
    ],
)
def test_a_slower_run_has_the_causes_that_fit_it(made, setting, named, unnamed):
    candidate = run(**{"seconds": 0.2, **made})
    baseline = replace(candidate, figures=replace(candidate.figures, usage=replace(candidate.figures.usage)))
    usage = replace(baseline.figures.usage, seconds_per_step=baseline.figures.usage.seconds_per_step / 2)
    found = slower(replace(baseline, figures=replace(baseline.figures, usage=usage)), candidate, setting)
    assert found.answer.startswith("yes, 100% slower")
    assert [word for word in named if word not in causes(found)] == []
    assert [word for word in unnamed if word in causes(found)] == []


def test_two_kinds_of_gpu_are_not_compared():
    assert "not comparable" in slower(run(), run(gpu="Tesla P100-PCIE-16GB"), AMP).answer
    printed = Run("j-2", "amp_fp16", True, "", figures=Figures(progress=Progress(throughput={"it/s": 4.0})), host="a")
    measured = replace(run(), host="a", figures=replace(run().figures, progress=printed.figures.progress))
    assert same_device(measured, printed) and not same_device(measured, replace(printed, host="b"))
    assert "as fast as FP32" in slower(measured, printed, AMP).answer


def test_the_answer_is_not_known_without_a_measurement():
    unmeasured = Run("j-1", "amp_fp16", True, "finished")
    assert slower(unmeasured, unmeasured, AMP).answer.startswith("not known")
    assert memory(unmeasured, unmeasured, AMP).answer.startswith("not known")


def test_the_pace_comes_from_the_best_source_that_both_runs_have():
    printed = Run("j-1", "fp32", True, "", figures=Figures(progress=Progress(throughput={"it/s": 4.0})))
    assert paces(run(), run())[2] is Source.INSIDE
    assert paces(run(), printed) is None
    assert paces(printed, printed)[:2] == (0.25, 0.25)
    rough = Run("j-1", "fp32", True, "", figures=Figures(progress=Progress(first_step=1, furthest_step=11)), seconds=5)
    assert paces(rough, rough) == (0.5, 0.5, Source.WHOLE)


def test_memory_that_did_not_fall_is_explained():
    assert memory(run(gpu_bytes=1000), run(gpu_bytes=700), AMP).answer.startswith("it is, by 30%")
    kept = memory(run(gpu_bytes=1000), run(gpu_bytes=990), AMP)
    assert kept.answer.startswith("it is not reduced") and "master weights" in causes(kept)
    assert "whole process" not in causes(kept) and "smaller part" not in causes(kept)
    assert "smaller part" in causes(memory(run(), run(), Setting("amp_fp16", 4)))
    assert "whole process" in causes(memory(run(gpu=""), run(gpu=""), AMP))
    native = causes(memory(run(), run(gpu_bytes=1 << 31), Setting("native_fp16", 4, reached=True)))
    assert "compensation" in native and "master weights" not in native
    assert "compensation" not in causes(memory(run(), run(), Setting("native_fp16", 4)))


def test_a_worse_metric_is_explained_by_what_the_run_shows():
    fail = Judgement(Verdict.FAIL, "")
    small = worse(run(median_norm=1.0), run(median_norm=0.1), fail, AMP)
    assert "underflow" in causes(small)
    assert "underflow" not in causes(worse(run(median_norm=1.0), run(median_norm=0.9), fail, AMP))
    assert "30% of the updates" in causes(worse(run(), run(skipped=30), fail, AMP))
    assert "fell to 0.5" in causes(worse(run(), run(lowest_scale=0.5), fail, AMP))
    failed = replace(run(), fault=Fault(FaultKind.FP16_OVERFLOW, "without overflow"))
    assert "beyond 65504" in causes(worse(run(), failed, fail, AMP))
    own = Setting("native_fp16")
    assert "ignores updates" in causes(worse(run(), run(), fail, own))
    assert "ignores updates" not in causes(worse(run(), run(), fail, replace(own, reached=True)))
    assert worse(run(), run(), Judgement(Verdict.PASS, ""), AMP) is None
