"""Tests files.sh, which works on the files of a job in a throw-away container, with the tools of two kinds of host."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "jobs" / "inside" / "files.sh"
TOOLS = ("sh", "find", "stat", "mv", "cp", "mkdir", "rm", "readlink", "sha256sum", "ls", "chmod", "du")

Run = Callable[..., str]


@pytest.fixture(params=["coreutils", "busybox"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a function that runs the script with one set of tools."""
    tools = tmp_path_factory.mktemp("tools")
    for name in TOOLS:
        program = shutil.which("busybox" if request.param == "busybox" else name)
        assert program, f"{name} is missing: run make system"
        (tools / name).symlink_to(program)

    def script(*arguments: object, works: bool = True, first: Path = Path("/nowhere")) -> str:
        command = [str(tools / "sh"), str(SCRIPT), *map(str, arguments)]
        env = {"PATH": f"{first}:{tools}"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) is works, done.stderr
        return done.stdout

    return script


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a checkpoint folder with all kinds of entries."""
    made = tmp_path / "job"
    (made / "step_6" / "deep").mkdir(parents=True)
    (made / "step_5.pt").write_text("five")
    (made / "step_6" / "deep" / "-x $(q)").write_text("six")
    (made / "step_6" / "link").symlink_to("/etc/passwd")
    os.mkfifo(made / "step_6" / "pipe")
    (made / "step_7.pt").symlink_to("step_5.pt")
    (made / "step_8.pt").symlink_to("/nowhere")
    (made / "step_9\n81a4 1 1 .pt").write_text("forged")
    return made


def test_a_listing_has_files_folders_and_what_links_lead_to(run: Run, folder: Path) -> None:
    *listed, last = run("list", folder, "step_*").splitlines()
    assert last == "complete"
    found = [line.split(" ", 3) for line in listed]
    assert {path: (mode[0], int(size)) for mode, size, _, path in found if not path.endswith("step_6")} == {
        "./step_5.pt": ("8", 4),
        "./step_7.pt": ("8", 4),
        "./step_6/deep/-x $(q)": ("8", 3),
    }
    assert run("list", folder / "none", "*") == "complete\n"


# busybox has its own stat inside, which no other replaces.
@pytest.mark.parametrize("run", ["coreutils"], indirect=True)
@pytest.mark.parametrize("trouble", ["Input/output error", "Stale file handle", "not found"])
def test_trouble_of_the_disk_is_an_error_and_not_a_folder_with_less_in_it(
    run: Run, folder: Path, tmp_path: Path, trouble: str
) -> None:
    """An answer with too little in it would make a job begin from scratch."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "stat").write_text(f"#!/bin/sh\necho 'stat: ./step_5.pt: {trouble}' >&2\nexit 1\n")
    (tmp_path / "bin" / "stat").chmod(0o755)
    assert "complete" not in run("list", folder, "*", works=False, first=tmp_path / "bin")


def test_files_that_have_just_gone_or_are_closed_are_left_out(run: Run, folder: Path) -> None:
    (folder / "loop.pt").symlink_to("loop.pt")
    assert run("list", folder, "*").endswith("complete\n")


def test_a_folder_that_the_job_has_closed_leaves_nothing_behind(run: Run, folder: Path, tmp_path: Path) -> None:
    (folder / "step_6" / "link").unlink()
    (folder / "step_6" / "deep" / "link").symlink_to("/etc/passwd")
    (folder / "step_6" / "deep").chmod(0o500)
    run("offer", folder, "step_6", tmp_path / "out" / "a", 100)
    assert not (tmp_path / "out" / "a" / "step_6" / "deep" / "link").is_symlink()
    assert (tmp_path / "out" / "a" / "step_6" / "deep").stat().st_mode & 0o700 == 0o700


def test_a_folder_that_is_not_a_folder_is_an_error_and_not_empty(run: Run, folder: Path) -> None:
    run("list", folder / "step_5.pt", "*", works=False)


def test_entries_are_moved_with_links_as_they_are(run: Run, folder: Path, tmp_path: Path) -> None:
    aside = tmp_path / "aside" / "attempt-2"
    for _ in range(2):
        run("move", folder, aside, "step_5.pt", "step_6", "step_8.pt", "gone")
        assert sorted(path.name for path in aside.iterdir()) == ["step_5.pt", "step_6", "step_8.pt"]
    assert (aside / "step_8.pt").is_symlink() and not (folder / "step_6").exists()


def test_an_offer_has_only_plain_files_and_takes_no_room(run: Run, folder: Path, tmp_path: Path) -> None:
    run("offer", folder, "step_6", tmp_path / "out" / "a", 100)
    (offered,) = (path for path in (tmp_path / "out" / "a").rglob("*") if not path.is_dir())
    assert offered.relative_to(tmp_path / "out") == Path("a/step_6/deep/-x $(q)")
    assert offered.stat().st_ino == (folder / "step_6" / "deep" / "-x $(q)").stat().st_ino
    run("offer", folder, "step_7.pt", tmp_path / "out" / "b", 100)
    assert not (tmp_path / "out" / "b" / "step_7.pt").is_symlink()
    assert (tmp_path / "out" / "b" / "step_7.pt").read_text() == "five"


def test_a_copy_is_a_file_of_its_own_without_links_and_is_made_again(run: Run, folder: Path, tmp_path: Path) -> None:
    there = tmp_path / "stays" / "2" / "checkpoints"
    for _ in range(2):
        run("copy", folder, "step_6", there)
        (copied,) = (path for path in there.rglob("*") if not path.is_dir())
        assert copied.relative_to(there) == Path("step_6/deep/-x $(q)")
        original = folder / "step_6" / "deep" / "-x $(q)"
        assert copied.stat().st_ino != original.stat().st_ino
        assert int(copied.stat().st_mtime) == int(original.stat().st_mtime)
    run("copy", folder, "step_7.pt", there)
    assert not (there / "step_7.pt").is_symlink() and (there / "step_7.pt").read_text() == "five"
    run("copy", folder, "gone", there, works=False)
    (folder / "last.pt").write_text("poisoned")
    run("copy", folder, "step_7.pt", folder, "last.pt")
    assert (folder / "last.pt").read_text() == "five" and (folder / "step_7.pt").exists()


def test_what_is_gone_or_no_file_is_not_offered(run: Run, folder: Path, tmp_path: Path) -> None:
    os.mkfifo(folder / "step_3.pt")
    for name in ("step_3.pt", "step_8.pt", "gone"):
        run("offer", folder, name, tmp_path / "out", 100, works=False)
    assert not (tmp_path / "out").exists()


def test_a_copy_for_an_offer_is_bounded(run: Run, folder: Path, tmp_path: Path) -> None:
    """A volume is another filesystem, where the entry has to be copied."""
    memory = Path("/dev/shm") / f"rung-test-{os.getpid()}-{tmp_path.name}"
    (folder / "step_3.pt").write_bytes(b"x" * 100_000)
    try:
        run("offer", folder, "step_5.pt", memory, 4)
        assert (memory / "step_5.pt").read_text() == "five"
        run("offer", folder, "step_3.pt", memory, 1000, works=False)
        assert not (memory / "step_3.pt").exists() or (memory / "step_3.pt").stat().st_size <= 1536
    finally:
        shutil.rmtree(memory, ignore_errors=True)


def test_a_delivered_checkpoint_takes_the_place_of_an_old_one_which_is_kept(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    incoming = tmp_path / "incoming"
    (incoming / "step_6").mkdir(parents=True)
    (incoming / "step_6" / "new").write_text("new")
    run("place", incoming, folder, "step_6", tmp_path / "old")
    assert [path.name for path in (folder / "step_6").iterdir()] == ["new"]
    assert (tmp_path / "old" / "step_6" / "deep").is_dir()
    assert run("sums", folder, "step_6").split() == [
        "11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437",
        "./step_6/new",
    ]


def test_a_folder_is_removed_with_all_in_it_and_nothing_that_links_lead_to(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    (kept / "inner").mkdir(parents=True)
    (folder / "to-a-folder").symlink_to(kept)
    (folder / "closed" / "deeper").mkdir(parents=True)
    (folder / "closed" / "deeper").chmod(0)
    (folder / "closed").chmod(0)
    for _ in range(2):
        run("remove", folder)
        assert not folder.exists() and (kept / "inner").is_dir()


def test_several_paths_are_removed_at_once_and_no_link_is_followed(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (folder / "step_6" / "precious").symlink_to(tmp_path)
    run("remove", folder / "step_6", folder / "step_7.pt", folder / "nothing")
    assert sorted(path.name for path in folder.iterdir() if "\n" not in path.name) == ["step_5.pt", "step_8.pt"]
    assert (tmp_path / "precious").read_text() == "precious"


def test_sizes_are_those_of_du_and_a_file_with_two_names_is_there_twice_and_counts_once(run: Run, folder: Path) -> None:
    (folder / "large").write_bytes(os.urandom(100_000))
    os.link(folder / "large", folder / "same")
    paths = [folder / "large", folder / "same", folder / "step_6", folder / "step_8.pt", folder / "nothing"]
    *lines, last = run("sizes", *paths).splitlines()
    assert last == "complete"
    sizes = {path: int(size) for size, path in (line.split("\t") for line in lines)}
    assert set(sizes) == set(map(str, paths[:-1]))
    du = subprocess.run(["du", "-skc", *paths[:-1]], capture_output=True, text=True, check=True).stdout
    assert sum(sizes.values()) == int(du.splitlines()[-1].split()[0])


def test_only_plain_files_whose_path_may_match_are_found(run: Run, folder: Path, tmp_path: Path) -> None:
    def found(pattern: str) -> set[str]:
        *lines, last = run("files", folder, pattern).splitlines()
        assert last == "complete"
        return {line.split(" ", 3)[3] for line in lines}

    assert found("step_5*") == {"./step_5.pt"}
    assert found("step_6") == found("step_6/deep") == {"./step_6/deep/-x $(q)"}
    assert found("*") == {"./step_5.pt", "./step_6/deep/-x $(q)"}
    assert run("files", folder / "nothing", "*") == "complete\n"
    (tmp_path / "link").symlink_to(folder)
    run("files", tmp_path / "link", "*", works=False)


def test_many_files_are_gathered_with_their_folders_and_take_no_room(run: Run, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out" / "x"
    run("gather", folder, out, 7, "step_5.pt", "step_6/deep/-x $(q)")
    assert {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()} == {
        "step_5.pt", "step_6/deep/-x $(q)",
    }  # fmt: skip
    assert (out / "step_5.pt").samefile(folder / "step_5.pt")
    for name in ("step_7.pt", "step_6/link", "step_6/pipe", "step_6", "gone"):
        run("gather", folder, out, 7, name, works=False)
