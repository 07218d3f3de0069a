"""Tests images.lock: read beside the job file, with bounds and checks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rung.jobs.model.errors import SpecError
from rung.jobs.spec.load import images_in, load_spec

PINNED = "r/a@sha256:" + "1" * 64


def job(folder: Path, image: object) -> Path:
    path = folder / "job.yaml"
    path.write_text(json.dumps({"name": "a", "run": "true", "image": image}))
    return path


def test_a_tag_is_replaced_by_its_digest_in_the_lock_file_beside_the_job_file(tmp_path: Path) -> None:
    path = job(tmp_path, {"p100": "r/a:1", "a100": PINNED})
    with pytest.raises(SpecError, match="rung image lock"):
        load_spec(path)
    (tmp_path / "images.lock").write_text(f'# words\n"r/a:1": "{PINNED}"\n')
    assert load_spec(path).image == {"p100": PINNED, "a100": PINNED}
    assert images_in(path.read_bytes()) == {"p100": "r/a:1", "a100": PINNED}


def test_a_tag_that_is_not_in_the_lock_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "images.lock").write_text(f'"r/a:1": "{PINNED}"\n')
    with pytest.raises(SpecError, match="pin the image by digest"):
        load_spec(job(tmp_path, "r/a:2"))


@pytest.mark.parametrize("text", ["r/a:1: r/a:2\n", "r/a:1: 5\n", "[]\n", "r/a:1: [\n", "\0", "a: {b: c}\n"])
def test_an_invalid_lock_file_is_refused_with_its_name_and_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "images.lock").write_text(text)
    with pytest.raises(SpecError, match=r"images\.lock:\d+: "):
        load_spec(job(tmp_path, "r/a:1"))
