"""Tests that a dry run shows for every rung what a real relaunch would get, and writes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rung.jobs.job import Job
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.paths import HomePaths
from rung.jobs.spec.job_spec import JobSpec
from rung.recovery.decide.decide import Relaunch
from rung.recovery.decide.rungs import RungContext, apply_rung
from rung.runner.launch.request import build_request
from rung.runner.preflight.check_job import planned_job
from rung.runner.preflight.rung_preview import PLACES, LadderPreview, RungPreview, argument_changes
from rung.runner.state.next_attempt import Placement, asked_by_person, next_attempt

Rung = Callable[..., Any]
HERE = Placement("localhost")
CONFIG = "# ours\nopt: {lr: 1}\n\nx: 1\namp: yes # c\nresume:\n"
KNOBS = {
    "lr": 0.001,
    "precision_text": {"amp_fp16": True, "fp32": False},
    "files": {"c.yaml": {"lr": "opt.lr", "precision": "amp", "checkpoint": "resume"}},
}
RUN = "python t.py --lr {lr} opt.clip={clip} --resume {checkpoint}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "c.yaml").write_text(CONFIG)
    return tmp_path


def ladder(folder: Path, place: Placement = HERE, **fields: Any) -> tuple[Job, LadderPreview]:
    spec = JobSpec.model_validate({"name": "a", "run": RUN, "knobs": KNOBS, **fields})
    job = planned_job(spec, 1)
    home = (HomePaths(folder / "home"), {"PATH": "/bin"})
    return job, LadderPreview(job, asked_by_person(job, (), (), place), home, folder)


def by_name(preview: LadderPreview) -> dict[str, RungPreview]:
    return {each.rung: each for each in preview.rungs()}


def test_every_rung_is_shown_with_what_it_changes(folder: Path) -> None:
    _, preview = ladder(folder, envs={"NAME": "x-{lr}"})
    rungs = by_name(preview)
    five = ["raise_clip", "lower_lr", "increase_growth_interval", "native_fp16", "fp32"]
    assert list(rungs) == [*five[:4], "clamp_constants", "fp32_modules", "bf16", five[4], "lower_batch"]
    assert list(rungs["lower_lr"].lines()) == [
        "rung  lower_lr: lr 0.001 -> 0.0001",
        "        run   --lr 0.001 -> --lr 0.0001",
        "        env   NAME: x-0.001 -> x-0.0001",
        "        file  c.yaml",
        "              @@ -1,3 +1,3 @@",
        "               # ours",
        "              -opt: {lr: 0.001}",
        "              +opt: {lr: 0.0001}",
        "               ",
    ]
    assert list(rungs["raise_clip"].lines()) == [
        "rung  raise_clip: clip off -> 1.0",
        "        run   nothing -> opt.clip=1.0",
    ]
    assert list(rungs["fp32"].files["c.yaml"])[2:4] == ["-amp: true # c", "+amp: false # c"]
    assert rungs["native_fp16"].skipped.endswith("knobs.precision_text has no name for it")
    assert rungs["increase_growth_interval"].skipped.startswith("the job cannot receive growth_interval")
    assert rungs["lower_batch"].skipped == "the job states no batch"
    for rung in ("clamp_constants", "fp32_modules"):
        assert rungs[rung].skipped.endswith("it needs zero-edit or rung_inside.attach")
    assert rungs["bf16"].skipped.startswith("nothing in the job file says that the script knows bf16")


def test_the_preview_is_what_the_relaunch_gets(folder: Path) -> None:
    job, preview = ladder(folder)
    first = asked_by_person(job, (), (), HERE)
    paths = HomePaths(folder / "home")
    before = build_request(job, first, paths, folder, {"PATH": "/bin"})
    for step in job.spec.recovery.rungs:
        after = apply_rung(step, RungContext(job.spec, job.knobs, job.knobs))
        shown = by_name(preview)[step.rung.value]
        assert bool(shown.skipped) is isinstance(after, str)
        if not isinstance(after, str):
            second = next_attempt(job, 2, HERE, Relaunch(step.rung, after, None, ""), 0.0)
            request = build_request(job, second, paths, folder, {"PATH": "/bin"})
            assert shown.command == tuple(argument_changes(before.argv, request.argv))
            assert bool(shown.files) is (request.edits != before.edits)
            assert shown.command or shown.files


def test_what_a_resume_changes_is_shown_once(folder: Path) -> None:
    _, preview = ladder(folder, checkpoint={"pattern": "s_*.pt"})
    resume = preview.resume()
    (change,) = resume.command
    assert change == ("", f"--resume '{folder}/home/jobs/a-1/checkpoints/s_*.pt'")
    assert any("s_*.pt" in line for line in resume.files["c.yaml"])


def test_zero_edit_shows_the_lr_as_a_factor_of_the_script_lr(folder: Path) -> None:
    _, preview = ladder(folder, run="python t.py", knobs={"mode": "zero-edit"}, recovery={"ladder": "auto"})
    rungs = by_name(preview)
    lower = list(rungs["lower_lr"].lines())
    assert lower[0] == "rung  lower_lr: lr -> 0.1 x the script's own lr, which is known after the first attempt"
    assert lower[1].startswith("        live  lr: set on the live objects")
    assert rungs["raise_clip"].inside == ("clip",)
    assert "clip not set -> 1.0" in next(rungs["raise_clip"].lines())
    assert "known when there is one" in next(rungs["skip_data"].lines())
    assert list(rungs["fp32_modules"].lines()) == [f"rung  fp32_modules: {PLACES}"]
    assert next(rungs["clamp_constants"].lines()) == "rung  clamp_constants: constants off -> clamp"


@pytest.mark.parametrize(
    ("name", "capability", "most"), [("Tesla P100", (6, 0), 2), ("NVIDIA TITAN RTX", (7, 5), 8), ("A100", (8, 0), None)]
)
def test_what_fp32_as_a_whole_costs_is_shown_where_it_may_be_taken_instead_of_places(
    folder: Path, name: str, capability: tuple[int, int], most: int | None
) -> None:
    place = Placement("host", (Gpu(name, capability),))
    _, preview = ladder(folder, place, run="python t.py", knobs={"mode": "zero-edit"})
    instead = f"; fp32 instead if it takes no longer than they do: FP32 as a whole costs {most}x (the most on {name})"
    assert list(by_name(preview)["fp32_modules"].lines()) == [f"rung  fp32_modules: {PLACES}{instead if most else ''}"]


@pytest.mark.parametrize(
    ("capability", "asked", "shown"),
    [((8, 0), "tf32", " -> tf32"), ((8, 0), "strict", " -> strict"), ((7, 5), "tf32", None)],
)
def test_the_gpu_of_the_first_attempt_decides_what_fp32_multiplies_in(
    folder: Path, capability: tuple[int, int], asked: str, shown: str | None
) -> None:
    place = Placement("ampere", (Gpu("NVIDIA GPU", capability),))
    knobs, recovery = {"mode": "zero-edit"}, {"ladder": ["bf16", "fp32"], "fp32": asked}
    _, preview = ladder(folder, place, run="python t.py", knobs=knobs, recovery=recovery)
    rungs = by_name(preview)
    (first, *_) = rungs["fp32"].lines()
    assert first.endswith(f"fp32, matmul not set{shown}" if shown else "-> fp32")
    assert bool(rungs["bf16"].skipped) is (capability < (8, 0))


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        (("x", "--lr", "1"), ("x", "--lr", "2"), [("--lr 1", "--lr 2")]),
        (("x", "--lr=1", "y"), ("x", "--lr=2", "y"), [("--lr=1", "--lr=2")]),
        (("x",), ("x", "--c", "a b"), [("", "--c 'a b'")]),
        (("x", "--fp16", "y"), ("x", "y"), [("--fp16", "")]),
    ],
)
def test_arguments_are_shown_with_their_option(before: Any, after: Any, changes: Any) -> None:
    assert list(argument_changes(before, after)) == changes


def test_the_command_line_shows_every_rung_and_writes_nothing(folder: Path, home: Path, rung: Rung) -> None:
    spec = {"name": "a", "run": RUN, "knobs": KNOBS}
    (folder / "job.yaml").write_text(yaml.safe_dump(spec))
    shown = rung("launch", "--dryrun", folder / "job.yaml")
    assert shown.code == 0, shown
    assert "file  c.yaml: opt.lr = 0.001" in shown.out
    assert "              +amp: false # c" in shown.out
    assert "every relaunch goes on from the last healthy checkpoint:" in shown.out
    data = json.loads(rung("launch", "--dryrun", "--json", folder / "job.yaml").out)
    previews = {each["rung"]: each for each in data["rungs"]}
    assert previews["lower_lr"]["command"] == [["--lr 0.001", "--lr 0.0001"]]
    assert "skipped" in previews["native_fp16"]
    assert (folder / "c.yaml").read_text() == CONFIG
    assert not home.exists()
    spec["knobs"] = {**KNOBS, "files": {"c.yaml": {"lr": "opt.l"}}}
    (folder / "job.yaml").write_text(yaml.safe_dump(spec))
    wrong = rung("launch", "--dryrun", folder / "job.yaml")
    assert (wrong.code, wrong.err) == (2, "rung: c.yaml: opt.l: there is no such key; did you mean 'lr'?\n")
