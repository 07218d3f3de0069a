"""Tests the chaos harness: each invariant finds what violates it, each damage is real, and a run is clean."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests import pace
from tests.chaos import report
from tests.chaos import run as chaos_run
from tests.chaos.evidence import DISK_FULL, JOB_KILLED, WRAPPER_KILLED, Evidence, JobEvidence, Told
from tests.chaos.example import FIRST, FIRST_LOG, LAST, LEDGER, SUM, edited, found, job, start
from tests.chaos.invariants import CHECKS, JOB_CHECKS, Violation
from tests.chaos.lab import Journal, Lab
from tests.chaos.ledger import read_ledger, runs_of
from tests.chaos.process_jobs import spoil
from tests.chaos.random_jobs import KINDS, TRAINING, random_plan
from tests.chaos.run import Result, Wanted
from tests.chaos.training import checkpoint_bytes, weights_at

INSIDE = Path(__file__).parents[2] / "jobs" / "inside"


def test_a_run_as_it_should_be_violates_nothing() -> None:
    assert found(job()) == []


BROKEN = {"file": "step_1", "broken": "ValueError: no header"}
JOB_CASES = {
    "attempt 2 began while attempt 1 still ran": job(edited(6, t=5)),
    "was submitted, and Rung does not know it": job([], (), job_id=None, state=""),
    "was refused, and Rung has it all the same": job(launched=False),
    "ended 2 times after 1 launch and 0 retries": job(ends=2),
    "ended 1 times after 1 launch and 1 retries": job(retries=1),
    "is SUCCEEDED, and its last process did not make all steps": job(edited(8, text="step 2/3 loss 0.7\n")),
    "is FAILED, and its last process made all steps": job(state="FAILED"),
    "is CANCELLED, and nobody cancelled it": job(state="CANCELLED"),
    "attempt 3 began after attempt 2 had finished": job([*LEDGER, start(11, 12, 3)]),
    "attempt 2 was started 2 times": job([*LEDGER, start(11, 12, 2)]),
    "attempt 2 ran, and Rung does not know it": job(attempts=(FIRST,)),
    "attempt 2 is in the history (succeeded), and never ran": job(LEDGER[:6]),
    "the log of attempt 1 is not what it printed: 1 lines, 2 printed, one is longer": job(
        attempts=(replace(FIRST, log=FIRST_LOG[:1]), LAST)
    ),
    "the log of attempt 1 is not what it printed: 3 lines, 2 printed, first at line 2": job(
        attempts=(replace(FIRST, log=(FIRST_LOG[0], *FIRST_LOG)), LAST)
    ),
    "`rung logs` does not show what the log of attempt 2 holds": job(
        attempts=(FIRST, replace(LAST, shown=("step 3/3 loss 0.7",)))
    ),
    "attempt 2 resumed from step_1, and the history says step_2": job(
        attempts=(FIRST, replace(LAST, resumed_from="step_2"))
    ),
    "attempt 2 resumed from step_1, which is damaged: ValueError: no header": job(edited(6, resumed=BROKEN)),
    "attempt 2 resumed from step_1, whose numbers no attempt has saved": job(edited(2, sum="other")),
    "attempt 2 resumed from step_1, which was saved with NaN in it": job(edited(2, healthy=False)),
    "attempt 1 has the fault oom, and what happened is: overflow": job(attempts=(replace(FIRST, fault="oom"), LAST)),
    "attempt 2 has the fault unknown_exit, and what happened is: nothing": job(
        attempts=(FIRST, replace(LAST, fault="unknown_exit"))
    ),
    "attempt 2 did not get its secret": job(edited(6, secret="")),
}


def test_a_run_that_resumes_at_its_last_step_has_finished() -> None:
    ledger = [*LEDGER[:6], start(7, 11, 2, {"file": "step_3", "step": 3, "sum": SUM}), LEDGER[9]]
    ledger[2] = {**ledger[2], "file": "step_3", "step": 3}
    assert found(job(ledger, (FIRST, replace(LAST, resumed_from="step_3", log=(), shown=None)))) == []


@pytest.mark.parametrize("what", JOB_CASES)
def test_an_edited_ledger_of_a_job_is_found(what: str) -> None:
    assert what in found(JOB_CASES[what])


def on_gpu(name: str, gpu: str) -> JobEvidence:
    return job([{**each, "gpus": gpu} if each["kind"] == "start" else each for each in LEDGER], name=name)


def test_jobs_that_share_a_gpu_or_are_too_many_are_found() -> None:
    assert found(on_gpu("a", "GPU-1"), on_gpu("b", "GPU-2")) == []
    assert "used GPU-1 while a did" in found(on_gpu("a", "GPU-1"), on_gpu("b", "GPU-1"))
    assert "was the 3th to run at once; 2 may" in found(*(job(name=name) for name in "abc"))


@pytest.mark.parametrize("what", ["leases", "processes", "on_hosts", "drafts", "secrets", "controllers", "unsettled"])
def test_what_is_left_is_found(what: str) -> None:
    (line,) = found(job(), **{what: ("this one",)})
    assert line.endswith(": this one")


def test_every_invariant_has_a_case_here() -> None:
    """Leave each check out once: then some case is not found any more."""
    jobs = [*JOB_CASES.values()]
    for check in JOB_CHECKS:
        assert any(list(check(each)) for each in jobs), check.__name__
    everything = Evidence((*(job(name=name) for name in "abc"), *jobs), 2, "s", leases=("one",))
    for together in CHECKS:
        assert list(together(everything)), together.__name__


def test_what_the_harness_did_excuses_what_follows_from_it_and_nothing_else() -> None:
    killed = job(LEDGER[:5], (replace(FIRST, fault="infra_fault"),), state="FAILED")
    assert found(killed) == ["attempt 1 has the fault infra_fault, and what happened is: overflow"]
    assert found(replace(killed, injected={1: frozenset({JOB_KILLED})})) == []
    never_ran = job(LEDGER[:6], (FIRST, Told(2, "fault", "infra_fault")), state="FAILED")
    assert found(replace(never_ran, injected={2: frozenset({DISK_FULL})})) == []
    assert len(found(replace(never_ran, injected={1: frozenset({DISK_FULL, WRAPPER_KILLED})}))) == 2


def test_a_killed_process_may_owe_its_last_line_and_one_that_ended_may_not() -> None:
    short = replace(FIRST, log=FIRST_LOG[:1])
    assert found(job(LEDGER[:5], (short,), state="FAILED")) == []
    assert found(job(LEDGER[:6], (short,), state="FAILED"))
    assert found(job(LEDGER[:5], (replace(FIRST, log=()),), state="FAILED"))


# The real training and its files


def train(folder: Path, plan: dict, **options: str) -> subprocess.Popen[bytes]:
    (folder / "plan").write_text(json.dumps(plan))
    words = {"plan": folder / "plan", "ledger": folder / "ledger", "dir": folder, "batch": 32, **options}
    command = [sys.executable, TRAINING, *(str(word) for name, value in words.items() for word in (f"--{name}", value))]
    env = {**os.environ, "RUNG_ATTEMPT": "1", "RUNG_JOB": "a-1"}
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(command, env=env, stdout=log)


def plan_with(*faults: dict, steps: int = 9, pace: float = 0.0) -> dict:
    return {"steps": steps, "every": 3, "pace": pace, "batch": 32, "noise": [2], "faults": list(faults)}


def test_the_ledger_of_a_killed_training_says_what_it_printed(tmp_path: Path) -> None:
    process = train(tmp_path, plan_with(steps=10_000, pace=0.005))
    pace.until(lambda: (tmp_path / "step_6.safetensors").exists(), 60.0)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (ran,) = runs_of(read_ledger(tmp_path / "ledger"))
    log = tuple((tmp_path / "log").read_bytes().replace(b"\n", b"\n\r").split(b"\r")[:-1])
    told = Told(1, "fault", "infra_fault", None, log)
    evidence = JobEvidence("a", "a-1", "FAILED", attempts=(told,), runs=(ran,), steps=10_000)
    assert ran.code is None and len(log) > 6
    assert found(replace(evidence, injected={1: frozenset({JOB_KILLED})}), secret=ran.start["secret"]) == []


def test_a_training_goes_on_from_its_checkpoint_and_a_cured_fault_stays_away(tmp_path: Path) -> None:
    fault = {"kind": "overflow", "step": 5, "code": 7, "only_fp32": True}
    assert train(tmp_path, plan_with(fault), precision="amp_fp16").wait() == 7
    options = {"precision": "fp32", "resume": str(tmp_path / "step_3.safetensors")}
    assert train(tmp_path, plan_with(fault), **options).wait() == 0
    first, second = runs_of(read_ledger(tmp_path / "ledger"))
    assert first.faults == {"overflow"} and not second.faults
    assert second.start["resumed"]["step"] == 3
    assert second.start["resumed"]["sum"] == next(first.of("saving"))["sum"]


def verdicts_on(paths: list[Path]) -> dict[str, str]:
    """Return what Rung says about checkpoints, from one process, which imports torch once."""
    command = [sys.executable, "-m", "rung_inside.verify", *map(str, paths)]
    path = os.pathsep.join(filter(None, [str(INSIDE), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, check=True)
    found = map(json.loads, done.stdout.splitlines())
    return {Path(each["path"]).stem.partition("_")[2]: each["verdict"] for each in found}


def test_every_damage_to_a_checkpoint_is_one_that_can_be_seen(tmp_path: Path) -> None:
    kinds = ["healthy", "truncated", "flipped", "poisoned"]
    paths = [tmp_path / f"step_{kind}.safetensors" for kind in kinds]
    for kind, path in zip(kinds, paths, strict=True):
        path.write_bytes(checkpoint_bytes(3, weights_at(3)))
        if kind != "healthy":
            spoil(path, kind, random.Random(kind))
    expected = {"healthy": "healthy", "truncated": "truncated", "flipped": "corrupt", "poisoned": "poisoned"}
    assert verdicts_on(paths) == expected


def test_the_same_seed_plans_the_same_jobs() -> None:
    plans = [[random_plan(random.Random(f"{seed} job {number}")) for number in range(60)] for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]
    assert {fault["kind"] for plan in plans[0] for fault in plan["faults"]} == set(KINDS)


# Whole runs


def test_a_violation_is_a_line_with_the_command_that_runs_it_again() -> None:
    journal = Journal(faults=Counter({"job killed": 3}))
    result = Result(Evidence((job(),), 2, "s"), [Violation("is CANCELLED, and nobody cancelled it", "a")], journal, 7.0)
    lines, code = report.report(result, "python -m tests.chaos --seed 7 --faults 3")
    assert code == 1
    assert lines[0] == "VIOLATION a: is CANCELLED, and nobody cancelled it [python -m tests.chaos --seed 7 --faults 3]"
    assert "3 faults in 7 s; 1 jobs (1 SUCCEEDED, 0 FAILED, 0 CANCELLED, 0 refused), 2 attempts" in lines[1]
    assert report.report(replace(result, found=[]), "")[1] == 0


def assert_clean(folder: Path, seed: int, faults: int) -> None:
    result = chaos_run.run(folder / "chaos", Wanted(seed, faults))
    assert result.found == []
    assert result.journal.faults.total() == faults
    assert any(job.state == "SUCCEEDED" for job in result.evidence.jobs)


@pytest.mark.long
@pytest.mark.sample
def test_two_hundred_faults_violate_nothing(tmp_path: Path) -> None:
    assert_clean(tmp_path, 20261118, 200)


def tamper(lab: Lab) -> None:
    """Do to a settled run what a controller with bugs would have done."""
    (lab.home / "leak").write_text(lab.token)
    (lab.home / "jobs" / "request.123").write_text("")
    log = next(path for path in sorted(lab.home.glob("jobs/*/attempts/1/log")) if path.read_bytes().count(b"\n") > 4)
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:1], *lines[2:]]))
    subprocess.run(["sh", "-c", "sleep 600 &"], env=lab.env, check=True)


@pytest.mark.long
def test_what_a_controller_with_bugs_would_leave_is_found_after_a_real_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = chaos_run.settle
    monkeypatch.setattr(chaos_run, "settle", lambda lab: (settle(lab), tamper(lab)))
    result = chaos_run.run(tmp_path / "chaos", Wanted(8, 5))
    kinds = {each.what.partition(":")[0].partition(" of attempt")[0] for each in result.found}
    left = {"a process is left", "a draft of a file is left", "the value of a secret is in a file"}
    assert kinds - {"`rung logs` does not show what the log"} == {*left, "the log"}
