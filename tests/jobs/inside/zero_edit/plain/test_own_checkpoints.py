"""Tests checkpoints that Rung itself makes of a script that never saves: restored, the run is the same bit for bit."""

from __future__ import annotations

import re
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rung_inside.verify import examine
from rung_inside.zero_edit.own_checkpoints import time_up

from rung.jobs.model.engine import SAVE_SIGNAL, SAVED_EXIT

SCRIPT = str(Path(__file__).parent / "never_saves.py")
# 100 samples in batches of 8.
IN_A_PASS = 13


class Runs:
    """Runs the script in processes of their own, with the variables that the controller sets."""

    def __init__(self, start: Callable[..., Any], folder: Path) -> None:
        self._start, self.folder = start, folder / "checkpoints"

    def plain(self, *options: str) -> str:
        return self._digest(self._start(sys.executable, SCRIPT, *options, zero=False))

    def run(self, *options: str, every: int, knobs: Any = None, resume: int | None = None) -> Any:
        variables = {
            "RUNG_CHECKPOINT_DIR": str(self.folder),
            "RUNG_CHECKPOINT_PATTERN": "rung-step-*.pt",
            "RUNG_CHECKPOINT_EVERY": str(every),
            "RUNG_CHECKPOINT_BY": "rung",
        }
        if resume is not None:
            variables["RUNG_CHECKPOINT"] = str(self.folder / f"rung-step-{resume}.pt")
            variables["RUNG_CHECKPOINT_STEP"] = str(resume)
        variables["RUNG_SAVE_SIGNAL"] = str(SAVE_SIGNAL)
        return self._start(sys.executable, SCRIPT, *options, knobs=knobs, **variables)

    def killed(self, *options: str, every: int) -> None:
        assert self.run(*options, every=every).returncode == -signal.SIGKILL

    @property
    def files(self) -> list[str]:
        return sorted(each.name for each in self.folder.iterdir())

    @staticmethod
    def _digest(done: Any) -> str:
        assert done.returncode == 0, done.stderr
        return re.search(r"^digest (\w+)", done.stdout, re.MULTILINE)[1]

    def digest(self, done: Any) -> str:
        assert records(done, "note") == []
        return self._digest(done)


@pytest.fixture
def runs(start: Callable[..., Any], tmp_path: Path) -> Runs:
    return Runs(start, tmp_path)


def records(done: Any, kind: str) -> list[dict[str, str]]:
    lines = [line for line in done.stdout.splitlines() if line.startswith(f"rung| {kind} ")]
    return [dict(pair.split("=", 1) for pair in shlex.split(line)[2:]) for line in lines]


def steps(done: Any) -> list[int]:
    return [int(record["step"]) for record in records(done, "step")]


@pytest.fixture
def uninterrupted(runs: Runs, once: Callable[..., Any]) -> str:
    # It is the same with and without workers: nothing is drawn in them.
    return once("own_checkpoints", runs.plain)


@pytest.mark.long
@pytest.mark.sample
def test_a_healthy_run_has_the_same_bits_with_and_without_checkpoints(runs: Runs, uninterrupted: str) -> None:
    done = runs.run(every=5)
    assert runs.digest(done) == uninterrupted
    saved = [int(record["step"]) for record in records(done, "saved")]
    assert saved == list(range(5, 4 * IN_A_PASS, 5))
    # A few are kept: the newest two, and older ones the farther apart the older they are.
    assert len(runs.files) == 5 and {"rung-step-50.pt", "rung-step-45.pt"} < set(runs.files)


@pytest.mark.parametrize(
    ("step", "workers"),
    [
        pytest.param(5, "0", id="in its first pass"),
        pytest.param(IN_A_PASS, "0", id="at the end of a pass"),
        pytest.param(2 * IN_A_PASS + 4, "0", id="in its third pass"),
        pytest.param(2 * IN_A_PASS + 4, "2", id="with workers", marks=pytest.mark.long),
    ],
)
def test_a_killed_run_goes_on_bit_for_bit_in_a_new_process(
    runs: Runs, uninterrupted: str, step: int, workers: str
) -> None:
    runs.killed("--workers", workers, "--kill-after", str(step + 3), every=step)
    assert runs.files == [f"rung-step-{step}.pt"]
    done = runs.run("--workers", workers, "--seed", "7", every=1000, resume=step)
    assert runs.digest(done) == uninterrupted
    assert records(done, "resumed") == [{"step": str(step), "file": f"rung-step-{step}.pt"}]
    assert (steps(done)[0], steps(done)[-1]) == (step + 1, 4 * IN_A_PASS)
    assert records(done, "not_whole") == []


@pytest.mark.long
@pytest.mark.sample
def test_a_run_that_is_restored_twice_with_a_loader_for_every_pass_is_still_the_same(runs: Runs) -> None:
    runs.killed("--fresh", "--kill-after", "18", every=16)
    done = runs.run("--fresh", "--seed", "7", "--kill-after", "18", every=30, resume=16)
    assert (steps(done)[0], records(done, "saved")) == (17, [{"step": "30", "file": "rung-step-30.pt"}])
    loaders = torch.load(runs.folder / "rung-step-30.pt", weights_only=True)["data"]["loaders"]
    # The second one is for the validation.
    assert [each["trained"] for each in loaders] == [True, False, True, True]
    done = runs.run("--fresh", "--seed", "8", every=1000, resume=30)
    assert runs.digest(done) == runs.plain("--fresh")


@pytest.mark.long
@pytest.mark.sample
def test_gradients_of_what_lies_behind_the_checkpoint_are_in_no_update(runs: Runs) -> None:
    runs.killed("--accumulate", "2", "--kill-after", "10", every=9)
    done = runs.run("--accumulate", "2", "--seed", "7", every=1000, resume=9)
    assert runs.digest(done) == runs.plain("--accumulate", "2")


@pytest.mark.long
@pytest.mark.sample
def test_a_run_killed_while_it_saves_leaves_the_checkpoint_before_whole(runs: Runs, uninterrupted: str) -> None:
    # The file and its folder are synced: the third sync is in the second save.
    runs.killed("--kill-in-sync", "3", every=10)
    draft, whole = runs.files
    assert re.fullmatch(r"\.rung-step-20\.pt\.\d+\.tmp", draft) and whole == "rung-step-10.pt"
    assert runs.digest(runs.run("--seed", "7", every=1000, resume=10)) == uninterrupted


@pytest.mark.long
@pytest.mark.sample
def test_the_file_passes_the_check_of_checkpoints_and_loads_without_code(runs: Runs) -> None:
    runs.killed("--kill-after", "8", every=5)
    path = runs.folder / "rung-step-5.pt"
    found = examine.examine(str(path), full=True)
    assert (found["verdict"], found["step"]) == ("healthy", 5), found
    state = torch.load(path, weights_only=True)
    assert [each["trained"] for each in state["data"]["loaders"]] == [True]
    state["optimizer"][0]["parameters"][0][0, 0] = float("nan")
    torch.save(state, path)
    assert examine.examine(str(path), full=True)["verdict"] == "poisoned"


@pytest.mark.long
@pytest.mark.sample
def test_a_plain_loop_goes_on_with_the_weights_and_says_that_it_begins_again(runs: Runs) -> None:
    runs.killed("--loop", "range", "--kill-after", "8", every=5)
    done = runs.run("--loop", "range", every=5, resume=5)
    assert done.returncode == 0, done.stderr
    (record,) = records(done, "not_whole")
    assert record["why"].endswith("no DataLoader feeds this script, so its loop begins again at its first step")
    assert steps(done) == list(range(6, 18))
    assert [record["step"] for record in records(done, "saved")] == ["10", "15"]


@pytest.mark.long
@pytest.mark.sample
@pytest.mark.parametrize("options", [("--width", "16"), ("--workers", "0", "--batch", "4")], ids=["model", "data"])
def test_what_does_not_fit_is_said_and_nothing_is_restored_in_part(runs: Runs, options: tuple[str, ...]) -> None:
    runs.killed("--kill-after", "8", every=5)
    done = runs.run(*options, every=1000, resume=5)
    (record,) = records(done, "not_whole")
    if "--width" in options:
        assert record["why"] == (
            "rung-step-5.pt was not restored: 0.weight has the shape [16, 8], and [32, 8] in the checkpoint"
        )
        assert records(done, "resumed") == [{"step": "0", "file": "none"}]
        assert runs.digest(done) == runs.plain(*options)
    else:
        assert record["why"].endswith("its DataLoader has 25 batches of 4 now, and had 13 batches of 8")
        assert records(done, "resumed") == [{"step": "5", "file": "rung-step-5.pt"}]
        assert steps(done) == list(range(6, 6 + 4 * 25))


@pytest.mark.long
@pytest.mark.sample
def test_a_file_that_cannot_be_read_is_named_and_the_run_begins_from_scratch(runs: Runs, uninterrupted: str) -> None:
    runs.folder.mkdir()
    torch.save({"step": 5, "model": {}}, runs.folder / "rung-step-5.pt")
    done = runs.run(every=1000, resume=5)
    (record,) = records(done, "not_whole")
    assert "it is no checkpoint that this version of Rung has made" in record["why"]
    assert runs.digest(done) == uninterrupted


@pytest.mark.parametrize("precision", [pytest.param("fp32", marks=pytest.mark.long), "native_fp16"])
def test_a_rung_of_another_precision_goes_on_from_the_same_checkpoint(runs: Runs, precision: str) -> None:
    runs.killed("--kill-after", "32", every=30)
    done = runs.run(every=40, knobs={"precision": precision}, resume=30)
    assert records(done, "resumed") == [{"step": "30", "file": "rung-step-30.pt"}]
    assert records(done, "not_whole") == [] and runs.digest(done)
    assert steps(done) == list(range(31, 4 * IN_A_PASS + 1))
    values = torch.load(runs.folder / "rung-step-40.pt", weights_only=True)["optimizer"][0]["parameters"]
    assert {each.dtype for each in values} == {torch.float32}


def test_a_run_saves_and_ends_when_its_time_is_nearly_up_and_goes_on_bit_for_bit(
    runs: Runs, uninterrupted: str
) -> None:
    done = runs.run("--tell-after", "20", every=1000)
    # The signal comes when update 20 is over: the next one is the first to save after.
    assert done.returncode == SAVED_EXIT == time_up.EXIT_CODE, done.stderr
    assert (runs.files, steps(done)[-1]) == (["rung-step-21.pt"], 21)
    assert records(done, "saved") == [{"step": "21", "file": "rung-step-21.pt"}]
    (note,) = records(done, "note")
    assert note["text"] == "saved at step 21, because the time is nearly up: the run ends with exit code 85"
    found = examine.examine(str(runs.folder / "rung-step-21.pt"), full=True)
    assert (found["verdict"], found["step"]) == ("healthy", 21), found
    assert runs.digest(runs.run("--seed", "7", every=1000, resume=21)) == uninterrupted


@pytest.mark.long
@pytest.mark.sample
def test_a_plain_loop_saves_and_ends_too_and_one_that_cannot_be_saved_goes_on(runs: Runs) -> None:
    done = runs.run("--loop", "range", "--tell-after", "5", every=1000)
    assert (done.returncode, runs.files) == (SAVED_EXIT, ["rung-step-6.pt"])
    runs.folder.joinpath("rung-step-6.pt").unlink()
    runs.folder.rmdir()
    runs.folder.write_text("no folder")
    done = runs.run("--loop", "range", "--tell-after", "5", every=1000)
    assert (done.returncode, steps(done)[-1]) == (0, 12), done.stderr
    (note,) = records(done, "note")
    assert note["text"].startswith("Rung could not save a checkpoint: ")
