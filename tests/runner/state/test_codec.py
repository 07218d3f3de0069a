"""Tests that the kept text of an attempt is always what the store would write of it anew."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rung.jobs.job import Attempt, Verdict
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs
from rung.runner.state import codec
from rung.runner.state.codec import PROGRESS, AttemptTexts, attempt_to_json

FIRST = Attempt("a-1", 1, "here", Knobs(lr=0.1), None, "as submitted", planned_step=1)
GPU = Gpu("NVIDIA A100", (8, 0), 0, "GPU-0", 80 << 30)
# What may happen to an attempt: its progress, its faults, and another attempt of the job.
CHANGES: list[dict[str, Any]] = [
    *({"furthest_step": step, "loss": 2.0 - step / 10, "latest": {"lr": 0.1 * step}} for step in range(4)),
    {"loss": math.nan, "metrics": {"val_loss": math.inf}},
    {"planned_step": True},
    {"planned_step": 1.0},
    {"started_at": 5.0, "progress_at": 6.0},
    {"number": 2, "asked": Knobs(lr=0.01), "because": 'with "quotes", {braces} and\nlines'},
    {"gpus": (GPU,), "verdict": Verdict.SURVIVED, "links": ("https://x/y",)},
    {"fault": Fault(FaultKind.NAN_LOSS, "loss nan", step=7)},
    {"longest_gap": 3.5, "effective": {"lr": 0.1}, "saved": {"a.pt": 5}},
]


@given(st.lists(st.sampled_from(CHANGES), max_size=12), st.lists(st.sampled_from(["a-1", "b-2"]), min_size=12))
def test_the_text_is_the_same_as_without_what_is_kept(changes: Sequence[dict[str, Any]], jobs: Sequence[str]) -> None:
    texts, known = AttemptTexts(), {job_id: replace(FIRST, job_id=job_id) for job_id in jobs}
    for job_id, change in zip(jobs, changes, strict=False):
        attempt = known[job_id] = replace(known[job_id], **change)
        assert texts.of(attempt) == attempt_to_json(attempt)


def test_of_new_progress_only_the_progress_becomes_json_again(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, made = AttemptTexts(), list[Sequence[str]]()
    to_json = codec.fields_to_json
    monkeypatch.setattr(codec, "fields_to_json", lambda attempt, names: made.append(names) or to_json(attempt, names))
    for step in range(3):
        attempt = replace(FIRST, furthest_step=step, loss=1.0)
        assert json.loads(texts.of(attempt))["furthest_step"] == step
    assert [names for names in made if names != PROGRESS] == [made[1], made[2]], "the others once"
    assert sorted(name for names in made[:3] for name in names) == sorted(each.name for each in fields(Attempt))


def test_the_text_of_a_job_that_is_no_longer_active_is_forgotten() -> None:
    texts = AttemptTexts()
    for job_id in ("a-1", "b-2"):
        texts.of(replace(FIRST, job_id=job_id))
    texts.keep_only({"b-2"})
    assert list(texts._before.known) == list(texts._after.known) == ["b-2"]
