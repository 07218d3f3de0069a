"""Tests which cases of the gauntlet qualify: faulty ones fail without help and have a cure, healthy ones repeat."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.gauntlet.case import Case
from tests.gauntlet.families import case_of
from tests.gauntlet.judging import REFERENCE, Result, judge
from tests.gauntlet.qualifying import AS_IT_IS, CLIPPED, clipped, left_out, wanted
from tests.gauntlet.regimens import Trial, restart

TOO_HIGH = case_of("gpt_sgd_lr20_zero_every10")
OUTLIERS = case_of("recommender_adam_outliers_config_every1")
HEALTHY = case_of("rnn_sgd_lr1_attach_every1")
RESULT = Result(
    case="",
    regimen=REFERENCE,
    times=1,
    ended_well=True,
    val_loss=0.4,
    launches=1,
    steps_lost=0,
    seconds=1.0,
    steps=2000,
    half_steps=0,
)


def reason(case: Case, values: Mapping[str, float | None]) -> str | None:
    results = [replace(RESULT, case=case.name, regimen=name, val_loss=value) for name, value in values.items()]
    return next((why for _, why in left_out([case], judge(results, [case]))), None)


@pytest.mark.parametrize("value", [0.51, math.nan, math.inf, None])
def test_an_lr_qualifies_if_it_ends_a_quarter_worse_or_not_finite(value: float | None) -> None:
    assert reason(TOO_HIGH, {REFERENCE: 0.4, AS_IT_IS: value}) is None


def test_a_case_that_does_not_fail_is_left_out() -> None:
    assert reason(TOO_HIGH, {REFERENCE: 0.4, AS_IT_IS: 0.49}) == "does not fail: +22.5% without help"


@pytest.mark.parametrize("healthy", [None, math.nan])
def test_a_case_whose_healthy_run_has_no_loss_is_left_out(healthy: float | None) -> None:
    assert reason(TOO_HIGH, {REFERENCE: healthy, AS_IT_IS: math.nan}) == "has no healthy run"


def test_a_case_that_has_not_been_run_is_left_out() -> None:
    assert reason(TOO_HIGH, {REFERENCE: 0.4}) == "has not been run"
    assert reason(OUTLIERS, {REFERENCE: 0.4, AS_IT_IS: 0.6}) == "has not been run with a clip"


def test_another_fault_than_an_lr_must_be_cured_by_a_clip() -> None:
    run = {REFERENCE: 0.4, AS_IT_IS: 0.6}
    assert reason(OUTLIERS, {**run, CLIPPED: 0.402}) is None
    assert reason(OUTLIERS, {**run, CLIPPED: 0.42}) == "may have no cure: +5.0% if clipped"


def test_a_healthy_case_must_end_the_same_each_time() -> None:
    assert reason(HEALTHY, {REFERENCE: 0.4, AS_IT_IS: 0.4}) is None
    assert reason(HEALTHY, {REFERENCE: 0.4, AS_IT_IS: 0.41}) == "is not the same each time: +2.5%"


def test_only_a_fault_that_is_not_an_lr_runs_with_a_clip() -> None:
    everything = [TOO_HIGH, OUTLIERS, HEALTHY]
    assert wanted(everything) == [*((case, AS_IT_IS) for case in everything), (OUTLIERS, CLIPPED)]


@pytest.mark.parametrize("channel", ["zero", "config"])
def test_a_clip_reaches_the_script(channel: str, tmp_path: Path) -> None:
    case = replace(case_of(f"autoencoder_sgd_outliers_{channel}_every10"), steps=40)
    folders = [tmp_path / "plain", tmp_path / "clipped"]
    for folder in folders:
        folder.mkdir()
    plain = restart(Trial(case, 1, folders[0]))
    result = clipped(Trial(case, 1, folders[1]))
    assert (result.case, result.regimen) == (case.name, CLIPPED)
    assert plain.val_loss is not None and not plain.val_loss < 2
    assert result.val_loss is not None and result.val_loss < 2


def test_a_late_fault_is_clipped_from_a_checkpoint_before_it(tmp_path: Path) -> None:
    case = replace(case_of("autoencoder_sgd_burst_zero_every10"), steps=400)
    as_it_is, with_clip = Trial(case, 1, tmp_path / "plain"), Trial(case, 1, tmp_path / "clipped")
    for trial in (as_it_is, with_clip):
        trial.folder.mkdir()
    plain, result = restart(as_it_is), clipped(with_clip)
    assert plain.val_loss is not None and math.isnan(plain.val_loss)
    assert result.val_loss is not None and result.val_loss < 1
    (a, b), (c, d) = (
        [torch.load(trial.checkpoints / f"step_{step}.pt")["model"] for trial in (as_it_is, with_clip)]
        for step in (200, 300)
    )
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not any(torch.equal(c[name], d[name]) for name in c)
