"""Tests the drills: each fault is real, detected and cured on this machine, or the verdict is FAIL."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.job import Attempt, Job
from rung.jobs.model.errors import HostUnreachable
from rung.jobs.model.event import EventKind
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.state import JobState
from rung.runner.cli.drill import FAULTS, _story
from rung.runner.engine_pool import RealEngines
from rung.runner.session.drill import DRILLS, TOY, drill_spec, judge
from rung.runner.session.session import Session
from rung.runner.ssh.remote import SshRemote
from tests import pace
from tests.support.background import Watched

Rung = Callable[..., Any]
QUICK = ["nan"]
SLOW = [pytest.param(name, marks=pytest.mark.long) for name in ("kill", "unscale", "collapse", "oom")]
SAMPLE = [pytest.param("overflow", marks=[pytest.mark.long, pytest.mark.sample])]


@pytest.mark.parametrize("name", [*QUICK, *SAMPLE, *SLOW])
def test_a_drill_passes_on_this_machine(name: str, home: Path, rung: Rung) -> None:
    ran = rung("drill", name, "--json")
    assert ran.code == 0, ran
    verdict = json.loads(ran.out)
    assert verdict["passed"] and verdict["attempts"] == 2
    assert verdict["job_id"] == f"drill-{name}-1"
    story = json.loads(rung("history", f"drill-{name}", "--json").out)
    first, second = story["attempts"]
    assert FaultKind(first["fault"]["kind"]) in DRILLS[name].faults
    # The fault comes in the second half, so there is a checkpoint to resume from.
    assert second["resumed_step"] >= 30


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["link"], "drill link: there is no link to cut on this machine"),
        (["nan", "--host", "titan"], "--host: a job on a host runs in an image; name one with --image"),
        (["none"], "'none' is not one of 'nan'"),
        (["nan", "--image", "tag:latest"], "pin the image by digest"),
        (["nan", "--host", "moon", "--image", f"x@sha256:{'0' * 64}"], "--host moon: is not in the list of hosts"),
    ],
)
def test_an_impossible_drill_is_an_error_in_one_line(args: list[str], message: str, home: Path, rung: Rung) -> None:
    hosts = home.parent / "hosts.yml"
    hosts.write_text("all: {hosts: {titan: {}}}\n")
    ran = rung("drill", *args, env={"RUNG_HOSTS": str(hosts)})
    assert (ran.code, ran.out) == (2, ""), ran
    assert message in ran.err and ran.err.count("\n") == 1


def test_the_names_on_the_command_line_are_the_drills() -> None:
    assert tuple(DRILLS) == FAULTS
    for name in FAULTS:
        spec = drill_spec(name, None)
        assert spec.name == f"drill-{name}" and name in spec.run
    assert drill_spec("oom", None).knobs.batch == 128
    assert drill_spec("nan", f"x@sha256:{'0' * 64}").image


def test_a_drill_tells_the_story_of_its_job(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = Session.open(create=True)
    job = session.submit(drill_spec("nan", None), TOY)
    fault = Fault(FaultKind.NAN_LOSS, "loss: nan", step=41)
    with session.store.transaction():
        session.store.add_event(job.id, 1, EventKind.FAULT, fault.to_dict(), at=job.created_at + 61)
    tell = _story(session)
    for event in session.store.events(job.id):
        tell(event)
    assert capsys.readouterr().out == "  1:01  fault       nan_loss at step 41: loss: nan\n"


# The controller


# A drill whose job ends at once; it says who the controller is at each event of it.
QUICK_DRILL = """
import os
from rung.jobs.spec.job_spec import JobSpec
from rung.runner.session import drill
from rung.runner.session.session import Session
from rung.runner.state.owner import find_owner

spec = JobSpec.model_validate({"name": "quick", "run": ["sh", "-c", "echo step 1 loss 0.5"]})
drill.drill_spec = lambda name, image: spec
session = Session.open(create=True)
def on_event(event):
    print("itself" if find_owner(session.paths).pid == os.getpid() else "another")
print(drill.DrillRun(session, session.engines(), on_event).run("nan", None).text)
"""


def drilled() -> str:
    """Run the drill in a process of its own, which is the controller meanwhile; return its verdict."""
    done = pace.run([sys.executable, "-c", QUICK_DRILL], capture_output=True, text=True, usual=60, check=True)
    *owners, verdict = done.stdout.splitlines()
    assert set(owners) == {"itself"}
    return verdict


def test_a_drill_hands_the_jobs_that_are_active_to_a_controller_in_the_background(watched: Watched, rung: Rung) -> None:
    assert rung("launch", watched.job_file(), env={"RUNG_CONTROLLER": "manual"}).code == 0
    assert drilled().startswith("no fault was seen")
    assert watched.pid
    watched.go.touch()
    watched.wait_for("steady-1", "SUCCEEDED")
    assert len(watched.attempts("steady-1")) == 1


def test_a_drill_that_leaves_no_job_active_starts_no_controller(watched: Watched) -> None:
    drilled()
    assert watched.pid == 0


# The verdict


def judged(name: str, rungs: list[str | None], kind: FaultKind | None, state: JobState = JobState.SUCCEEDED) -> Any:
    spec = drill_spec(name, None)
    job = Job("d-1", spec, state, "why", 0.0, 0.0, spec.knobs.knobs())
    fault = Fault(kind, "line", step=41) if kind else None
    first = Attempt("d-1", 1, "localhost", Knobs(), None, "", fault=fault)
    later = [replace(first, number=2 + n, rung=rung, fault=None, resumed_step=40) for n, rung in enumerate(rungs)]
    return judge(name, job, [first, *later])


def test_a_cure_that_fits_the_fault_passes() -> None:
    text = "fp16_overflow at step 41, cured by native_fp16 from step 40 on"
    assert judged("overflow", ["native_fp16"], FaultKind.FP16_OVERFLOW) == (True, text)
    assert judged("kill", [None], FaultKind.INFRA_FAULT)[0]
    assert judged("link", [], None)[0]


@pytest.mark.parametrize(
    ("name", "rungs", "kind", "state", "message"),
    [
        ("overflow", ["native_fp16"], FaultKind.FP16_OVERFLOW, JobState.FAILED, "the job is FAILED: why"),
        ("overflow", ["fp32"], FaultKind.NAN_LOSS, JobState.SUCCEEDED, "nan_loss was seen, which is another fault"),
        ("overflow", [], None, JobState.SUCCEEDED, "no fault was seen"),
        ("overflow", ["lower_lr"], FaultKind.FP16_OVERFLOW, JobState.SUCCEEDED, "answered by lower_lr"),
        ("kill", ["fp32"], FaultKind.INFRA_FAULT, JobState.SUCCEEDED, "answered by fp32"),
        ("overflow", ["native_fp16", "fp32"], FaultKind.FP16_OVERFLOW, JobState.SUCCEEDED, "it took 2 relaunches"),
        ("link", [None], None, JobState.SUCCEEDED, "in 2 attempts"),
    ],
)
def test_a_wrong_fault_or_cure_fails(
    name: str, rungs: Any, kind: FaultKind | None, state: JobState, message: str
) -> None:
    passed, text = judged(name, rungs, kind, state)
    assert not passed and message in text


# Drills on a host


def test_a_cut_connection_is_opened_again(titan: SshRemote, wait_until: Callable[..., Any]) -> None:
    assert titan.run(["echo", "1"], timeout=pace.seconds(20)).out == b"1\n"
    before = titan.connection.transport()
    titan.drop_connection()
    wait_until(lambda: not before.is_alive())

    def answers() -> bool:
        with suppress(HostUnreachable):
            return titan.run(["echo", "2"], timeout=pace.seconds(20)).out == b"2\n"
        return False

    wait_until(answers)
    assert titan.connection.transport() is not before


def test_the_engines_of_a_drill_know_only_its_host(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("all: {hosts: {titan: {}, ampere: {}}}\n")
    environ = {"RUNG_HOSTS": str(tmp_path / "hosts.yml")}
    one = RealEngines(environ, tmp_path, "store", only="titan")
    assert [host.name for host in one.hosts] == ["titan"]
    assert [host.name for host in RealEngines(environ, tmp_path, "store").hosts] == ["titan", "ampere"]
    with pytest.raises(HostUnreachable):
        one.remote("ampere")
    one.close()
