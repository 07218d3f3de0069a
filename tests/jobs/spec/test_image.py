"""Tests the names of images: what is pinned, what is a tag, and how a lock file pins it."""

from __future__ import annotations

import pytest

from rung.jobs.spec.image import for_gpu, is_pinned, is_tag, names_in, repository, with_pins

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "image",
    [
        f"busybox@{DIGEST}",
        f"registry.fleet:5000/rung/train@{DIGEST}",
        f"registry.fleet:5000/rung/train:all@{DIGEST}",
        f"Registry.Example/my-team/some_name@{DIGEST}",
        DIGEST,
    ],
)
def test_a_digest_or_an_id_is_pinned(image: str) -> None:
    assert is_pinned(image)
    assert not is_tag(image)


@pytest.mark.parametrize(
    "image",
    [
        "busybox",
        "busybox:latest",
        "busybox@sha256:0123",
        f"busybox@{DIGEST}x",
        f"busybox@{DIGEST.upper()}",
        f"-v@{DIGEST}",
        f"https://registry/x@{DIGEST}",
        f"a b@{DIGEST}",
        f"a\n@{DIGEST}",
        f"$(id)@{DIGEST}",
        f"../x@{DIGEST}",
        f"a?b=c@{DIGEST}",
        f"{'a/' * 300}b@{DIGEST}",
        "",
    ],
)
def test_any_other_image_name_is_not_pinned(image: str) -> None:
    assert not is_pinned(image)


@pytest.mark.parametrize("image", ["busybox", "busybox:1.36", "registry.fleet:5000/rung/tiny:all"])
def test_a_tag_can_be_pinned(image: str) -> None:
    assert is_tag(image)


@pytest.mark.parametrize("image", ["-x", "a;b", "a b", "a:", ":a", "a/../b", "a\n", "A"])
def test_a_name_that_no_registry_accepts_is_not_a_tag(image: str) -> None:
    assert not is_tag(image)


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("busybox", "busybox"),
        ("busybox:1", "busybox"),
        ("r:5000/busybox", "r:5000/busybox"),
        ("r:5000/busybox:1", "r:5000/busybox"),
        (f"r:5000/busybox:1@{DIGEST}", "r:5000/busybox"),
    ],
)
def test_the_repository_is_the_name_without_tag_and_digest(image: str, name: str) -> None:
    assert repository(image) == name


def test_a_map_of_images_finds_the_gpu_type_in_upper_and_lower_case() -> None:
    images = {"p100": "a", "Titan RTX": "b", "cpu": "c"}
    assert [for_gpu(images, kind) for kind in ("P100", "TITANRTX", "cpu", "A100")] == ["a", "b", "c", None]
    assert for_gpu("a", "A100") == "a"


def test_a_lock_file_pins_the_tags_it_contains() -> None:
    pins = {"a:1": "a@x"}
    assert with_pins("a:1", pins) == "a@x"
    assert with_pins({"p100": "a:1", "a100": "b:1"}, pins) == {"p100": "a@x", "a100": "b:1"}
    assert with_pins(["a:1"], pins) == ["a:1"]
    assert names_in({"p100": "a:1", "a100": 5}) == ["a:1"]
    assert names_in("a:1") == ["a:1"]
