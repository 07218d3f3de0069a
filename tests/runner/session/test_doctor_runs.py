"""Tests that the doctor gives the names that validations and replays of the same script have found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.job import Attempt, Outcome
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.paths import HomePaths
from rung.jobs.spec.job_spec import JobSpec
from rung.recovery.doctor.examine import RULES
from rung.runner.state.store import Store
from rung.runner.validation.record import Validation

SCRIPT = "import torch\nprint(torch.zeros(1))\n"
NEAR = {"places": ["head.norm", "body.0"], "updates": 64}


@pytest.fixture
def work(tmp_path: Path, home: Path) -> Path:
    home.mkdir(mode=0o700)
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "other.py").write_text(SCRIPT)
    return folder


def spec(name: str = "near", run: str = "python train.py") -> JobSpec:
    return JobSpec.model_validate({"name": name, "run": run, "knobs": {"mode": "zero-edit"}})


def validated(home: Path, work: Path, near: Any) -> None:
    store = Store(home / "rung.db")
    with store.transaction():
        asked = Validation(0, "digest", spec(), work, "val_loss", 1.0)
        made = asked.but(number=store.add_validation(asked.digest, asked.to_dict()))
    store.close()
    folder = HomePaths(home).validation(made.id)
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(json.dumps({"near_limit": near}))


def failed(home: Path, work: Path, *cures: str, run: str = "python train.py", present: str | None = None) -> None:
    store = Store(home / "rung.db")
    with store.transaction():
        job = store.add_job(spec("failing", run), work, at=1.0)
        for number, cure in enumerate(cures, 1):
            fault = Fault(FaultKind.NAN_LOSS, "loss nan", step=41, replay={"step": "41", "cure": cure, "cost": "1.6%"})
            asked = Knobs(fp32_modules=present)
            store.put_attempt(Attempt(job.id, number, "h", asked, None, "x", fault=fault, outcome=Outcome.FAULT))
    store.close()


@pytest.fixture
def seen(run_rung: Callable[..., Any]) -> Callable[..., list[dict[str, Any]]]:
    def ask(*paths: Path) -> list[dict[str, Any]]:
        code, out, err = run_rung("doctor", "--json", *paths)
        assert (code, err) == (0, "")
        return json.loads(out)["seen_in_runs"]  # type: ignore[no-any-return]

    return ask


def test_the_doctor_gives_the_names_of_the_newest_validation(home: Path, work: Path, seen: Any, run_rung: Any) -> None:
    validated(home, work, {"places": ["old"]})
    validated(home, work, NEAR)
    for path in (work / "train.py", work, work.parent):
        (found,) = seen(path)
        assert (found["job"], found["source"], found["places"]) == ("near", "validation v2", NEAR["places"])
    _, out, _ = run_rung("doctor", work / "train.py")
    said = "seen in runs: near, validation v2: head.norm, body.0 came within a factor of 8 of FP16's limit: "
    assert said in out and "write knobs: {fp32_modules: [head.norm, body.0]}" in out
    # A later one that was not watched changes nothing; one that was, and is far from the limit, does.
    validated(home, work, None)
    assert [each["source"] for each in seen(work)] == ["validation v2"]
    validated(home, work, {"places": []})
    assert seen(work) == []


def test_the_doctor_gives_the_cure_of_the_newest_replay(home: Path, work: Path, seen: Any) -> None:
    failed(home, work, "fp32_modules:head.norm", "fp32_modules:head.out,loss", present="head.norm")
    (found,) = seen(work / "train.py")
    assert (found["source"], found["places"]) == ("replay of attempt 2", ["head.out", "loss"])
    assert "the same step is finite with FP32 in head.out and the loss too" in found["says"]
    # Those that the run had before stay in the list.
    assert found["says"].endswith("write knobs: {fp32_modules: [head.norm, head.out, loss]}")


def test_a_replay_that_clamps_constants_names_no_place(home: Path, work: Path, seen: Any) -> None:
    failed(home, work, "clamp_constants")
    (found,) = seen(work / "train.py")
    assert found["places"] == [] and found["says"].endswith("write knobs: {constants: clamp}")


def test_runs_of_other_scripts_are_not_this_ones(home: Path, work: Path, seen: Any) -> None:
    failed(home, work, "fp32_modules:head.norm", run="python other.py")
    validated(home, work, NEAR)
    assert [each["job"] for each in seen(work / "train.py")] == ["near"]
    assert [each["job"] for each in seen(work / "other.py")] == ["failing"]
    assert sorted(each["job"] for each in seen(work)) == ["failing", "near"]


@pytest.mark.parametrize("near", [None, [], 3, {}, {"places": []}, {"places": "head"}, {"places": [3]},
                                  {"places": ["a b"]}, {"places": ["\u202eevil"]}, {"places": ["x"] * 17}])  # fmt: skip
def test_a_report_without_places_or_with_nonsense_names_nothing(home: Path, work: Path, seen: Any, near: Any) -> None:
    validated(home, work, near)
    assert seen(work) == []


def test_without_a_store_nothing_is_made_and_a_broken_one_is_told(home: Path, work: Path, run_rung: Any) -> None:
    home.rmdir()
    code, out, _ = run_rung("doctor", work)
    assert code == 0 and "seen in runs" not in out and not home.exists()
    home.mkdir(mode=0o700)
    (home / "rung.db").write_text("this is no database at all, but long enough to be looked at")
    code, out, err = run_rung("doctor", work)
    assert code == 0 and "2 files, 0 in FP16" in out
    assert err.startswith("rung: what runs have shown is not known: ") and err.count("\n") == 1


def test_rules_about_numbers_that_do_not_fit_name_the_rung_that_helps() -> None:
    fixes = {rule.name: rule.fix for rule in RULES}
    for name in ("fill-beyond-fp16", "mask-beyond-fp16", "finfo-of-another-tensor"):
        assert fixes[name].endswith("knobs: {constants: clamp}, the rung clamp_constants")
    for name in ("exp-without-clip", "eps-vanishes", "relu-into-embedding"):
        assert fixes[name].endswith("knobs: {fp32_modules: [its name]}, the rung fp32_modules")
