"""Tests the validation gate: whole validations through the controller, their verdicts, reports and history.

Most jobs are shell scripts that print what a training prints, so that only Rung takes time; one is a real training.
"""

import json
import re
import signal
import subprocess

import pytest
import yaml

from rung.runner.state.store import Store
from tests import pace
from tests.flow.conftest import BIN
from tests.support.times_module import TIMES

# Slow: CI runs these after the others.
pytestmark = [pytest.mark.long, pytest.mark.sample]

# A training that prints its metric: $1 is the precision, $2 the metric.
SCRIPT = """
echo "rung| knobs precision=$1"
i=0
while [ $i -lt 30 ]; do i=$((i+1)); echo "rung| step step=$i loss=0.$((900-i))${2#0.} grad_norm=0.$i skipped=0"; done
[ "$2" != nan ] || exit 1
echo "rung| metric step=30 hmean=$2"
"""
NAN = 'case "$1" in amp_fp16) for i in 31 32 33; do echo "rung| step step=$i loss=nan"; done; exit 1;; esac'


def script(fp16, extra=""):
    """Return a job with the metric 0.8863 in FP32 and the given one in FP16."""
    choose = f'case "$1" in fp32) m=0.8863;; *) m={fp16};; esac'
    body = f'{choose}\n{extra}\nset -- "$1" "$m"\n{SCRIPT}'
    return {
        "name": "ocr",
        "run": ["sh", "-c", body, "job", "{precision}"],
        "success": {"metric": "hmean", "above": 0.5},
    }


@pytest.fixture
def desk(lab):
    """Return a lab that also writes job files without a script."""

    def write(spec, **more):
        path = lab.folder / "job.yaml"
        path.write_text(yaml.safe_dump({**spec, **more}))
        return path

    lab.__dict__["file"] = write
    return lab


def test_a_degraded_precision_fails_and_the_history_keeps_it(desk):
    out = desk.rung("validate", str(desk.file(script(0.7816))), "--output", str(desk.folder / "out"), expect=1)
    last = out.splitlines()[-1]
    assert last == ("verdict: FAIL ocr: hmean 0.7816 in amp_fp16, 0.8863 in fp32: 11.81 % apart (FAIL from 2 % on)")
    assert re.search(r"hmean +0\.8863 +0\.7816 +-11\.81 %", out) and "Why is it worse?" in out
    assert "Is it slower than FP32?" in out and "Is memory not reduced?" in out
    # Two ordinary jobs, FP32 first, each launched once.
    queue = stored(desk)
    assert [job.spec.name for job in queue] == ["ocr/validate-fp32", "ocr/validate-amp_fp16"]
    assert {job.state for job in queue} == {"SUCCEEDED"}
    one, other = (desk.history(job.id) for job in queue)
    assert [len(each["attempts"]) for each in (one, other)] == [1, 1]
    assert one["attempts"][0]["ended_at"] <= other["attempts"][0]["started_at"], "they disturbed each other"
    verdicts = [event["data"] for event in other["events"] if event["kind"] == "validated"]
    assert [each["verdict"] for each in verdicts] == ["FAIL"]
    assert "FAIL (validation v1)" in desk.rung("history", queue[1].id)
    for folder in (desk.folder / "out", desk.folder / "home" / "validations" / "v1"):
        assert last in (folder / "report.md").read_text() and "<svg" in (folder / "report.html").read_text()
        assert (folder / "curves.svg").is_file()


def test_a_safe_precision_passes_and_is_not_run_again(desk):
    file = desk.file(script(0.8850))
    found = json.loads(desk.rung("validate", str(file.parent), "--json"))
    assert (found["verdict"], found["exit_code"], found["metric"]) == ("PASS", 0, "hmean")
    assert found["difference_percent"] == pytest.approx(-0.1467, abs=1e-3)
    assert found["runs"]["candidate"]["grad_norm_median"] and found["runs"]["baseline"]["skipped"] == 0
    out = desk.rung("validate", str(file))
    assert "has decided this before" in out and out.splitlines()[-1].startswith("verdict: PASS ocr: hmean 0.885 ")
    assert len(stored(desk)) == 2
    # With another bound or another script it is another validation.
    strict = desk.file(script(0.8850), validation={"pass_below": 0.1, "marginal_below": 0.2})
    assert "verdict: MARGINAL ocr" in desk.rung("validate", str(strict), expect=3)
    assert len(stored(desk)) == 4


def test_a_fault_in_fp16_is_a_fail_and_is_not_recovered(desk):
    out = desk.rung("validate", str(desk.file(script(0.88, NAN))), expect=1)
    assert out.splitlines()[-1].startswith("verdict: FAIL ocr: amp_fp16 ends with nan_loss at step 3")
    assert [job.state for job in stored(desk)] == ["SUCCEEDED", "FAILED"]
    assert [len(attempts) for attempts in with_store(desk, lambda store: list(store.attempts_by_job()))] == [1, 1]


def test_a_baseline_that_fails_is_undecided_and_the_other_run_is_not_started(desk):
    out = desk.rung("validate", str(desk.file(script(0.88, "echo 'step 1 loss nan'; exit 1"))), expect=4)
    assert out.splitlines()[-1].startswith("verdict: UNDECIDED ocr: the FP32 baseline fails too")
    assert len(stored(desk)) == 1


BEFORE = {"recovery": {"validate": "before"}}


def test_a_job_whose_validation_fails_runs_in_fp32_with_the_reason(desk):
    history = desk.run(desk.file(script(0.7816), **BEFORE))
    (attempt,) = history["attempts"]
    assert history["job"]["state"] == "SUCCEEDED" and attempt["metrics"]["hmean"] == 0.8863
    assert attempt["asked"]["precision"] == attempt["effective"]["precision"] == "fp32"
    assert attempt["because"].startswith("fp32 instead of") and "11.81 % apart" in attempt["because"]
    assert attempt["changed"] == {"precision": ["amp_fp16", "fp32"]}
    text = desk.rung("history", history["job"]["id"])
    assert "FAIL (validation v1)" in text and "report.html" in text
    # The next job of the same content uses the same verdict.
    again = desk.run(desk.file(script(0.7816), **BEFORE))
    assert again["attempts"][0]["asked"]["precision"] == "fp32"
    assert len(stored(desk)) == 4


def test_a_job_whose_validation_passes_runs_as_asked(desk):
    history = desk.run(desk.file(script(0.8850), **BEFORE))
    (attempt,) = history["attempts"]
    assert attempt["asked"]["precision"] == "amp_fp16" and attempt["because"].startswith("as submitted: PASS")
    kinds = [event["kind"] for event in history["events"]]
    assert kinds.index("validating") < kinds.index("validated") < kinds.index("decided")


def test_cancelling_a_job_cancels_its_validation(desk):
    name = desk.submit(desk.file(script(0.88, "sleep 60"), **BEFORE))
    controller = desk.controller()
    until(lambda: any(job.state == "LAUNCHING" for job in stored(desk)))
    assert stored(desk)[0].state == "QUEUED" and "waits for its validation v1" in stored(desk)[0].reason
    desk.rung("cancel", name)
    assert pace.wait(controller, 60) == 0, "the controller did not come to rest"
    assert [job.state for job in stored(desk)] == ["CANCELLED", "CANCELLED"]


def test_controllers_killed_between_any_two_steps_change_nothing(desk):
    name = desk.submit(desk.file(script(0.7816), **BEFORE))
    store, kills = Store(desk.folder / "home" / "rung.db"), 0
    while not store.job(name).ended:
        seen, controller = len(store.events()), desk.controller()
        until(lambda seen=seen, controller=controller: len(store.events()) > seen or controller.poll() is not None)
        controller.kill()
        controller.wait()
        kills += 1
    jobs, events, verdicts = store.jobs(), store.events(), [row[2]["verdict"] for row in store.validations()]
    (attempt,) = store.attempts(name)
    store.close()
    assert kills > 5, "the controllers were too quick to be killed"
    assert verdicts == ["FAIL"] and attempt.asked.precision == "fp32" and "11.81 % apart" in attempt.because
    assert [job.spec.name for job in jobs] == ["ocr", "ocr/validate-fp32", "ocr/validate-amp_fp16"]
    for job in jobs:
        kinds = [event.kind for event in events if event.job_id == job.id]
        assert [kinds.count(kind) for kind in ("decided", "started", "ended", "validated")] == [1, 1, 1, 1]


def test_an_interrupted_validation_is_resumed(desk):
    file = desk.file(script(0.8850, "sleep 2"))
    first = subprocess.Popen(
        [BIN / "rung", "validate", str(file)],
        env=desk.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts background processes with SIGINT ignored, and their children inherit it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    until(lambda: (desk.folder / "home" / "rung.db").exists() and stored(desk) and stored(desk)[0].state == "LAUNCHING")
    first.send_signal(signal.SIGINT)
    assert "the same command resumes it" in pace.communicate(first, usual=60)[1] and first.returncode == 130
    out = desk.rung("validate", str(file))
    assert "validation v1 of ocr is under way and taken up" in out and "verdict: PASS" in out
    assert [len(attempts) for attempts in with_store(desk, lambda store: list(store.attempts_by_job()))] == [1, 1]


def test_time_and_memory_of_a_real_training_are_measured(lab):
    bounds = {"pass_below": 3.0, "marginal_below": 4.0}
    file = lab.job("none", success={"metric": "val_loss", "below": 2.0}, validation=bounds)
    found = json.loads(lab.rung("validate", str(file), "--json"))
    assert found["verdict"] == "PASS"
    for run in found["runs"].values():
        usage = run["usage"]
        # A scaler can skip an update or two while it finds its scale.
        assert 110 < usage["updates"] <= 120 and 0 < usage["seconds_per_step"] < 60
        assert usage["rss_bytes"] > 1 << 20 and run["device"] == "a CPU"
    slower, memory = (answer["answer"] for answer in found["answers"][-2:])
    assert "measured in the process" in slower and "memory of the process" in memory


NEAR_BEGIN = """
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
"""
NEAR = (
    NEAR_BEGIN
    + TIMES
    + """

times = [Times(16000.0), Times(1 / 16000.0)]
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), *times, torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for step in range(60):
    x = torch.randn(64, 4)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = (model(x).float().squeeze(1) - x.sum(1)).pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(f"val_loss: {loss.item():.4f}")
"""
)


def test_modules_near_the_limit_are_in_the_report_of_a_real_training(desk):
    (desk.folder / "train.py").write_text(NEAR)
    spec = {"name": "near", "run": "python train.py", "knobs": {"mode": "zero-edit"}}
    bounds = {"pass_below": 20.0, "marginal_below": 30.0}
    file = desk.file(spec, success={"metric": "val_loss", "below": 100.0}, validation=bounds)
    out = desk.rung("validate", str(file))
    assert re.search(r"^2 +1\d{4} \(the limit / \d\.\d\)$", out, re.MULTILINE), out
    assert "keep 2 in FP32 and the rest in FP16, write knobs: {fp32_modules: [2]}" in out
    found = json.loads(desk.rung("validate", str(file), "--json"))
    assert found["near_limit"]["places"] == ["2"] and found["near_limit"]["watched"] == 6


def with_store(desk, ask):
    store = Store(desk.folder / "home" / "rung.db")
    try:
        return ask(store)
    finally:
        store.close()


def stored(desk):
    return with_store(desk, Store.jobs)


def until(condition):
    pace.until(condition, 120, every=0.02)
