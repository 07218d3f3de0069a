"""Tests which name of a precision a script gets, and when it has none."""

from __future__ import annotations

import pytest

from rung.jobs.model.errors import SpecError
from rung.jobs.model.knobs import Precision
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.load import parse_spec
from rung.jobs.spec.precision_names import FRAMEWORKS, script_value_for, script_value_text


@pytest.mark.parametrize(
    ("framework", "words"),
    [
        ("lightning", ["16-mixed", "16-true", "bf16-mixed", "32-true"]),
        ("accelerate", ["fp16", None, "bf16", "no"]),
        ("fairseq", ["--fp16", "--memory-efficient-fp16", "--bf16", ""]),
        (None, ["amp_fp16", "native_fp16", "bf16", "fp32"]),
    ],
)
def test_a_framework_has_its_own_names(framework: str | None, words: list[str | None]) -> None:
    assert [script_value_for(precision, {}, framework) for precision in Precision] == words


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_has_a_name_for_amp_fp16_and_fp32(framework: str) -> None:
    names = [script_value_for(precision, {}, framework) for precision in (Precision.AMP_FP16, Precision.FP32)]
    assert None not in names and len(set(names)) == 2


def test_the_name_in_the_job_file_comes_first_and_yes_and_no_allow_only_two_precisions() -> None:
    own = {Precision.FP32: "32"}
    assert script_value_for(Precision.FP32, own, "lightning") == "32"
    assert script_value_for(Precision.AMP_FP16, own, "lightning") == "16-mixed"
    assert script_value_for(Precision.BF16, own, None) == "bf16"
    assert script_value_for(Precision.NATIVE_FP16, own, None) is None
    assert script_value_for(Precision.NATIVE_FP16, own, "lightning") == "16-true"
    switch = {Precision.AMP_FP16: True, Precision.FP32: False}
    assert script_value_for(Precision.FP32, switch, None) is False
    assert script_value_for(Precision.NATIVE_FP16, switch, None) is None


def test_types_of_the_job_file_are_kept_in_the_store_too() -> None:
    text = b"name: a\nrun: x {precision}\nknobs: {precision_text: {amp_fp16: true, fp32: 32, bf16: '16'}}\n"
    spec = parse_spec(text)
    again = JobSpec.model_validate_json(spec.model_dump_json())
    for words in (spec.knobs.precision_text, again.knobs.precision_text):
        assert [(type(word), word) for word in words.values()] == [(bool, True), (int, 32), (str, "16")]
    assert [script_value_text(word) for word in words.values()] == ["true", "32", "16"]


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ("{framework: lightening}", "knobs.framework: unknown framework; did you mean 'lightning'?"),
        ("{precision_text: {fp32: [1]}}", "knobs.precision_text.fp32: give a text, a number, or yes or no"),
        ("{files: {c.ini: {lr: a}}}", "c.ini: give a file that ends in .yaml, .yml, .json, .toml"),
        ("{files: {../c.yaml: {lr: a}}}", "../c.yaml: give a path in workdir"),
        ("{files: {/c.yaml: {lr: a}}}", "/c.yaml: give a path in workdir"),
        ("{files: {c.yaml: {lrr: a}}}", "knobs.files: lrr: no such knob; did you mean 'lr'?"),
        ("{files: {c.yaml: {lr: 3}}}", "knobs.files.c.yaml.lr"),
    ],
)
def test_invalid_precision_names_and_config_files_are_reported(knobs: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(f"name: a\nrun: x\nknobs: {knobs}\n".encode())
    assert message in str(caught.value)
