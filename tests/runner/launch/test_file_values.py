"""Tests that knobs which only a config file states are known from the submit on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rung.jobs.model.errors import ConfigFileError
from rung.jobs.model.knobs import Precision
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.launch.file_values import with_file_values
from rung.runner.launch.submit import submit
from rung.runner.state.store import Store

CONFIG = "lr: 1e-3\nmax_norm: 0\ngrowth: 500\nbatch: 64\namp: yes\nword: 32-true\nfp16: false\nbf16: true\nother: 0.5\n"


def knobs(folder: Path, keys: dict[str, Any], **more: Any) -> dict[str, Any]:
    (folder / "c.yaml").write_text(CONFIG)
    spec = JobSpec.model_validate({"name": "a", "run": "x", "knobs": {"files": {"c.yaml": keys}, **more}})
    return with_file_values(spec, folder).knobs.knobs().to_dict()


def test_knobs_that_the_job_file_leaves_out_come_from_the_config_file(tmp_path: Path) -> None:
    keys = {"lr": "lr", "clip": "max_norm", "growth_interval": "growth", "batch": "batch"}
    found = knobs(tmp_path, keys, batch=16)
    assert found["lr"] == 0.001 and found["clip"] is None
    assert found["growth_interval"] == 500 and found["batch"] == 16
    assert knobs(tmp_path, {"clip": "other"})["clip"] == 0.5
    # A knob that is not in the file keeps its default.
    assert knobs(tmp_path, {"lr": "lr"})["growth_interval"] == 2000


@pytest.mark.parametrize(
    ("keys", "more", "precision"),
    [
        ({"precision": "amp"}, {"precision_text": {"amp_fp16": True, "fp32": False}}, Precision.AMP_FP16),
        ({"precision": "word"}, {"framework": "lightning"}, Precision.FP32),
        ({"precision": "word"}, {"framework": "lightning", "precision": "bf16"}, Precision.BF16),
        ({"fp16": "fp16", "bf16": "bf16"}, {}, Precision.BF16),
        ({"fp16": "fp16"}, {}, Precision.FP32),
        ({"lr": "lr"}, {}, Precision.AMP_FP16),
    ],
)
def test_a_precision_is_read_from_its_name_or_its_switch(tmp_path: Path, keys: Any, more: Any, precision: Any) -> None:
    assert knobs(tmp_path, keys, **more)["precision"] == precision


@pytest.mark.parametrize(
    ("keys", "more", "message"),
    [
        ({"lr": "word"}, {}, "c.yaml: word: '32-true' is no lr"),
        ({"lr": ["lr", "other"]}, {}, "state knobs.lr"),
        ({"precision": "word"}, {}, "stands for no precision; say which in knobs.precision_text"),
        ({"lr": "nowhere"}, {"lr": 1.0}, "nowhere: there is no such key"),
    ],
)
def test_a_value_that_cannot_be_read_is_reported(tmp_path: Path, keys: Any, more: Any, message: str) -> None:
    with pytest.raises(ConfigFileError) as caught:
        knobs(tmp_path, keys, **more)
    assert message in str(caught.value)


def test_several_keys_may_differ_where_the_job_file_states_the_value(tmp_path: Path) -> None:
    assert knobs(tmp_path, {"lr": ["lr", "other"]}, lr=0.2)["lr"] == 0.2


def test_the_store_keeps_what_was_read_at_the_submit(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG)
    spec = JobSpec.model_validate({"name": "a", "run": "x", "knobs": {"files": {"c.yaml": {"lr": "lr"}}}})
    store = Store(tmp_path / "s.db")
    job = submit(store, spec, tmp_path, at=0.0)
    (tmp_path / "c.yaml").write_text(CONFIG.replace("1e-3", "7"))
    again = store.job(job.id)
    assert again.knobs.lr == again.spec.knobs.lr == 0.001
    store.close()
