"""Tests that no name which a host reports leads out of a folder, here or there."""

from __future__ import annotations

from pathlib import PurePosixPath
from stat import S_IFDIR, S_IFIFO, S_IFREG

import pytest
from hypothesis import strategies as st

from rung.jobs.model.errors import EngineError
from rung.runner.engines.on_host.job_files import MOST_SIZE, parse_checksums, parse_listing
from rung.runner.seams.remote import file_name
from tests.support.random_inputs import COUNTS, run

PIECES = [
    "..",
    ".",
    "/",
    "a",
    "step_5.pt",
    "\0",
    "\n",
    " ",
    "./",
    "81a4",
    "41ed",
    "5",
    "-1",
    "9" * 30,
    "x" * 300,
    "\u202e",
    "\udcff",
]
odd_texts = st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text(max_size=80)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc", "../../.ssh/authorized_keys", "a\0b", "x" * 256])
def test_a_name_that_no_file_in_a_folder_has_is_refused(name: str) -> None:
    with pytest.raises(EngineError, match="no name of a file"):
        file_name(name)


@pytest.mark.parametrize("name", ["step_5.pt", "-rf", "...", " ", "a\nb", "x" * 255, "\u00fc"])
def test_any_other_name_is_taken(name: str) -> None:
    assert file_name(name) == name


def line(mode: int, size: object, at: object, path: str) -> str:
    return f"{mode:x} {size} {at} {path}\n"


def test_a_listing_becomes_entries_and_leaves_out_what_is_no_checkpoint() -> None:
    text = line(S_IFREG | 0o644, 7, 100, "./step_5.pt") + line(S_IFDIR | 0o755, 4096, 100, "./step_6")
    text += line(S_IFREG | 0o644, 3, 200, "./step_6/a/b") + line(S_IFIFO | 0o644, 0, 100, "./step_7.pt")
    text += line(S_IFREG | 0o644, 7, 100, "./.step_8.pt") + line(S_IFREG | 0o644, 7, 100, "./other")
    file, folder = parse_listing(text, "step_*")
    assert (file.name, file.size, file.written_at, file.is_folder) == ("step_5.pt", 7, 100.0, False)
    assert (folder.name, folder.size, folder.written_at, folder.is_folder) == ("step_6", 3, 200.0, True)


LISTINGS = [
    ["81a4 5 100 ./../../.ssh/authorized_keys"],
    ["81a4 5 100 .//etc/passwd"],
    ["41ed 5 100 ./step_5", "81a4 5 100 ./step_5/../../x"],
]


@COUNTS
def test_no_listing_yields_a_path_that_leads_elsewhere(count: int) -> None:
    def check(lines: list[str]) -> None:
        for entry in parse_listing("\n".join(lines), "*"):
            assert PurePosixPath(entry.name).name == entry.name and entry.name not in ("", ".", "..")
            assert 0 <= entry.size <= MOST_SIZE * len(lines)

    for lines in LISTINGS:
        check(lines)
    run(count, check, st.lists(odd_texts, max_size=8))


@COUNTS
def test_any_output_of_the_checksums_is_read_without_a_crash(count: int) -> None:
    def check(text: str) -> None:
        assert all(isinstance(path, str) for path in parse_checksums(text))

    run(count, check, odd_texts)
