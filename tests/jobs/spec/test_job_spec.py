"""Tests the job file: its defaults, the short forms in it, and its JSON schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rung.jobs.model.knobs import Precision, RungName
from rung.jobs.spec.checkpoint_spec import step_in_name
from rung.jobs.spec.fields import parse_size
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.knob_channels import channels, placeholders
from rung.jobs.spec.knob_spec import PLACEHOLDERS

CATALOG = Path(__file__).resolve().parents[3] / "jobs" / "catalog"
DIGEST = "registry/train@sha256:" + "a" * 64


def spec(**fields: Any) -> JobSpec:
    return JobSpec.model_validate({"name": "a", "run": "true", **fields})


def test_the_defaults_are_those_of_the_design() -> None:
    made = spec()
    assert [step.rung for step in made.recovery.rungs] == [
        RungName.RAISE_CLIP, RungName.LOWER_LR, RungName.INCREASE_GROWTH_INTERVAL, RungName.NATIVE_FP16,
        RungName.CLAMP_CONSTANTS, RungName.FP32_MODULES, RungName.BF16, RungName.FP32,
    ]  # fmt: skip
    assert made.recovery.max_attempts == 8
    assert made.knobs.knobs().to_dict() == {
        "lr": None, "clip": None, "growth_interval": 2000, "precision": "amp_fp16", "batch": None, "accumulation": None,
        "params": None, "skip": None, "constants": None, "fp32_modules": None, "matmul": None,
    }  # fmt: skip
    assert (made.checkpoint.dir, made.checkpoint.pattern, made.workdir) == ("checkpoints", "step_*.pt", ".")


@pytest.mark.parametrize(
    ("pattern", "searched", "version", "step"),
    [
        ("ckpt.pt", "ckpt.rung-*.pt", "ckpt.rung-step-200.pt", 200),
        ("checkpoint.pth.tar", "checkpoint.rung-*.pth.tar", "checkpoint.rung-step-3.pth.tar", 3),
        ("last", "last.rung-*", "last.rung-t17633", None),
        ("model_2.pt", "model_2.rung-*.pt", "model_2.rung-t17633.pt", None),
    ],
)
def test_a_pattern_without_a_star_is_one_file_with_versions(
    pattern: str, searched: str, version: str, step: int | None
) -> None:
    made = spec(checkpoint={"pattern": pattern}).checkpoint
    assert made.is_one_file and made.searched == searched
    assert (made.loaded_name(version), made.loaded_name("other.pt")) == (pattern, "other.pt")
    assert step_in_name(version) == step
    usual = spec().checkpoint
    assert (usual.is_one_file, usual.searched, usual.loaded_name("step_5.pt")) == (False, "step_*.pt", "step_5.pt")


def test_what_rung_saves_has_names_of_its_own_and_stays_the_same_in_the_store() -> None:
    made = spec(checkpoint={"by": "rung"}, knobs={"mode": "zero-edit"})
    kept = made.checkpoint
    assert (kept.pattern, kept.searched, kept.every, kept.is_one_file) == (
        "rung-step-*.pt",
        "rung-step-*.pt",
        500,
        False,
    )
    assert step_in_name("rung-step-1500.pt") == 1500
    assert JobSpec.model_validate(made.model_dump(mode="json")) == made


@pytest.mark.parametrize(
    ("text", "size"),
    [("1k", 1024), ("512m", 512 << 20), ("16g", 16 << 30), ("2T", 2 << 40), ("1.5 GiB", 3 << 29), ("8MB", 8 << 20)],
)
def test_sizes_are_read_in_the_usual_notations(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "g", "16", "-1g", "0g", "1e3g", "16 gigs", "9" * 400 + "g", "\u0661g", "nan g"])
def test_an_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="16g or 512m"):
        parse_size(text)


def test_single_braces_are_placeholders_and_double_ones_are_braces() -> None:
    assert placeholders("{lr} {{lr}} {checkpoint}{{}}{ } {LR}") == ["lr", "checkpoint"]


@given(st.sampled_from(PLACEHOLDERS), st.text(alphabet="abc {}=-", max_size=20))
def test_a_known_placeholder_is_found_after_any_plain_text(name: str, before: str) -> None:
    text = f"{before.replace('{', '').replace('}', '')}{{{name}}}"
    assert placeholders(text) == [name]


@pytest.mark.parametrize("value", [False, "off", None])
def test_clip_off_means_no_clipping(value: Any) -> None:
    assert spec(knobs={"clip": value}).knobs.clip is None


def test_the_command_is_split_as_a_shell_does_but_not_run_by_a_shell() -> None:
    assert spec(run="python train.py --name 'a b' \"$HOME\"").run == ("python", "train.py", "--name", "a b", "$HOME")
    assert spec(run=["bash", "-c", "a && b | c\nd"]).run == ("bash", "-c", "a && b | c\nd")


@pytest.mark.parametrize("word", ["&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1"])
def test_shell_operators_are_refused_with_advice(word: str) -> None:
    with pytest.raises(ValidationError, match="bash -c"):
        spec(run=f"python a.py {word} other")


def test_a_rung_may_have_its_own_values() -> None:
    ladder = spec(recovery={"ladder": ["fp32", {"raise_clip": [10.0, 2]}, {"lower_lr": 0.5}]}).recovery.rungs
    assert [(step.rung.value, step.values) for step in ladder] == [
        ("fp32", ()), ("raise_clip", (10.0, 2.0)), ("lower_lr", (0.5,)),
    ]  # fmt: skip


def test_places_are_read_from_the_knobs_and_from_the_ladder_and_survive_the_store() -> None:
    made = spec(
        knobs={"mode": "zero-edit", "constants": "clamp", "fp32_modules": ["head.norm", "loss"]},
        recovery={"ladder": ["clamp_constants", {"fp32_modules": ["layers.3.attention.*", "loss"]}]},
    )
    assert (made.knobs.knobs().constants, made.knobs.knobs().fp32_modules) == ("clamp", "head.norm,loss")
    assert [step.places for step in made.recovery.rungs] == [(), ("layers.3.attention.*", "loss")]
    assert JobSpec.model_validate_json(made.model_dump_json()) == made
    off = spec(knobs={"constants": False, "fp32_modules": False}).knobs.knobs()
    assert (off.constants, off.fp32_modules) == (None, None)
    assert spec(recovery={"ladder": [{"fp32_modules": "loss"}]}).recovery.rungs[0].places == ("loss",)
    assert spec(knobs={"fp32_modules": "loss"}).knobs.knobs().fp32_modules == "loss"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"knobs": {"fp32_modules": ["head norm"]}}, "name of a module"),
        ({"knobs": {"fp32_modules": ["a,b"]}}, "name of a module"),
        ({"knobs": {"fp32_modules": ["a*"]}}, "name of a module"),
        ({"knobs": {"fp32_modules": ["head..norm"]}}, "name of a module"),
        ({"knobs": {"fp32_modules": ["loss", "loss"]}}, "once"),
        ({"knobs": {"fp32_modules": [1]}}, "string"),
        ({"knobs": {"fp32_modules": 1}}, "tuple"),
        ({"knobs": {"constants": "widen"}}, "clamp"),
        ({"recovery": {"ladder": [{"fp32_modules": [2.0]}]}}, "string"),
        ({"recovery": {"ladder": [{"fp32_modules": ["loss", "loss"]}]}}, "once"),
        ({"recovery": {"ladder": [{"clamp_constants": [1.0]}]}}, "takes no numbers"),
        ({"recovery": {"ladder": [{"rung": "raise_clip", "places": ["loss"]}]}}, "only fp32_modules takes places"),
    ],
)
def test_a_place_that_cannot_be_meant_is_refused(fields: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        spec(**fields)


def test_only_a_ladder_that_differs_from_the_default_is_the_jobs_own() -> None:
    default = [step.rung.value for step in spec().recovery.rungs]
    own = [spec(recovery={"ladder": each}).recovery.names_its_rungs for each in (default, "auto", default[:4])]
    assert own == [False, False, True]
    stored = JobSpec.model_validate_json(spec().model_dump_json())
    assert not stored.recovery.names_its_rungs


def test_a_ladder_called_auto_has_every_rung_and_stays_auto_in_the_store() -> None:
    made = spec(recovery={"ladder": "auto"})
    assert made.recovery.auto and not spec().recovery.auto
    assert [step.rung for step in made.recovery.rungs] == list(RungName)
    assert [step.rung for step in made.recovery.rungs][:8] == [step.rung for step in spec().recovery.rungs]
    assert JobSpec.model_validate_json(made.model_dump_json()) == made


def test_fp32_may_be_asked_to_be_strict() -> None:
    assert (spec().recovery.fp32, spec(recovery={"fp32": "strict"}).recovery.fp32) == ("tf32", "strict")
    with pytest.raises(ValueError, match="'tf32' or 'strict'"):
        spec(recovery={"fp32": "bf16"})


@pytest.mark.parametrize(
    ("written", "steps"),
    [("after 2000 clean steps", 2000), (2000, 2000), ("2000 steps", 2000), ("off", None), (False, None)],
)
def test_step_back_is_read_in_the_usual_notations(written: Any, steps: int | None) -> None:
    made = spec(recovery={"step_back": written})
    assert made.recovery.step_back == steps
    assert JobSpec.model_validate_json(made.model_dump_json()) == made


def test_an_image_is_one_digest_or_a_map_by_gpu() -> None:
    assert spec(image=DIGEST).image == DIGEST
    assert spec(image={"p100": DIGEST}).image == {"p100": DIGEST}


def test_a_knob_reaches_the_script_by_flag_variable_or_inside() -> None:
    flags = spec(run="train --lr {lr}", envs={"CLIP": "{clip}"})
    assert [bool(channels(flags, name)) for name in ("lr", "clip", "precision")] == [True, True, False]
    assert channels(spec(knobs={"mode": "inside"}), "precision")
    assert not channels(spec(run="train {{lr}}"), "lr")


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30)
numbers = st.floats(min_value=1e-300, max_value=1e300)
specs = st.fixed_dictionaries(
    {"name": texts, "run": st.lists(texts.map(lambda text: text.replace("{", "-")), min_size=1, max_size=4)},
    optional={
        "knobs": st.fixed_dictionaries(
            {},
            optional={
                "lr": numbers,
                "clip": st.none() | numbers,
                "batch": st.integers(1, 2**53),
                "precision": st.sampled_from([each.value for each in Precision]),
            },
        ),
        "success": st.fixed_dictionaries({"metric": texts}, optional={}).flatmap(
            lambda start: numbers.map(lambda bound: {**start, "below": bound})
        ),
        "recovery": st.fixed_dictionaries(
            {"ladder": st.lists(st.sampled_from(list(RungName)), unique=True).map(lambda found: [*map(str, found)])}
        ),
        "image": st.just({"p100": DIGEST}),
    },
)


@given(specs)
def test_a_spec_read_from_the_store_equals_the_one_written(data: dict[str, Any]) -> None:
    made = JobSpec.model_validate(data)
    assert JobSpec.model_validate_json(made.model_dump_json()) == made


def resolve(schema: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in part:
        found: dict[str, Any] = schema["$defs"][part["$ref"].rpartition("/")[2]]
        return found
    return next((resolve(schema, each) for each in part.get("anyOf", []) if "$ref" in each), part)


def fits(schema: dict[str, Any], part: dict[str, Any], value: Any) -> list[str]:
    """Return the keys at any depth that are unknown to the schema or missing."""
    part = resolve(schema, part)
    if not isinstance(value, dict) or "properties" not in part:
        return []
    assert part["additionalProperties"] is False
    unknown = [name for name in value if name not in part["properties"]]
    missing = [name for name in part.get("required", []) if name not in value]
    known = [name for name in value if name in part["properties"]]
    return unknown + missing + [bad for name in known for bad in fits(schema, part["properties"][name], value[name])]


def test_the_catalogs_job_files_fit_the_schema() -> None:
    schema = JobSpec.model_json_schema()
    files = sorted(CATALOG.glob("*/job.yaml"))
    assert files
    for path in files:
        assert fits(schema, schema, yaml.safe_load(path.read_text(encoding="utf-8"))) == [], path


def test_the_schema_shows_unknown_and_missing_keys() -> None:
    schema = json.loads(json.dumps(JobSpec.model_json_schema()))
    assert sorted(schema["required"]) == ["name", "run"]
    assert fits(schema, schema, {"name": "a", "knobs": {"lrr": 1}, "success": {}}) == ["run", "lrr", "metric"]
    assert all("description" in field for field in schema["$defs"]["KnobSpec"]["properties"].values())


@pytest.mark.parametrize("off", [False, None, "off"])
def test_the_early_warning_is_on_with_its_defaults_and_can_be_switched_off(off: Any) -> None:
    assert spec().recovery.early_warning == spec(recovery={"early_warning": True}).recovery.early_warning
    assert spec(recovery={"early_warning": off}).recovery.early_warning is None
    warning = spec(recovery={"early_warning": {"patience": 32}}).recovery.early_warning
    assert warning is not None and (warning.patience, warning.sigmas, warning.stop) == (32, 4.0, True)


@pytest.mark.parametrize("field", ["sigmas", "patience", "rise", "warm_up", "backoffs", "skipped_share"])
@pytest.mark.parametrize("value", [0, -1, True, "many", float("nan")])
def test_a_threshold_of_the_early_warning_is_a_number_above_zero(field: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        spec(recovery={"early_warning": {field: value}})
