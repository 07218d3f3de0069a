"""Tests the gauntlet: how it judges and counts, that no case uses Rung, and one case with the real command."""

from __future__ import annotations

import ast
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from rung.jobs.spec.load import parse_spec
from tests.gauntlet import table
from tests.gauntlet.case import CASES, CONFIG, Case
from tests.gauntlet.cases.tuned import LR
from tests.gauntlet.catalog import CATALOG, SHARED, chosen
from tests.gauntlet.draw import draw
from tests.gauntlet.families import CHANNELS, FAMILIES, KINDS, case_of
from tests.gauntlet.fresh import FRESH
from tests.gauntlet.judging import REFERENCE, Result, Verdict, judge, read_results, value_in
from tests.gauntlet.regimens import REGIMENS, Trial, default, from_history
from tests.gauntlet.second_list import SECOND

CURABLE = Case("mask_constant", "a mask")
HOPELESS = Case("sqrt_at_zero", "a root", diagnosis=("bug in the model",))
HEALTHY = Case("healthy_kfold", "nothing", family="healthy", healthy=True, steps=2000)
TOO_HIGH = Case("gpt_adam", "an lr", family="gpt", lr=True, steps=2000)
RESULT = Result(
    case="mask_constant",
    regimen="default",
    times=1,
    ended_well=True,
    val_loss=0.5,
    launches=2,
    steps_lost=10,
    seconds=4.0,
    steps=400,
    half_steps=100,
)


def verdict(of: Case = CURABLE, reference: float | None = 0.5, **changes: object) -> Verdict:
    return Verdict(replace(RESULT, case=of.name, **changes), of, reference)  # type: ignore[arg-type]


# The cases


ATTACHED = CASES / "family_attached.py"
SCRIPT_FILES = sorted({*SHARED, *(case.script for case in CATALOG)})


def test_the_catalog_has_a_hundred_cases_of_four_frameworks_and_five_without_a_cure() -> None:
    assert set(CASES.glob("*.py")) == set(SCRIPT_FILES)
    assert len({case.name for case in CATALOG}) == len(CATALOG) >= 100
    assert {case.framework for case in CATALOG} == {"torch", "HF Trainer", "Lightning", "Accelerate"}
    assert sum(bool(case.diagnosis) for case in CATALOG) >= 5


@pytest.mark.parametrize("script", sorted({*SCRIPT_FILES} - {ATTACHED}), ids=lambda script: script.stem)
def test_a_case_does_not_use_rung_and_does_not_set_a_loss_to_nan(script: Path) -> None:
    text = script.read_text()
    nodes = [*ast.walk(ast.parse(text))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules = {(node.module or "").partition(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
    assert "rung" not in text.lower()
    assert names <= {"argparse", "copy", "glob", "json", "lightning", "math", "os", "random", "torch"}
    shared = {path.stem for path in SHARED}
    assert modules <= {"accelerate", "arc", "lightning", "torch", "transformers"} | shared
    assert "loss = float(" not in text


@pytest.mark.parametrize("case", CATALOG, ids=lambda case: case.name)
def test_the_job_file_of_a_case_is_valid(case: Case) -> None:
    spec = parse_spec(json.dumps(case.job(1)).encode())
    assert spec.knobs.mode == case.knobs.get("mode", "zero-edit")


# The families


def test_a_name_of_a_family_says_everything_about_its_case() -> None:
    case = case_of("gpt_adam_lr100_warmup_cosine_amp_flags_every10")
    assert (case.family, case.lr, case.half, case.healthy) == ("gpt", True, True, False)
    assert case.flags == (
        "--model gpt --optimizer adam --lr-times 100 --log every10 --warmup --schedule cosine --precision float16"
    )
    assert case.arguments == "--lr {lr} --clip {clip} --precision {precision}"
    assert case.knobs["lr"] == pytest.approx(LR["gpt"]["adam"] * 100)
    assert case_of("hf_gpt_adam_lr100_zero_silent").script.stem == "family_hf"
    assert case_of("cnn_sgd_noise_zero_epoch").healthy
    with pytest.raises(ValueError, match="no name of a case"):
        case_of("gpt_adam_lr100_telepathy_every10")


def test_each_channel_reaches_the_script_with_the_lr_that_is_too_high() -> None:
    high = pytest.approx(LR["cnn"]["sgd"] * 30)
    zero, flags, config, attach = (case_of(f"cnn_sgd_lr30_clip_{way}_epoch") for way in CHANNELS)
    assert not zero.knobs and not zero.arguments
    assert (flags.knobs["lr"], flags.knobs["clip"]) == (high, 1.0)
    assert config.config == {"lr": high, "clip": 1.0} and f"--config {CONFIG}" in config.flags
    assert attach.attached and attach.script == ATTACHED and attach.knobs["lr"] == high


def test_the_families_cover_the_models_optimizers_channels_and_logs() -> None:
    words = {word for case in (*FAMILIES, *FRESH) for word in case.name.split("_")}
    assert words >= {*LR, "sgd", "momentum", "adam", "lr10", "lr30", "lr100", "lr1000", "warmup", "clip", "cosine"}
    assert words >= {
        "outliers",
        "burst",
        "late30",
        "late100",
        "noise",
        "amp",
        *CHANNELS,
        "every1",
        "every10",
        "epoch",
        "silent",
    }
    assert words >= {"hf", "lightning", "accelerate", *KINDS}
    assert all(case.steps == 2000 for case in (*FAMILIES, *SECOND, *FRESH))


def test_only_the_newest_list_has_blind_cases_and_they_are_most_of_it() -> None:
    assert {case.side for case in CATALOG if not case.fresh} == {"tune"}
    blind = [case for case in FRESH if case.side == "blind"]
    assert 0.55 < len(blind) / len(FRESH) < 0.8
    # The names of healthy kinds have all been drawn before.
    assert {case.family for case in FRESH} == {*LR, "hf", "lightning", "accelerate"}
    assert {case.family for case in blind} == {*LR, "hf", "lightning", "accelerate"}
    assert {case.healthy for case in FRESH if case.side == "tune"} == {True, False}


def test_one_case_in_six_of_the_newest_list_is_healthy() -> None:
    assert 0.1 < sum(case.healthy for case in FRESH) / len(FRESH) < 0.25


def test_the_newest_list_was_drawn_by_lot_and_only_shortened() -> None:
    drawn = draw()
    listed = [case.name for case in FRESH]
    assert [name for name in drawn if name in listed] == listed
    assert not {case.name for case in (*FAMILIES, *SECOND)} & set(drawn)


@pytest.mark.parametrize("case", FRESH, ids=lambda case: case.name)
def test_a_case_of_the_newest_list_can_be_seen_and_reached(case: Case) -> None:
    assert not case.name.endswith(("flags_silent", "config_silent"))
    assert case.framework != "HF Trainer" or "_zero_" in case.name
    assert case.framework != "Lightning" or case.name.endswith("zero_silent")
    assert case.framework != "Accelerate" or not case.attached
    assert not (case.half and case.config)


def test_cases_are_chosen_by_side_family_and_list() -> None:
    assert {case.side for case in chosen((), "blind")} == {"blind"}
    assert {case.family for case in chosen((), family="gpt")} == {"gpt"}
    assert chosen((), fresh=True) == FRESH


def test_the_side_of_a_name_never_changes() -> None:
    sides = [replace(case_of(f"healthy_{kind}_zero_every1"), fresh=True).side for kind in KINDS]
    assert sides == ["blind", "blind", "blind", "tune", "tune", "blind"]


def test_an_unknown_case_is_refused_by_name() -> None:
    assert chosen(("double_unscale",))[0].wrong == "unscales twice"
    with pytest.raises(KeyError, match="no_such"):
        chosen(("no_such",))


# Judging


@pytest.mark.parametrize(
    ("value", "well", "cured"),
    [
        (0.5, True, True),
        (0.504, True, True),
        (0.1, True, True),
        (0.506, True, False),
        (0.5, False, False),
        (math.nan, True, False),
        (None, True, False),
    ],
)
def test_a_case_is_cured_within_one_per_cent_of_the_healthy_run_or_better(
    value: float | None, well: bool, cured: bool
) -> None:
    assert verdict(val_loss=value, ended_well=well).cured is cured


def test_a_case_without_a_reference_is_not_cured() -> None:
    assert not verdict(reference=None).cured


def test_a_case_of_too_high_an_lr_is_cured_within_five_per_cent() -> None:
    assert verdict(TOO_HIGH, val_loss=0.524).cured
    assert not verdict(TOO_HIGH, val_loss=0.526).cured


@pytest.mark.parametrize(
    ("changes", "left"),
    [({}, True), ({"launches": 2}, False), ({"val_loss": 0.49}, False), ({"ended_well": False}, False)],
)
def test_a_healthy_case_is_right_only_if_it_was_left_alone(changes: dict[str, object], left: bool) -> None:
    assert verdict(HEALTHY, **{"launches": 1} | changes).right is left


@pytest.mark.parametrize(
    ("word", "value", "false"),
    [
        ("recovered", 0.56, True),
        ("recovered", math.nan, True),
        ("recovered", None, True),
        ("recovered", 0.54, False),
        ("survived", 0.56, False),
        (None, 0.56, False),
    ],
)
def test_recovered_is_false_when_the_run_is_more_than_ten_per_cent_worse(
    word: str | None, value: float | None, false: bool
) -> None:
    assert verdict(TOO_HIGH, said_word=word, val_loss=value).false_recovered is false


def test_a_case_without_a_cure_is_right_only_if_it_fails_soon_with_the_right_diagnosis() -> None:
    named = {"said": "NaN in FP32 too: a bug in the model or the data", "ended_well": False}
    assert verdict(HOPELESS, launches=4, **named).right
    assert not verdict(HOPELESS, launches=5, **named).right
    assert not verdict(HOPELESS, **named | {"said": "no rung is left"}).right
    assert not verdict(HOPELESS, **named | {"ended_well": True}).right


def test_the_held_out_loss_is_the_last_one_printed() -> None:
    assert value_in("val_loss 3.0\nstep 4\nval_loss 2.5\n") == 2.5
    assert math.isnan(value_in("val_loss nan") or 0.0)
    assert value_in("val_loss oops") is None
    assert value_in("loss 1") is None


def test_results_are_stored_as_lines_the_newest_counts_and_references_get_no_verdict(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    healthy = replace(RESULT, regimen=REFERENCE, val_loss=0.4)
    lines = [RESULT, healthy, replace(RESULT, val_loss=0.41)]
    assert read_results(file) == []
    file.write_text("".join(each.to_json() + "\n" for each in lines))
    (only,) = judge(read_results(file), CATALOG)
    assert (only.result.val_loss, only.reference, only.cured) == (0.41, 0.4, False)


def test_results_from_before_there_were_trials_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    new = ("said_word", "trials", "trial_steps")
    fields = json.loads(RESULT.to_json())
    file.write_text(json.dumps({name: fields[name] for name in fields if name not in new}))
    assert read_results(file) == [RESULT]


# Counting


def attempt(number: int, **fields: object) -> dict[str, object]:
    plain = {"resumed_step": None, "planned_step": None, "furthest_step": 0, "steps_lost": 0, "fault": None}
    more = {"outcome": "succeeded", "rung": None, "because": "", "changed": {}, "asked": {"precision": None}}
    return {"number": number, **plain, **more, **fields}


def test_a_history_gives_the_number_of_launches_and_the_steps_in_each_precision(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("val_loss 0.5\n")
    attempts = [
        attempt(1, furthest_step=60, steps_lost=10, log=str(log)),
        attempt(2, planned_step=50, furthest_step=400, asked={"precision": "fp32"}, log=str(log)),
    ]
    history = {"job": {"state": "SUCCEEDED", "reason": "finished"}, "attempts": attempts}
    result = from_history(Trial(CURABLE, 1, tmp_path), "default", history, 4.0)
    assert (result.launches, result.steps_lost, result.steps, result.half_steps) == (2, 10, 410, 60)
    assert result.ended_well and result.val_loss == 0.5


def test_trials_that_did_not_win_are_counted_apart_and_the_last_word_is_the_winners(tmp_path: Path) -> None:
    logs = {name: tmp_path / name for name in ("faulty", "winner", "loser")}
    for name, value in (("faulty", "nan"), ("winner", "0.5"), ("loser", "9.0")):
        logs[name].write_text(f"val_loss {value}\n")
    won = {"round": 1, "candidate": "lower_lr x0.1", "won": True}
    lost = {**won, "won": False, "start": 50, "until": 150}
    attempts = [
        attempt(1, furthest_step=60, log=str(logs["faulty"]), trial=None),
        attempt(2, planned_step=50, furthest_step=400, log=str(logs["winner"]), trial=won),
        attempt(3, planned_step=50, furthest_step=190, log=str(logs["loser"]), trial=lost),
    ]
    job = {"state": "SUCCEEDED", "reason": "finished", "verdict": "recovered"}
    result = from_history(Trial(CURABLE, 1, tmp_path), "default", {"job": job, "attempts": attempts}, 4.0)
    assert (result.launches, result.trials, result.launches_outside_trials, result.trial_steps) == (3, 2, 1, 100)
    assert (result.val_loss, result.said_word) == (0.5, "recovered")


def test_one_table_has_a_row_for_each_side_and_regimen() -> None:
    blind = replace(TOO_HIGH, name="gpt_blind", fresh=True)
    assert blind.side == "blind"
    shown = table.regimens(
        [
            verdict(blind, regimen="restart", launches=1, val_loss=math.nan),
            verdict(blind, regimen="trials", launches=4, trials=2, trial_steps=200),
            verdict(blind, regimen="trials", val_loss=0.6, said_word="recovered"),
            verdict(replace(HEALTHY, name=blind.name, fresh=True), regimen="trials", launches=1),
            verdict(regimen="off"),
            verdict(regimen="default", times=10),
        ]
    )
    assert shown.splitlines()[2:] == [
        "| tune | off | 1 of 1 (100%) |  | 0 |  | 2.00 | 2.00 |",
        "| tune | default x10 | 1 of 1 (100%) |  | 0 | 0.0% | 2.00 | 2.00 |",
        "| blind | trials | 1 of 2 (50%) | 1 of 1 (100%) | 1 | 5.0% | 3.00 | 2.00 |",
        "| blind | restart | 0 of 1 (0%) |  |  |  | 1.00 | 1.00 |",
    ]
    assert {line.count("|") for line in shown.splitlines()} == {9}


def test_the_table_has_an_order_for_every_regimen() -> None:
    assert {*table.ORDER} == {*REGIMENS}


def test_the_share_in_16_bit_is_that_of_the_scripts_that_compute_in_16_bit() -> None:
    wide = replace(CURABLE, name="wide")
    verdicts = [verdict(steps=100, half_steps=80), verdict(wide, steps=900, half_steps=0)]
    assert table.summary(verdicts).endswith("| 80% |")
    assert table.summary(verdicts[1:]).endswith("| 0% |")


def test_the_tables_show_what_failed() -> None:
    verdicts = [
        verdict(),
        verdict(replace(CURABLE, name="other"), val_loss=0.6, launches=4),
        verdict(HOPELESS, ended_well=False, said="bug in the model"),
    ]
    assert "| default | x1 | 1 of 2 | 1 of 1 | 2.00 (3) | 10 | 4 | 25% |" in table.summary(verdicts)
    shown = table.cases(verdicts)
    assert "+0.0% after 1 |" in shown and "**+20.0%** after 3 |" in shown and "named after 1" in shown
    assert "WRONG" in table.line(verdicts[1])


def test_the_docs_show_the_tables_of_the_stored_results() -> None:
    page = (CASES.parents[2] / "docs" / "ladder.md").read_text(encoding="utf-8")
    verdicts = judge(read_results(CASES.parent / "results.jsonl"), CATALOG)
    assert table.summary(verdicts) in page
    assert table.cases(verdicts) in page


# One case with the real command


def test_rung_recovers_a_case_that_fails_without_it(tmp_path: Path) -> None:
    case = replace(chosen(("half_params_with_scaler",))[0], steps=60)
    result = default(Trial(case, 1, tmp_path))
    assert result.ended_well, result
    assert result.relaunches == 1 and result.val_loss is not None and result.val_loss < 1.0
