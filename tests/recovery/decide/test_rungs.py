"""Tests the rungs: how each changes the knobs, and the reason if it cannot."""

from __future__ import annotations

from typing import Any

import pytest

from rung.jobs.model.fault import FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs, Precision, RungName
from rung.jobs.spec.recovery_spec import RungSpec
from rung.recovery.decide.rungs import RUNGS, RungContext, apply_rung
from tests.support.jobs_in_trouble import a_fault, a_job, an_attempt


def taken(
    rung: str, knobs: Knobs, values: tuple[float, ...] = (), mode: str = "zero-edit", fp32: str = "tf32", **context: Any
) -> Knobs | str:
    job = a_job(knobs={"mode": mode}, recovery={"fp32": fp32}, run=RUN)
    return apply_rung(RungSpec(rung=RungName(rung), values=values), RungContext(job.spec, knobs, job.knobs, **context))


RUN = "python train.py --precision {precision}"
BASE = Knobs(lr=1e-3, clip=5.0, growth_interval=2000, batch=8, accumulation=1)


@pytest.mark.parametrize(
    ("rung", "before", "after"),
    [
        ("raise_clip", BASE.but(clip=None), BASE.but(clip=1.0)),
        ("raise_clip", BASE.but(clip=10.0), BASE.but(clip=5.0)),
        ("raise_clip", BASE.but(clip=5.0), BASE.but(clip=1.0)),
        ("raise_clip", BASE.but(clip=1.0), BASE.but(clip=0.5)),
        ("lower_lr", BASE, BASE.but(lr=1e-4)),
        ("increase_growth_interval", BASE, BASE.but(growth_interval=5000)),
        ("increase_growth_interval", BASE.but(growth_interval=1), BASE.but(growth_interval=2000)),
        ("native_fp16", BASE, BASE.but(precision=Precision.NATIVE_FP16)),
        ("fp32", BASE.but(precision=Precision.NATIVE_FP16), BASE.but(precision=Precision.FP32)),
        ("fp32_params", BASE, BASE.but(params="fp32")),
        ("bf16", BASE, BASE.but(precision=Precision.BF16)),
        ("lower_batch", BASE, BASE.but(batch=4, accumulation=2)),
        ("lower_batch", BASE.but(batch=9), BASE.but(batch=3, accumulation=3)),
        ("lower_batch", BASE.but(batch=7), BASE.but(batch=1, accumulation=7)),
        ("lower_batch", BASE.but(batch=12, accumulation=2), BASE.but(batch=8, accumulation=3)),
        ("lower_batch", BASE.but(batch=12, accumulation=None), BASE.but(batch=6, accumulation=2)),
        ("clamp_constants", BASE, BASE.but(constants="clamp")),
        ("clamp_constants", BASE.but(precision=Precision.BF16), BASE.but(precision=Precision.BF16, constants="clamp")),
    ],
)
def test_a_rung_changes_its_knob_and_no_other(rung, before, after):
    assert taken(rung, before) == after


@pytest.mark.parametrize(
    ("rung", "knobs", "reason"),
    [
        ("raise_clip", BASE.but(clip=0.5), "the tightest value"),
        ("lower_lr", BASE.but(lr=None), "the job states no lr"),
        ("lower_lr", BASE.but(lr=2e-6), "the floor"),
        ("increase_growth_interval", BASE.but(precision=Precision.FP32), "no loss scaler in fp32"),
        ("increase_growth_interval", BASE.but(growth_interval=10000), "already 10000"),
        ("native_fp16", BASE.but(precision=Precision.FP32), "already in fp32"),
        ("fp32", BASE.but(precision=Precision.FP32), "already in fp32"),
        ("fp32_params", BASE.but(precision=Precision.FP32), "no AMP in fp32"),
        ("fp32_params", BASE.but(precision=Precision.NATIVE_FP16), "no AMP in native_fp16"),
        ("fp32_params", BASE.but(params="fp32"), "already in FP32"),
        ("bf16", BASE.but(precision=Precision.FP32), "already in fp32"),
        ("skip_data", BASE, "not known"),
        ("lower_batch", BASE.but(batch=None), "no batch"),
        ("lower_batch", BASE.but(batch=1), "cannot be split"),
        ("clamp_constants", BASE.but(constants="clamp"), "already clamped"),
        ("clamp_constants", BASE.but(precision=Precision.FP32), "in fp32"),
        ("fp32_modules", BASE, "names no places"),
        ("fp32_modules", BASE.but(precision=Precision.FP32), "in fp32, not in FP16"),
        ("fp32_modules", BASE.but(precision=Precision.BF16), "in bf16, not in FP16"),
    ],
)
def test_a_rung_that_cannot_be_taken_gives_a_reason(rung, knobs, reason):
    answer = taken(rung, knobs)
    assert isinstance(answer, str) and reason in answer


def test_a_rung_takes_the_values_of_the_job_file():
    assert taken("raise_clip", BASE, (10.0,)) == BASE.but(clip=10.0)
    assert taken("raise_clip", BASE, (5.0, 2.0)) == BASE.but(clip=2.0)
    assert taken("lower_lr", BASE, (0.5,)) == BASE.but(lr=5e-4)


def test_the_lr_stays_a_round_number_after_several_reductions():
    once = taken("lower_lr", Knobs(lr=1e-3, clip=5.0))
    assert isinstance(once, Knobs) and once.lr == 1e-4
    twice = taken("lower_lr", once)
    assert isinstance(twice, Knobs) and twice.lr == 1e-5


@pytest.mark.parametrize(("capability", "takes"), [((6, 0), False), ((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_bf16_is_taken_only_on_gpus_that_have_it(capability, takes):
    answer = taken("bf16", BASE, gpu=Gpu("NVIDIA GPU", capability))
    assert isinstance(answer, Knobs) is takes
    assert takes or "has no bf16" in answer


@pytest.mark.parametrize(("capability", "has"), [((6, 0), False), ((7, 5), False), ((8, 0), True), ((9, 0), True)])
@pytest.mark.parametrize("asked", ["tf32", "strict"])
@pytest.mark.parametrize("mode", ["zero-edit", "inside"])
def test_fp32_says_what_matmuls_compute_in_where_the_gpu_has_tf32(capability, has, asked, mode):
    answer = taken("fp32", BASE, mode=mode, fp32=asked, gpu=Gpu("NVIDIA GPU", capability))
    assert answer == BASE.but(precision=Precision.FP32, matmul=asked if has else None)


def test_fp32_leaves_matmuls_to_a_script_that_takes_only_flags():
    answer = taken("fp32", BASE, mode="flags", gpu=Gpu("NVIDIA A100", (8, 0)))
    assert answer == BASE.but(precision=Precision.FP32)


def test_fp32_leaves_matmuls_to_a_script_without_hands():
    attempt = an_attempt(1, BASE, None, hands="isolated; flag -I")
    answer = taken("fp32", BASE, gpu=Gpu("NVIDIA A100", (8, 0)), attempts=(attempt,))
    assert answer == BASE.but(precision=Precision.FP32)


@pytest.mark.parametrize(
    ("fields", "skip"),
    [
        ({"shape": "spike"}, "95-105"),
        ({"shape": "spike", "onset": 97}, "92-105"),
        ({"shape": "spike", "step": 3}, "1-8"),
        ({"replay": {"inputs": "nonfinite"}}, "95-105"),
    ],
)
def test_data_is_skipped_from_before_the_onset_to_after_the_fault(fields, skip):
    assert taken("skip_data", BASE, fault=a_fault(FaultKind.NAN_LOSS, **fields)) == BASE.but(skip=skip)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"shape": "drift"}, "neither a spike nor a bad batch"),
        ({}, "neither a spike nor a bad batch"),
        ({"shape": "spike", "step": None}, "not known"),
        ({"shape": "spike", "step": 900, "onset": 100}, "too many"),
    ],
)
def test_data_is_skipped_only_around_a_spike_or_a_bad_batch(fields, reason):
    answer = taken("skip_data", BASE, fault=a_fault(FaultKind.NAN_LOSS, **fields))
    assert isinstance(answer, str) and reason in answer


def test_data_that_is_already_skipped_is_not_skipped_again():
    answer = taken("skip_data", BASE.but(skip="95-105"), fault=a_fault(FaultKind.NAN_LOSS, shape="spike"))
    assert isinstance(answer, str) and "already left out" in answer


@pytest.mark.parametrize("rung", ["fp32_params", "skip_data"])
def test_a_script_that_takes_only_flags_cannot_receive_fp32_params_or_skip_data(rung):
    answer = taken(rung, BASE, mode="flags", fault=a_fault(FaultKind.NAN_LOSS, shape="spike"))
    assert isinstance(answer, str) and "cannot receive" in answer


def with_places(*places: str, knobs: Knobs = BASE, mode: str = "zero-edit") -> Knobs | str:
    job = a_job(knobs={"mode": mode})
    return apply_rung(RungSpec(rung=RungName.FP32_MODULES, places=places), RungContext(job.spec, knobs, job.knobs))


def test_places_in_fp32_compute_their_matmuls_in_tf32_too():
    job = a_job(knobs={"mode": "zero-edit"})
    step, gpu = RungSpec(rung=RungName.FP32_MODULES, places=("head",)), Gpu("NVIDIA A100", (8, 0))
    places = apply_rung(step, RungContext(job.spec, BASE, job.knobs, gpu=gpu))
    assert places == BASE.but(fp32_modules="head", matmul="tf32")
    assert taken("bf16", places, gpu=gpu) == BASE.but(precision=Precision.BF16)


def test_fp32_modules_adds_its_places_to_those_that_are_in_fp32():
    assert with_places("head.norm", "loss") == BASE.but(fp32_modules="head.norm,loss")
    before = BASE.but(fp32_modules="first.*,loss")
    assert with_places("head.norm", "loss", knobs=before) == BASE.but(fp32_modules="first.*,loss,head.norm")
    assert "already in FP32" in str(with_places("loss", knobs=before))


def test_a_script_that_takes_only_flags_cannot_receive_places_or_clamped_constants():
    for answer in (with_places("loss", mode="flags"), taken("clamp_constants", BASE, mode="flags")):
        assert isinstance(answer, str) and answer.endswith("it needs zero-edit or rung_inside.attach")
    assert isinstance(with_places("loss", mode="inside"), Knobs)


def test_every_rung_name_has_a_rung():
    assert set(RUNGS) == set(RungName)
