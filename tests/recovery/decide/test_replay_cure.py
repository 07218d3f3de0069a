"""Tests that the cure which a replay reports is read with care, taken first, and widened when it does not hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rung.jobs.job import Attempt, Job
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Precision, RungName
from rung.jobs.spec.fields import LONGEST_PLACE
from rung.recovery.decide.decide import Relaunch, climb_of, decide
from rung.recovery.decide.diagnose import diagnose
from rung.recovery.decide.replay_cure import MOST_PLACES, ReplayCure, read_cure
from rung.recovery.decide.rungs import MOST_LISTS
from tests.support.jobs_in_trouble import a_fault, a_job, an_attempt, carried_out

F, R = FaultKind, RungName
A100, TITAN, P100 = Gpu("NVIDIA A100", (8, 0)), Gpu("NVIDIA TITAN RTX", (7, 5)), Gpu("Tesla P100", (6, 0))
FINITE = {"weights": "finite", "inputs": "finite", "fp32": "finite", "where": "head.norm"}
ONLY_LOSS = "the model is finite in FP16 at the same step, and what follows it is not: FP32 in the loss only"


def failed(cure: str = "", cost: str = "", step: int = 100, kind: FaultKind = F.NAN_LOSS, **fields: Any) -> Fault:
    replay = {**FINITE, **({"cure": cure} if cure else {}), **({"cost": cost} if cost else {})}
    return a_fault(kind, step, replay=replay, **fields)


def zero_edit(**recovery: Any) -> Job:
    return a_job(knobs={"mode": "zero-edit"}, recovery=recovery)


def decided(job: Job, attempts: list[Attempt], gpu: Gpu | None = None) -> Relaunch:
    decision = decide(job, attempts, [], gpu)
    assert isinstance(decision, Relaunch)
    return decision


def first(fault: Fault, gpu: Gpu | None = None, job: Job | None = None) -> Relaunch:
    job = job or zero_edit()
    return decided(job, [an_attempt(1, job.knobs, fault)], gpu)


@pytest.mark.parametrize(
    ("cure", "cost", "read"),
    [
        ("clamp_constants", "0.0%", ReplayCure(R.CLAMP_CONSTANTS, cost=0.0)),
        ("fp32_modules:head.norm,loss", "1.6%", ReplayCure(R.FP32_MODULES, ("head.norm", "loss"), 1.6)),
        ("fp32_modules:blocks.3.*", "12%", ReplayCure(R.FP32_MODULES, ("blocks.3.*",), 12.0)),
        ("fp32_modules:loss", "", ReplayCure(R.FP32_MODULES, ("loss",))),
        ("bf16", "0.4%", ReplayCure(R.BF16, cost=0.4)),
        ("fp32", "431.0%", ReplayCure(R.FP32, cost=431.0)),
        ("fp32_modules:" + "a" * LONGEST_PLACE, "", ReplayCure(R.FP32_MODULES, ("a" * LONGEST_PLACE,))),
        ("bf16", "-3%", ReplayCure(R.BF16)),
        ("bf16", "nan%", ReplayCure(R.BF16)),
        ("bf16", "1" * 400 + "%", ReplayCure(R.BF16)),
        ("bf16", "٣%", ReplayCure(R.BF16)),
    ],
)
def test_a_cure_is_read_with_its_places_and_its_cost(cure: str, cost: str, read: ReplayCure) -> None:
    assert read_cure(failed(cure, cost)) == read


@pytest.mark.parametrize(
    "cure",
    [
        *("", "lower_lr", "skip_data", "fp32_modules", "fp32_modules:", "fp32_modules:a,", "fp32_modules:,"),
        *("clamp_constants:a", "bf16:loss", "FP32", "fp32_modules:a b", "fp32_modules:a*", "fp32_modules:a=b"),
        *("fp32_modules:a,a", "fp32_modules:\x1b[2Ja", "fp32_modules:a\u202eb", "fp32_modules:" + "a" * 201),
        "fp32_modules:" + ",".join(f"layer{number}" for number in range(MOST_PLACES + 1)),
    ],
)
def test_what_is_no_cure_in_every_part_is_no_cure(cure: str) -> None:
    assert read_cure(failed(cure, "1.0%")) is None
    assert first(failed(cure, "1.0%"), TITAN).rung is R.FP32


@pytest.mark.parametrize(
    ("cure", "cost", "rung", "said"),
    [
        (
            *("fp32_modules:head.norm,loss", "1.6%", R.FP32_MODULES),
            "the same step is finite with FP32 in head.norm and the loss only: 1.6 % slower; the rest stays FP16",
        ),
        ("fp32_modules:a,b,loss", "0.0%", R.FP32_MODULES, "FP32 in a, b and the loss only: no slower; the rest stays"),
        ("fp32_modules:loss", "", R.FP32_MODULES, ONLY_LOSS),
        ("clamp_constants", "0.0%", R.CLAMP_CONSTANTS, "finite once its constants are clamped to FP16's limit"),
        ("bf16", "0.4%", R.BF16, "the same step is finite in bf16: 0.4 % slower; nothing narrower was found"),
        ("fp32", "431%", R.FP32, "the same step is finite in FP32; nothing narrower was found: fp32"),
    ],
)
def test_the_default_ladder_takes_the_cure_and_says_what_was_seen(cure: str, cost: str, rung: R, said: str) -> None:
    decision = first(failed(cure, cost), A100)
    assert decision.rung is rung and said in decision.because


def test_the_places_of_the_cure_are_asked_for() -> None:
    decision = first(failed("fp32_modules:head.norm,loss", "1.6%"), TITAN)
    assert decision.knobs.fp32_modules == "head.norm,loss" and decision.knobs.precision is None


def test_a_ladder_of_the_jobs_own_is_taken_as_it_is() -> None:
    found = failed("fp32_modules:head.norm", "1.6%")
    assert first(found, A100, zero_edit(ladder=["raise_clip", "fp32"])).rung is R.FP32
    assert first(found, A100, zero_edit(ladder=[{"fp32_modules": ["loss"]}])).knobs.fp32_modules == "loss"
    assert first(found, A100, zero_edit(ladder=["fp32_modules"])).knobs.fp32_modules == "head.norm"
    assert first(a_fault(F.NAN_LOSS), A100, zero_edit(ladder=["clamp_constants"])).rung is R.CLAMP_CONSTANTS
    assert first(a_fault(F.NAN_LOSS), A100, zero_edit(ladder=["bf16"])).rung is R.BF16


def test_a_cure_that_cannot_reach_the_script_leaves_the_wider_precisions_with_their_own_reason() -> None:
    job = a_job(run="python train.py {precision}", knobs={"mode": "flags"})
    decision = first(failed("fp32_modules:head.norm", "1.6%"), A100, job)
    assert decision.rung is R.FP32 and "the same step is finite in FP32, and not finite here" in decision.because
    skipped = dict(decision.skipped)
    assert skipped["fp32_modules"].endswith("it needs zero-edit or rung_inside.attach")
    assert "nothing in the job file says that the script knows bf16" in skipped["bf16"]
    knows = a_job(run="python train.py {precision}", knobs={"mode": "flags", "framework": "lightning"})
    assert first(failed("fp32_modules:head.norm"), A100, knows).rung is R.BF16
    assert first(failed("fp32_modules:head.norm"), TITAN, knows).rung is R.FP32


def test_without_evidence_the_ladder_goes_to_fp32_as_the_owner_orders_it() -> None:
    made = relapsed(zero_edit(), [a_fault(F.NAN_LOSS)] * 3, A100)
    assert [decision.rung for decision in made] == [R.RAISE_CLIP, R.LOWER_LR, R.FP32]
    skipped = dict(made[-1].skipped)
    assert "nothing shows a constant" in skipped["clamp_constants"]
    assert "no replay has named places" in skipped["fp32_modules"]
    assert "nothing shows that numbers leave the range" in skipped["bf16"]


def test_the_cure_of_an_overflow_is_that_of_the_replay_where_there_is_one() -> None:
    source = "model.py:31: scores.masked_fill(mask, -1e9)"
    plain = a_fault(F.FP16_OVERFLOW, 0, source=source)
    said = "a value beyond 65504 is written into the code (model.py:31), and FP16's own limit fits"
    assert said in first(plain, A100).because
    replayed = failed("fp32_modules:Net", "3.0%", 0, F.FP16_OVERFLOW, source=source)
    assert first(replayed, A100).knobs.fp32_modules == "Net"
    assert first(replayed, P100).rung is R.FP32_MODULES
    stale = replace(replayed, step=5000, replay={**replayed.replay, "step": "3"})
    assert first(stale, A100).rung is R.CLAMP_CONSTANTS


@pytest.mark.parametrize(("cure", "cost", "proven"), [("bf16", "0.1%", True), ("fp32_modules:loss", "", False)])
def test_a_cure_is_proven_only_if_the_replay_has_run_it_and_the_run_was_learning(cure, cost, proven) -> None:
    job = zero_edit()
    for falling in (True, False):
        attempt = an_attempt(1, job.knobs, failed(cure, cost), was_falling=falling)
        assert diagnose(climb_of(job, [attempt], A100).context).proven is (proven and falling)


def test_what_the_first_weights_compute_is_proven_without_a_run_because_no_lr_has_a_part_in_it() -> None:
    job = zero_edit()
    attempt = an_attempt(1, job.knobs, failed("fp32_modules:loss", step=1), was_falling=None)
    assert diagnose(climb_of(job, [attempt], A100).context).proven


def relapsed(job: Job, faults: list[Fault], gpu: Gpu | None = TITAN) -> list[Relaunch]:
    """Return the decisions after each of these faults, one attempt after the other."""
    attempts = [an_attempt(1, job.knobs, faults[0])]
    made = [decided(job, attempts, gpu)]
    for number, fault in enumerate(faults[1:], 2):
        attempts.append(carried_out(number, made[-1], fault))
        made.append(decided(job, attempts, gpu))
    return made


@pytest.mark.parametrize("steps", [(100, 100, 100, 100), (100, 200, 300, 400)])
def test_a_relapse_makes_the_list_longer_three_times_and_then_widens_the_precision(steps: tuple[int, ...]) -> None:
    cures = [f"fp32_modules:layer{number}" for number in range(4)]
    faults = [failed(cure, "2.0%", at) for cure, at in zip(cures, steps, strict=True)]
    made = relapsed(zero_edit(), faults)
    lists = [decision.knobs.fp32_modules for decision in made]
    assert lists == ["layer0", "layer0,layer1", "layer0,layer1,layer2", None]
    assert len(faults) == MOST_LISTS + 1
    assert made[-1].rung is R.FP32 and made[-1].knobs.precision is Precision.FP32
    assert "3 lists of places did not hold" in dict(made[-1].skipped)["fp32_modules"]
    assert "FP32 in layer1 too: 2 % slower" in made[1].because


def test_a_list_that_changes_nothing_is_undone_and_a_wider_precision_follows() -> None:
    made = relapsed(zero_edit(), [failed("fp32_modules:a", "2.0%"), failed("fp32_modules:a", "2.0%")], A100)
    assert made[1].rung is R.BF16 and made[1].undone[0][0] == "fp32_modules"
    assert made[1].knobs.fp32_modules is None


def test_a_module_as_a_whole_takes_the_place_of_its_own_code() -> None:
    made = relapsed(zero_edit(), [failed("fp32_modules:a,b", step=100), failed("fp32_modules:a.*,c", step=500)])
    assert made[1].knobs.fp32_modules == "b,a.*,c"


def test_fp32_is_reached_although_all_its_steps_failed() -> None:
    cures = ["clamp_constants", "fp32_modules:a", "fp32_modules:b", "fp32_modules:c", "bf16", "bf16"]
    made = relapsed(zero_edit(), [failed(cure, "1.0%", 100 * number) for number, cure in enumerate(cures, 1)], A100)
    rungs = [R.CLAMP_CONSTANTS, R.FP32_MODULES, R.FP32_MODULES, R.FP32_MODULES, R.BF16, R.FP32]
    assert [decision.rung for decision in made] == rungs
    assert made[3].knobs.fp32_modules == "a,b,c" and made[4].knobs.fp32_modules is None
    assert made[-1].knobs == a_job().knobs.but(
        growth_interval=None, precision=Precision.FP32, constants="clamp", fp32_modules=None, matmul="tf32"
    )
