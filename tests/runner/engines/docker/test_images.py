"""Tests the parsing of an engine's answers about images. The fleet tests cover the other parts."""

from __future__ import annotations

import pytest

from rung.jobs.model.errors import EngineError
from rung.runner.engines.docker.followed_attempt import span
from rung.runner.engines.docker.images import Progress, archive_id, labelled_archs


def test_the_progress_of_a_pull_is_reported_about_once_a_second() -> None:
    reported: list[str] = []
    clock = iter([10.0, 10.0, 10.2, 11.5, 11.5, 12.0])
    progress = Progress("turing is pulling x", reported.append, lambda: next(clock))
    for layer, current in (("a", 1 << 20), ("b", 1 << 20), ("a", 3 << 20)):
        detail = {"current": current, "total": 4 << 20}
        progress.update({"status": "Downloading", "id": layer, "progressDetail": detail})
    progress.update({"status": "Extracting", "id": "a", "progressDetail": {"current": 1, "total": 2}})
    progress.update({"status": "Downloading", "progressDetail": "rubbish"})
    assert reported == [
        "turing is pulling x",
        "turing is pulling x: 1.0 MiB of 4.0 MiB",
        "turing is pulling x: 4.0 MiB of 8.0 MiB",
    ]


def test_the_label_gives_the_list_of_kernels_and_an_empty_label_means_none() -> None:
    assert labelled_archs({"Config": {"Labels": {"rung.cuda.archs": "sm_60 compute_90; rm -rf"}}}) == (
        "sm_60",
        "compute_90",
    )
    assert labelled_archs({"Config": {"Labels": {"rung.cuda.archs": ""}}}) == ()
    assert labelled_archs({"Config": {"Labels": None}}) is None
    assert labelled_archs({}) is None


def test_the_id_of_a_saved_image_is_that_of_its_config() -> None:
    for config in ("a" * 64 + ".json", "blobs/sha256/" + "a" * 64):
        assert archive_id(f'[{{"Config": "{config}"}}]'.encode()) == "sha256:" + "a" * 64
    for wrong in (b"", b"[]", b"{}", b"[{}, {}]", b'[{"Config": "x"}]'):
        with pytest.raises(EngineError, match="does not hold exactly one image"):
            archive_id(wrong)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "0 s"), (12, "10 s"), (59, "30 s"), (61, "1 min"), (7000, "1 h"), (10**6, "24 h")]
)
def test_how_long_a_host_is_unreachable_is_shown_in_steps(seconds: float, words: str) -> None:
    assert span(seconds) == words
