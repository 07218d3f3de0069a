"""Tests volumes: what may be mounted where, and what would give a container control of the host."""

from __future__ import annotations

import pytest

from rung.jobs.spec.volume import Volume, host_path, parse_volume


@pytest.mark.parametrize(
    ("text", "volume"),
    [
        ("/data/x:/ckpt", Volume("/data/x", "/ckpt")),
        ("/data/x:/ckpt:ro", Volume("/data/x", "/ckpt", True)),
        ("/data/x:/ckpt:rw", Volume("/data/x", "/ckpt")),
        ("//data//x/:/ckpt/./a/", Volume("/data/x", "/ckpt/a")),
        ("/home/a b/$(x);'\":/data", Volume("/home/a b/$(x);'\"", "/data")),
        ("/var/data:/data", Volume("/var/data", "/data")),
    ],
)
def test_a_volume_maps_a_folder_of_the_host_to_a_path_in_the_container(text: str, volume: Volume) -> None:
    assert parse_volume(text) == volume
    assert parse_volume(volume.text) == volume


@pytest.mark.parametrize(
    "text",
    [
        *("/data", "data:/data", "/data:data", ":/data", "/data:", "/data:/data:rx", "/a:/b:ro:x", "/a/../b:/data"),
        *("/a:/b/../c", "~/data:/data"),
        *("/data:/", "/data:/rung", "/data:/rung/inside", "/data:/etc/passwd", "/data:/usr/bin", "/data:/tmp"),
    ],
)
def test_volumes_that_cannot_be_read_or_hide_the_container_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_volume(text)


def test_a_path_of_the_container_is_found_on_the_host_through_the_nearest_volume() -> None:
    outer, inner = Volume("/data", "/mnt"), Volume("/fast", "/mnt/ckpt")
    assert host_path("/mnt/ckpt/a", (outer, inner)) == ("/fast/a", inner)
    assert host_path("/mnt/ckptx", (outer, inner)) == ("/data/ckptx", outer)
    assert host_path("/mnt", (outer,)) == ("/data", outer)
    assert host_path("/other", (outer, inner)) is None
    assert host_path("relative", (outer,)) is None
