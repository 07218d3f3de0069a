"""Tests which channels of a knob are known before a launch, and the reason if there is none."""

from __future__ import annotations

from typing import Any

import pytest

from rung.jobs.model.knobs import Precision
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.knob_channels import channels, says_it_knows, why_unreachable
from rung.recovery.decide.rungs import RungContext, apply_rung

NATIVE = Precision.NATIVE_FP16
WORDS = {"amp_fp16": "float16", "fp32": "float32"}
FILES = {"conf/c.yaml": {"lr": ["optimizer.lr", "schedule.peak"], "clip": "train.clip"}}


def spec(run: str = "train", **fields: Any) -> JobSpec:
    return JobSpec.model_validate({"name": "a", "run": run, **fields})


@pytest.mark.parametrize(
    ("job", "knob", "found"),
    [
        (spec("train {lr}", envs={"LR": "x-{lr}"}), "lr", ["run", "envs.LR"]),
        (spec(knobs={"files": FILES}), "lr", ["conf/c.yaml: optimizer.lr", "conf/c.yaml: schedule.peak"]),
        (spec("train {clip}", knobs={"files": FILES}), "clip", ["run", "conf/c.yaml: train.clip"]),
        (spec("train {{lr}}"), "lr", []),
        (spec(knobs={"mode": "inside"}), "lr", ["inside"]),
        (spec(knobs={"mode": "zero-edit", "files": FILES}), "clip", ["conf/c.yaml: train.clip", "zero-edit"]),
        (spec("train --fp16 {fp16}"), "precision", ["run"]),
        (spec(knobs={"files": {"ds.json": {"bf16": "bf16.enabled"}}}), "precision", ["ds.json: bf16.enabled"]),
    ],
)
def test_every_channel_is_found(job: JobSpec, knob: str, found: list[str]) -> None:
    assert channels(job, knob) == found
    assert (why_unreachable(job, knob) is None) is bool(found)


def test_a_knob_without_a_channel_has_a_reason_that_names_the_channels() -> None:
    reason = "the job cannot receive clip: nothing in run, envs or files carries {clip}, and knobs.mode is flags"
    assert why_unreachable(spec("train {lr}"), "clip") == reason


@pytest.mark.parametrize(
    ("job", "reachable"),
    [
        (spec("train {precision}"), set(Precision)),
        (spec("train {precision}", knobs={"framework": "accelerate"}), set(Precision) - {Precision.NATIVE_FP16}),
        (spec("train --fp16 {fp16}"), {Precision.AMP_FP16, Precision.FP32}),
        (spec("train {fp16} {bf16}"), {Precision.AMP_FP16, Precision.BF16, Precision.FP32}),
        (
            spec(
                knobs={
                    "files": {"c.yaml": {"precision": "use_amp"}},
                    "precision_text": {"amp_fp16": True, "fp32": False},
                }
            ),
            {Precision.AMP_FP16, Precision.FP32},
        ),
        (spec("train {fp16}", knobs={"mode": "inside"}), set(Precision)),
        (spec("train {precision}", knobs={"precision_text": {"amp_fp16": "16"}}), set(Precision) - {NATIVE}),
        (spec("train {precision}", knobs={"precision_text": WORDS | {"native_fp16": "half"}}), set(Precision)),
        # The command carries the word also where the code inside sets the precision.
        (spec("train {precision}", knobs={"precision_text": WORDS, "mode": "zero-edit"}), set(Precision) - {NATIVE}),
        (spec("train", knobs={"precision_text": WORDS, "mode": "zero-edit"}), set(Precision)),
    ],
)
def test_a_precision_that_the_script_has_no_name_for_cannot_be_received(
    job: JobSpec, reachable: set[Precision]
) -> None:
    assert {each for each in Precision if why_unreachable(job, "precision", each.value) is None} == reachable


@pytest.mark.parametrize(
    ("job", "known"),
    [
        (spec("train {precision}"), False),
        (spec("train {precision}", knobs={"framework": "accelerate"}), True),
        (spec("train {lr}", knobs={"framework": "accelerate"}), False),
        (spec("train {precision}", knobs={"precision_text": {"bf16": "bf16-mixed"}}), True),
        (spec("train {precision}", knobs={"precision_text": {"fp32": "32"}}), False),
        (spec("train --fp16 {fp16}"), False),
        (spec("train --fp16 {fp16} --bf16 {bf16}"), True),
        (spec("train", knobs={"mode": "zero-edit"}), True),
    ],
)
def test_a_job_file_shows_whether_the_script_knows_bf16(job: JobSpec, known: bool) -> None:
    assert says_it_knows(job, Precision.BF16) is known


def test_a_rung_without_a_channel_is_skipped_with_that_reason() -> None:
    job = spec("train {precision}", knobs={"framework": "accelerate"})
    knobs = job.knobs.knobs()
    results = {step.rung.value: apply_rung(step, RungContext(job, knobs, knobs)) for step in job.recovery.ladder}
    assert "accelerate and knobs.precision_text has no name for it" in str(results["native_fp16"])
    assert str(results["raise_clip"]).startswith("the job cannot receive clip")
    assert results["fp32"] == knobs.but(precision=Precision.FP32)
