"""Tests that the spec of a stored job is parsed only when it is asked for, and is then the same as ever."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from rung.jobs.job import Job, advance
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.jobs.spec import stored
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec_text import SpecText, shown_of

SPECS: list[dict[str, Any]] = [
    {"name": "a", "run": "x"},
    {"name": "b", "run": "x", "priority": -7, "success": {"metric": "loss", "below": 0.5}},
    {"name": "c", "run": "x {lr}", "knobs": {"lr": 1e-3, "clip": 1.0, "precision": "bf16", "batch": 8}},
    {"name": "d", "run": "x", "knobs": {"mode": "zero-edit", "fp32_modules": ["head.norm", "loss"]}},
    {"name": "e", "run": "x", "knobs": {"mode": "zero-edit", "constants": "clamp", "growth_interval": 50}},
]


def job_of(given: Any, refused: Any = "") -> Job:
    return Job("a-1", given, JobState.RUNNING, "why", 1.0, 2.0, Knobs(), refused=refused)


@pytest.mark.parametrize("fields", SPECS, ids=lambda fields: fields["name"])
def test_a_job_with_the_text_of_a_spec_is_the_job_with_that_spec(fields: dict[str, Any]) -> None:
    spec = JobSpec.model_validate(fields)
    text = SpecText(spec.model_dump_json())
    from_text, plain = job_of(text, text), job_of(spec)
    assert from_text.shown == plain.shown == shown_of(spec)
    assert (from_text.spec, from_text.refused) == (spec, "")
    assert from_text == plain and hash(from_text.id) == hash(plain.id)
    assert replace(from_text, spec=JobSpec(name="z", run=("y",))).spec.name == "z"
    assert replace(from_text, refused="no").refused == "no"
    assert advance(from_text, JobState.STOPPING, reason="r", at=3.0).spec == spec


def test_what_lists_show_is_read_without_parsing_and_the_spec_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    read = stored.read_stored
    monkeypatch.setattr(stored, "read_stored", lambda text: parsed.append(text) or read(text))
    text = SpecText(JobSpec.model_validate(SPECS[2]).model_dump_json())
    job = job_of(text, text)
    assert (job.shown.name, job.shown.priority, job.shown.knobs.batch, parsed) == ("c", 0, 8, [])
    assert job.spec.name == "c" and not job.refused and job.spec.knobs.lr == 1e-3
    assert len(parsed) == 1


@pytest.mark.parametrize(
    "changes",
    [{"name": ""}, {"name": 7}, {"priority": True}, {"knobs": "x"}, {"knobs": {"precision": "fp8"}}, {"success": [1]}],
    ids=json.dumps,
)
def test_of_a_text_that_rung_would_not_write_the_rules_decide_what_is_shown(changes: dict[str, Any]) -> None:
    data = {**json.loads(JobSpec.model_validate(SPECS[0]).model_dump_json()), **changes}
    text = SpecText(json.dumps(data))
    assert text.refused
    assert text.shown == shown_of(text.spec)


def test_a_text_of_an_older_rung_without_some_fields_shows_their_defaults() -> None:
    assert SpecText('{"name": "a", "run": ["x"]}').shown == shown_of(JobSpec(name="a", run=("x",)))


@pytest.mark.parametrize("text", ["", "[1]", "null", "{", '{"a":' * 3000])
def test_a_text_that_is_no_json_object_is_refused_when_it_is_read(text: str) -> None:
    with pytest.raises((ValueError, RecursionError)):
        SpecText(text)


def test_a_spec_that_is_given_anew_takes_the_place_of_the_parsed_one() -> None:
    text = SpecText(JobSpec.model_validate(SPECS[0]).model_dump_json())
    job, other = job_of(text, text), JobSpec.model_validate(SPECS[1])
    assert job.spec is job.spec and (job.spec.name, job.refused) == ("a", "")
    object.__setattr__(job, "spec", other)
    assert job.spec is other
