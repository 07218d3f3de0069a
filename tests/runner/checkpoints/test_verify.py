"""Tests that only the job's own Python examines checkpoints, and no more of them than needed."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.checkpoint_verdict import NOT_EXAMINED, CheckpointVerdict
from rung.jobs.model.errors import EngineError, RunCutShort
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import AttemptPaths
from rung.recovery.decide.checkpoint_choice import Checkpoint
from rung.runner.checkpoints.verify import (
    AT_ONCE,
    TRIES,
    NewVerdict,
    checkpoint_of,
    keep_all,
    python_of,
    verify_enough,
    verify_files,
)
from rung.runner.engines.process import ProcessEngine
from rung.runner.seams.engine import Container, Engine, Request

PATTERN = "step_*.pt"


class Asked(ProcessEngine):
    """The process engine, with the job's Python replaced by a script of answers; records its calls."""

    def __init__(self, verdicts: dict[str, Any], *, output: str = "", errors: str = "", code: int = 0) -> None:
        self.verdicts, self.output, self.errors, self.code = verdicts, output, errors, code
        self.asked: list[list[str]] = []

    def run(self, argv: Sequence[str], request: Request, timeout: float) -> tuple[int, str, str]:
        # The verifier must not print records like a training.
        assert request.env["RUNG_MODE"] == "off"
        # It finds the classes of the script by its name.
        assert request.env["RUNG_RUN"] == "python3.11 train.py"
        assert list(argv[:4]) == ["python3.11", "-m", "rung_inside.verify", "--first-healthy"]
        names = [Path(path).name for path in argv[4:]]
        self.asked.append(names)
        lines = [json.dumps({"path": f"/x/{name}", **self.verdicts[name]}) for name in names if name in self.verdicts]
        return self.code, "\n".join([self.output, *lines]), self.errors


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    argv = ("python3.11", "train.py")
    return Request("a-1", 1, argv, tmp_path, dict(os.environ), AttemptPaths(tmp_path / "1"), tmp_path / "ck")


def checkpoints(request: Request, *steps: int) -> None:
    request.checkpoint_dir.mkdir(exist_ok=True)
    for step in steps:
        path = request.checkpoint_dir / f"step_{step}.pt"
        path.write_bytes(b"x" * step)
        os.utime(path, (float(step), float(step)))


def healthy(step: int) -> dict[str, Any]:
    return {"verdict": "healthy", "step": step, "detail": ""}


def enough(
    engine: Engine, request: Request, pattern: str, *known: Any
) -> Generator[NewVerdict, None, list[Checkpoint]]:
    """Verify enough of a folder that is listed anew each time."""
    return verify_enough(engine, request, lambda: engine.list_files(request, pattern), *known)


def attempt(fault: Fault | None = None) -> list[Attempt]:
    return [Attempt("a-1", 1, "h", Knobs(), None, "", fault=fault)]


def test_the_newest_is_verified_first_and_a_healthy_one_ends_the_search(request_: Request) -> None:
    checkpoints(request_, 100, 200, 300)
    engine = Asked(
        {"step_300.pt": {"verdict": "poisoned", "step": 300, "detail": "w is nan"}, "step_200.pt": healthy(200)}
    )
    verdicts = dict(enough(engine, request_, PATTERN, attempt(), None, {}))
    assert engine.asked == [["step_300.pt", "step_200.pt", "step_100.pt"]]
    assert {name.partition(":")[0]: verdict.verdict for name, verdict in verdicts.items()} == {
        "step_300.pt": "poisoned", "step_200.pt": "healthy",
    }  # fmt: skip


def test_a_file_with_a_verdict_is_not_verified_again(request_: Request) -> None:
    checkpoints(request_, 100, 200)
    known = {
        entry.fingerprint: CheckpointVerdict("healthy", 200) for entry in Asked({}).list_files(request_, "step_200*")
    }
    engine = Asked({})
    assert dict(enough(engine, request_, PATTERN, attempt(), None, known)) == {}
    assert engine.asked == []


def test_newer_files_are_verified_although_an_older_one_is_known_to_be_healthy(request_: Request) -> None:
    checkpoints(request_, 100, 200, 300)
    known = {
        entry.fingerprint: CheckpointVerdict("healthy", 100) for entry in Asked({}).list_files(request_, "step_100*")
    }
    engine = Asked({"step_300.pt": {"verdict": "poisoned", "step": 300, "detail": ""}, "step_200.pt": healthy(200)})
    dict(enough(engine, request_, PATTERN, attempt(), None, known))
    assert engine.asked == [["step_300.pt", "step_200.pt"]]


def test_a_file_that_was_overwritten_is_verified_again(request_: Request) -> None:
    checkpoints(request_, 100)
    first = dict(enough(Asked({"step_100.pt": healthy(100)}), request_, PATTERN, attempt(), None, {}))
    (request_.checkpoint_dir / "step_100.pt").write_bytes(b"other")
    engine = Asked({"step_100.pt": {"verdict": "corrupt", "step": None, "detail": "torn"}})
    second = dict(enough(engine, request_, PATTERN, attempt(), None, first))
    assert [verdict.verdict for verdict in second.values()] == ["corrupt"]


def test_files_at_or_after_the_fault_are_not_opened(request_: Request) -> None:
    checkpoints(request_, 100, 200, 300)
    engine = Asked({"step_100.pt": healthy(100)})
    fault = Fault(FaultKind.NAN_LOSS, "nan", step=200)
    dict(enough(engine, request_, PATTERN, attempt(fault), 200, {}))
    assert engine.asked == [["step_100.pt"]]


def test_many_files_share_a_call_and_all_are_verified_until_one_is_healthy(request_: Request) -> None:
    steps = range(1, 2 * AT_ONCE + 3)
    checkpoints(request_, *steps)
    bad = {f"step_{step}.pt": {"verdict": "poisoned", "step": step, "detail": ""} for step in steps}
    engine = Asked({**bad, "step_1.pt": healthy(1)})
    verdicts = dict(enough(engine, request_, PATTERN, attempt(), None, {}))
    assert [len(names) for names in engine.asked] == [AT_ONCE, AT_ONCE, 2]
    assert len(verdicts) == len(steps)


@pytest.mark.parametrize(
    ("engine", "detail"),
    [
        (Asked({}, errors="noise\n\x1b[31mno torch here\n", code=3), "no torch here"),
        (Asked({}, code=9), "exit code 9"),
        (Asked({}, output='{"path": 3}\n[]\nnot json\n{"verdict": "healthy"}'), "exit code 0"),
    ],
)
def test_a_python_that_reports_nothing_leaves_the_file_unverified_with_the_reason(
    request_: Request, engine: Asked, detail: str
) -> None:
    checkpoints(request_, 100)
    verdicts = dict(enough(engine, request_, PATTERN, attempt(), None, {}))
    assert list(verdicts.values()) == [CheckpointVerdict("unverified", detail=detail)]
    assert len(engine.asked) == 1


def test_a_python_that_cannot_be_run_leaves_the_file_unverified(request_: Request) -> None:
    checkpoints(request_, 100)
    gone = Request(**{**vars(request_), "argv": ("/nowhere/python3", "x")})
    (verdict,) = dict(enough(ProcessEngine(), gone, PATTERN, attempt(), None, {})).values()
    assert verdict.verdict == "unverified"
    assert "could not be run" in verdict.detail


@pytest.mark.parametrize("code", [137, 143])
def test_a_check_on_a_host_that_was_killed_has_not_answered(request_: Request, code: int) -> None:
    checkpoints(request_, 100)
    there = replace(request_, container=Container("train@sha256:0"))
    with pytest.raises(EngineError, match=f"was killed there .exit code {code}."):
        dict(enough(Asked({}, code=code), there, PATTERN, attempt(), None, {}))


class Hungry(Asked):
    """Its checks of files that begin with these names are ended for memory, after what the others report."""

    def __init__(self, verdicts: dict[str, Any], hungry: Sequence[str]) -> None:
        super().__init__(verdicts)
        self.hungry = hungry

    def run(self, argv: Sequence[str], request: Request, timeout: float) -> tuple[int, str, str]:
        names = [Path(path).name for path in argv[4:]]
        ends_at = next((at for at, name in enumerate(names) if name in self.hungry), None)
        ran = super().run(argv[: 4 + ends_at] if ends_at is not None else argv, request, timeout)
        self.asked[-1] = names
        if ends_at is not None:
            error = RunCutShort("lab: a short job ran out of memory: ask for more in resources.memory")
            error.output = ran[1]
            raise error
        return ran


def test_a_check_that_runs_out_of_memory_is_tried_again_and_an_older_smaller_file_is_used(request_: Request) -> None:
    checkpoints(request_, 50, 290, 300)
    engine = Hungry({"step_50.pt": healthy(50)}, ["step_300.pt", "step_290.pt"])
    verdicts = {
        name.partition(":")[0]: verdict for name, verdict in enough(engine, request_, PATTERN, attempt(), None, {})
    }
    # The one that is as large is not tried; the small one is.
    assert engine.asked == [["step_300.pt", "step_290.pt", "step_50.pt"]] * TRIES + [["step_50.pt"]]
    assert [verdicts[f"step_{step}.pt"].verdict for step in (300, 290, 50)] == ["unverified", "unverified", "healthy"]
    assert "ran out of memory: ask for more in resources.memory" in verdicts["step_300.pt"].detail


def test_what_a_check_reported_before_it_ran_out_of_memory_counts(request_: Request) -> None:
    checkpoints(request_, 290, 300)
    engine = Hungry({"step_300.pt": healthy(300)}, ["step_290.pt"])
    verdicts = list(enough(engine, request_, PATTERN, attempt(), None, {}))
    assert [(name.partition(":")[0], verdict.verdict) for name, verdict in verdicts] == [("step_300.pt", "healthy")]


def test_of_a_list_only_the_file_whose_check_ran_out_of_memory_has_no_answer(request_: Request) -> None:
    checkpoints(request_, 290, 300)
    found = verify_files(Hungry({}, ["step_300.pt"]), request_, ["step_300.pt", "step_290.pt"])
    assert [(name, verdict.verdict) for name, verdict in found.items()] == [("step_300.pt", "unverified")]


def test_all_checkpoints_are_returned_with_what_is_known_by_then_and_listed_no_more_than_needed(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints(request_, 100, 200)
    engine, listed = Asked({"step_200.pt": healthy(200)}), list[str]()
    listing = engine.list_files
    monkeypatch.setattr(
        engine, "list_files", lambda asked, pattern: (listed.append(pattern), listing(asked, pattern))[1]
    )
    verdicts: dict[str, CheckpointVerdict] = {}
    found = keep_all(enough(engine, request_, PATTERN, attempt(), None, {}), lambda new: verdicts.update([new]))
    assert {each.name: each.verdict for each in found} == {"step_100.pt": None, "step_200.pt": "healthy"}
    assert len(verdicts) == 1 and len(listed) == 2, "once before the file was opened, and once after that"
    again = keep_all(enough(engine, request_, PATTERN, attempt(), None, verdicts), lambda new: None)
    assert again == found and len(listed) == 3


def test_a_hostile_answer_is_cleaned_and_names_no_other_file(request_: Request) -> None:
    checkpoints(request_, 100)
    other = json.dumps({"path": "/etc/passwd", "verdict": "healthy", "step": 1, "detail": ""})
    evil = {"verdict": "healthy", "step": "5; rm", "detail": "\x1b[2Jfine"}
    verdicts = dict(enough(Asked({"step_100.pt": evil}, output=other), request_, PATTERN, attempt(), None, {}))
    assert list(verdicts.values()) == [CheckpointVerdict("healthy", detail="fine")]


def test_no_checkpoint_means_nothing_to_verify(request_: Request) -> None:
    assert dict(enough(Asked({}), request_, PATTERN, attempt(), None, {})) == {}


def test_the_step_inside_the_file_counts_and_the_name_only_until_then(request_: Request) -> None:
    checkpoints(request_, 100)
    engine = Asked({})
    (entry,) = engine.list_files(request_, PATTERN)
    before, after = checkpoint_of(entry, NOT_EXAMINED), checkpoint_of(entry, CheckpointVerdict("healthy", 90))
    assert (before.step, before.verdict) == (100, None)
    assert (after.step, after.verdict, after.written_at) == (90, "healthy", 100.0)


def test_the_step_from_the_jobs_log_counts_most_and_an_epoch_is_no_step(request_: Request) -> None:
    request_.checkpoint_dir.mkdir()
    for name, at in (("epoch_3.pt", 130.0), ("epoch_4.pt", 140.0)):
        (request_.checkpoint_dir / name).touch()
        os.utime(request_.checkpoint_dir / name, (at, at))
    ran = Attempt("a-1", 1, "h", Knobs(), None, "", started_at=100.0, ended_at=200.0, furthest_step=1000)
    ran, verdict = replace(ran, saved={"epoch_3.pt": 300}), CheckpointVerdict("healthy", 7)
    entries = {each.name: each for each in Asked({}).list_files(request_, "epoch_*.pt")}
    found = [
        checkpoint_of(entries["epoch_3.pt"], verdict, [ran]),
        checkpoint_of(entries["epoch_4.pt"], NOT_EXAMINED, [ran]),
    ]
    assert {each.name: (each.step, each.step_from) for each in found} == {
        "epoch_3.pt": (300, "saved"), "epoch_4.pt": (400, "time"),
    }  # fmt: skip


def test_a_folder_is_verified_like_a_file(request_: Request) -> None:
    (request_.checkpoint_dir / "checkpoint-5").mkdir(parents=True)
    engine = Asked({"checkpoint-5": healthy(5)})
    assert len(dict(enough(engine, request_, "checkpoint-*", attempt(), None, {}))) == 1
    assert engine.asked == [["checkpoint-5"]]


@pytest.mark.parametrize(
    ("argv", "python"),
    [
        (("python", "t.py"), "python"),
        (("/venv/bin/python3.11", "t.py"), "/venv/bin/python3.11"),
        (("torchrun", "t.py"), "python3"),
        (("bash", "-c", "python t.py"), "python3"),
        (("pythonista", "x"), "python3"),
    ],
)
def test_the_python_is_the_jobs_own(argv: tuple[str, ...], python: str) -> None:
    assert python_of(argv) == python
