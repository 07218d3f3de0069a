"""Tests that every `--json` output is what docs/schemas says: no field is missing, extra or of another type."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from rung.jobs.job import Attempt, Job, Outcome, Verdict
from rung.jobs.model.engine import DOCKER, SLURM, EndedBy
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.gpu import Gpu, Member
from rung.jobs.model.host import Host
from rung.jobs.model.knobs import Knobs, Precision
from rung.jobs.model.saturation import Saturation
from rung.jobs.model.state import JobState
from rung.jobs.model.trial import Candidate, Trial
from rung.jobs.site.partitions import Nodes, Partition
from rung.jobs.site.settings import Site
from rung.jobs.spec.job_spec import JobSpec
from rung.recovery.evidence.calibration import Calibration, Prediction
from rung.recovery.ledger.chance import Chance
from rung.recovery.ledger.row import Row, WonAgainst
from rung.recovery.nodes.bad_places import find_bad_places
from rung.recovery.validation.explanations import Answer
from rung.recovery.validation.near_limit import NearLimit
from rung.recovery.validation.run_figures import Figures, Usage
from rung.recovery.validation.verdict import Judgement, Rule, Run
from rung.recovery.validation.verdict import Verdict as Validated
from rung.runner.checkpoints.listing import Row as CheckpointRow
from rung.runner.cli.main import cli
from rung.runner.hosts.health import Health
from rung.runner.hosts.survey import Disk, GpuState, Report
from rung.runner.session.doctor_runs import SeenInRun
from rung.runner.session.drill import DrillVerdict
from rung.runner.session.image_ops import Pinned
from rung.runner.state.store import Store
from rung.runner.validation.report import Findings
from rung.runner.validation.report_files import facts
from rung.runner.views.hosts_table import hosts_json
from rung.runner.views.ledger_tables import calibration_data
from tests.support.ended_jobs import IMAGE, Shelf
from tests.support.json_schemas import NAMES, SCHEMAS, problems, properties, schema, seen
from tests.support.places import died
from tests.support.recovered_job import recovered_job

ROOT = Path(__file__).resolve().parents[3]
# The schemas of each command; `rm` and `prune` print the same.
LAUNCH = ("launch", "launch-dryrun", "launch-grid", "launch-grid-dryrun")
SCHEMAS_OF: dict[str, tuple[str, ...]] = {
    "doctor": ("doctor", "doctor-rules"),
    "image lock": ("image-lock",),
    "image send": ("image-send",),
    "ladder": ("ladder", "ladder-calibration"),
    "launch": LAUNCH,
    "cancel": ("cancel", "cancel-group"),
    "notify": ("notify", "notify-test"),
    "report": ("report", "report-since"),
    "prune": ("removal",),
    "rm": ("removal",),
}
GPU = Gpu("NVIDIA A100-SXM4-40GB", (8, 0), 0, "GPU-1", 40 << 30, "550.54")
KNOBS = Knobs(1e-3, 1.0, 2000, Precision.AMP_FP16, 8, 2, "fp32", "3-4", "clamp", "head", "tf32")
FAULT = Fault(
    FaultKind.NAN_LOSS, "loss: nan", 12, 520, 515, "drift", "a note", {"weights": "finite"}, "train.py:3: x", 2.0
)
TRAIN = """
import sys
if sys.argv[1] == 'fp32':
    print('step 1 loss 1.0')
for step in range(1, 41):
    print(f'step {step} loss {1 / step:.4f} grad_norm 0.5 lr 0.1 loss_scale 1024', flush=True)
print('val_loss 0.5')
"""
SINFO = """#!/bin/sh
[ "$1" = --version ] && echo "slurm 22.05.8" || echo "node1|gpu*|infinite|1-infinite|8|(null)"
"""
LINTED = "import torch\nx = torch.zeros(2).half()\nx.masked_fill_(x > 0, -1e9)\n"


class Lab:
    """A home with real jobs, and everything that commands print of it, by the name of its schema."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.outputs = folder, dict[str, list[Any]]()
        self.home = recovered_job(folder)

    def rung(self, name: str, *words: str | Path, **env: str) -> Any:
        env |= {"RUNG_HOME": str(self.home), "RUNG_HOSTS": str(self.folder / "hosts.yml"), "RUNG_CONTROLLER": "manual"}
        ran = CliRunner().invoke(cli, [*map(str, words), "--json"], env=env)
        assert isinstance(ran.exception, SystemExit | None), ran.exception
        self.add(name, json.loads(ran.stdout))
        return self.outputs[name][-1]

    def add(self, name: str, output: Any) -> None:
        self.outputs.setdefault(name, []).append(json.loads(json.dumps(output)))

    def write(self, name: str, text: str) -> Path:
        (self.folder / name).write_text(text, encoding="utf-8")
        return self.folder / name

    def job(self, name: str, **fields: Any) -> Path:
        return self.write(f"{name}.yaml", yaml.safe_dump({"name": name, **fields}))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, once: Callable[[str, Callable[[], Lab]], Lab]) -> Lab:
    return once("json_contracts", lambda: made_lab(tmp_path_factory.mktemp("contracts")))


def made_lab(folder: Path) -> Lab:
    lab = Lab(folder)
    _launch_on_several_hosts(lab)
    _launch_at_a_site(lab)
    lab.write("hosts.yml", "all: {hosts: {gone: {ansible_host: 127.0.0.1, ansible_port: 9}}}\n")
    _launch(lab)
    _write_full_job(lab.home)
    _review(lab)
    _validate(lab)
    _remove(lab)
    _without_hosts(lab)
    return lab


def _launch_on_several_hosts(lab: Lab) -> None:
    gone = {"ansible_host": "127.0.0.1", "ansible_port": 9, "rung_shared": "/srv/rung"}
    lab.write("hosts.yml", yaml.safe_dump({"all": {"hosts": {"gone": gone, "lost": gone}}}))
    several = lab.job("several", run="python train.py {seed}", image=IMAGE, ranks=1, resources={"nodes": 2})
    lab.rung("launch-grid-dryrun", "launch", several, "--grid", "seed=1,2", "--dryrun")
    single = lab.job("single", run="python train.py", image=IMAGE, ranks=1, resources={"nodes": 2})
    lab.rung("launch-dryrun", "launch", single, "--dryrun")


def _launch_at_a_site(lab: Lab) -> None:
    """Ask what would be launched at a site whose commands are scripts: only what they print is looked at."""
    commands = lab.folder / "commands"
    commands.mkdir()
    for name in ("sinfo", "sbatch"):
        (commands / name).write_text(SINFO if name == "sinfo" else "#!/bin/sh\n", encoding="utf-8")
        (commands / name).chmod(0o755)
    site = {"ansible_connection": "local", "rung_engine": "slurm", "rung_slurm": {"venv": "/opt/venv"}}
    lab.write("hosts.yml", yaml.safe_dump({"all": {"hosts": {"cluster": site}}}))
    job = lab.job("batch", run="python train.py {seed}", slurm={})
    path = f"{commands}:{os.environ['PATH']}"
    lab.rung("launch-grid-dryrun", "launch", job, "--grid", "seed=1,2", "--dryrun", PATH=path)
    lab.rung("launch-dryrun", "launch", lab.job("one", run="python train.py", slurm={}), "--dryrun", PATH=path)


def _launch(lab: Lab) -> None:
    plain = lab.job("plain", run="python train.py {lr} --resume {checkpoint}", knobs={"lr": 0.1}, resources={"cpus": 1})
    config = lab.write("conf.yaml", "lr: 0.1\n")
    lab.job("files", run="python train.py", knobs={"lr": 0.1, "files": {config.name: {"lr": "lr"}}}, secrets=["TOKEN"])
    lab.job("remote", run="python train.py {lr}", knobs={"lr": 0.1}, image=IMAGE, envs={"LR": "{lr}"})
    grid = lab.job("grid", run="python train.py {lr} {seed}", knobs={"lr": 0.1})
    remote = lab.job("remote-grid", run="python train.py {lr} {seed}", knobs={"lr": 0.1}, image=IMAGE)
    lab.rung("launch-grid-dryrun", "launch", remote, "--grid", "seed=1,2", "--dryrun")
    for name in ("plain", "files", "remote"):
        lab.rung("launch-dryrun", "launch", lab.folder / f"{name}.yaml", "--dryrun")
    lab.rung("launch-grid-dryrun", "launch", grid, "--grid", "seed=1,2", "--at-once", "1", "--dryrun")
    group = lab.rung("launch-grid", "launch", grid, "--grid", "seed=1,2", "--at-once", "1")["group"]
    lab.rung("cancel-group", "cancel", group)
    job = lab.rung("launch", "launch", plain)["id"]
    lab.rung("cancel", "cancel", job)
    lab.rung("retry", "retry", job, "--set", "lr=0.01")
    lab.rung("cancel", "cancel", job)


def full_attempt(job: Job) -> Attempt:
    """Return an attempt in which nothing is missing."""
    candidate = Candidate("lower_lr", KNOBS, 0.1)
    trial = Trial(1, 0, (candidate,), 1, 2, 3, 4, 0.5, True, ((1, 0.5),), 3.5, "survived", won=True)
    return Attempt(
        job.id, 1, "ampere", KNOBS, "lower_lr", "because", False, (("fp32", "no"),), (("raise_clip", "no"),), (GPU,),
        IMAGE, 2, "step_5.pt", 50, ("other", 1), 1.0, {"lr": 2e-3, "precision": "fp32"}, Saturation(100, 50),
        "no torch", "no loader", {"step_5.pt": 5}, 1, 6, 520, 1000, 2.5, 3.0, {"val_loss": float("inf")}, {"lr": 1e-3},
        {"it/s": 9.5}, 2.0, True, Verdict.RECOVERED, "it learns", True, ((1, 2.0),), 5, 6, True, ("https://x",),
        "nan_loss", "run1", trial, FAULT, Outcome.FAULT, 1, 10.0, 11.0, 12.0, 3.0, 5.0, True,
        engine=DOCKER, members=(Member("pascal", (GPU,)),), node="n1", gpus_asked="A100:1",
        ended_by=EndedBy.OUT_OF_MEMORY, purge_step=6,
    )  # fmt: skip


def _write_full_job(home: Path) -> None:
    spec = JobSpec.model_validate(
        {"name": "full", "run": "x {lr}", "knobs": {"lr": 0.1}, "success": {"metric": "val_loss", "below": 2.0}}
    )
    other = spec.model_copy(update={"success": spec.success.model_copy(update={"below": None, "above": 0.5})})
    store = Store(home / "rung.db")
    with store.transaction():
        for each in (spec, other):
            job = store.add_job(each, home, at=1.0)
            store.put_attempt(full_attempt(job))
            later = replace(full_attempt(job), number=2, trial=None, fault=None, resumed_step=400, progress_at=13.0)
            store.put_attempt(replace(later, outcome=Outcome.INTERRUPTED, ended_by=EndedBy.TIME_LIMIT))
            for state in (JobState.LAUNCHING, JobState.RUNNING, JobState.FAILED):
                store.move(job.id, state, reason="", at=20.0)
    store.close()
    log = home / "jobs" / job.id / "attempts" / "1" / "log"
    log.parent.mkdir(parents=True)
    log.write_text("step 3 loss 0.5 grad_norm 0.25 lr 0.1 loss_scale 1024 9.5 it/s\nval_loss 0.25\n", encoding="utf-8")


def _review(lab: Lab) -> None:
    for job in ("fallen", "full", "full-5"):
        lab.rung("history", "history", job)
    lab.rung("queue", "queue")
    lab.rung("report", "report", "fallen")
    lab.rung("report-since", "report", "--since", "1970-01-02")
    settings = lab.home / "notify.yaml"
    settings.write_text("targets: {nobody: json://127.0.0.1:9}\n", encoding="utf-8")
    settings.chmod(0o600)
    lab.rung("notify", "notify")
    lab.rung("notify-test", "notify", "--test")
    lab.rung("compare", "compare", "full-5", "full-6")
    lab.rung("compare", "compare", "fallen-1", "full-5")
    lab.rung("checkpoints", "checkpoints", "fallen-1")
    lab.rung("pull", "pull", "fallen-1", "--to", lab.folder / "pulled")
    lab.rung("check", "check")
    lab.rung("hosts", "hosts")
    lab.rung("doctor", "doctor", lab.write("linted.py", LINTED), lab.write("broken.py", "def"))
    lab.rung("doctor-rules", "doctor", "--rules")
    lab.rung("explain", "explain", lab.home / "jobs" / "fallen-1" / "attempts" / "1" / "log")
    lab.rung("init", "init", lab.folder / "train.py", "--print")
    lab.rung("ladder", "ladder")
    lab.rung("ladder-calibration", "ladder", "--calibration")


def _validate(lab: Lab) -> None:
    lab.write("val.py", TRAIN)
    job = {
        "run": "python val.py {precision}",
        "knobs": {"precision": "amp_fp16"},
        "success": {"metric": "val_loss", "below": 2},
    }
    lab.rung("validate", "validate", lab.job("val", **job))


def _remove(lab: Lab) -> None:
    shelf = Shelf(lab.home)
    old, remote = shelf.add("old"), shelf.add("away", image=IMAGE, resources={"gpu": "A100:1"})
    for step in (1, 2, 3):
        shelf.write(old, f"checkpoints/step_{step}.pt")
    shelf.store.close()
    lab.rung("removal", "prune", "--dry-run")
    lab.rung("removal", "rm", old, remote, "--yes")


def _without_hosts(lab: Lab) -> None:
    """Add what only hosts, GPUs and long runs bring: the functions that the commands print, with made-up data."""
    state = GpuState(GPU, job="full-5", foreign_processes=("python",))
    health = Health("bad", "fan", "it is loud", "clean it")
    host = Host("ampere", "10.0.0.1", groups=("gpus",))
    report = Report(host, engine="20.10", disks=(Disk("/", 1, 2),), gpus=(state,), health=(health,))
    there = {"host": "ampere", "node": "n1"}
    bad = find_bad_places([died("a-1", 1.0, host="ampere"), died("b-2", 2.0, **there), died("c-3", 3.0, **there)], 4.0)
    partition = Partition("gpu", (Nodes(2, (("a100", 4),)),), is_default=True, time=3600, most_nodes=2)
    at_site = replace(host, engine=SLURM, site=Site())
    site = Report(at_site, engine="slurm 22.05", site_gpus=(("a100", 8),), partitions=(partition,))
    lab.add("hosts", hosts_json([site, report], bad, 4.0))
    seen_in_run = SeenInRun("full-5", "validation v1", ("head",), "keep it in FP32")
    lab.add("doctor", {**lab.outputs["doctor"][0], "seen_in_runs": [asdict(seen_in_run)]})
    row = Row(FaultKind.NAN_LOSS, "A100", "fp32", lead=0.5, won_against=(WonAgainst("lower_lr", 1, 1, 0.5),))
    lab.add("ladder", [row.to_dict()])
    prediction = Prediction("a-1", 2, FaultKind.NAN_LOSS, "cpu", "fp32", Chance(0.5, 0.2, 0.8, 3), True, True)
    lab.add("ladder-calibration", calibration_data(Calibration((prediction,))))
    figures = Figures(usage=Usage(3, 0.5, 1, 2, GPU.name, GPU.capability), near=NearLimit(9, 9, {"a": 6e4}, {"a": 6e4}))
    run = Run("val-1", "fp32", True, "", FAULT, figures=figures)
    judged, answers = Judgement(Validated.FAIL, "", 3.5), (Answer("?", "!", ("c",)),)
    found = Findings("v1", "val", Rule("val_loss"), judged, run, run, answers, 1.0)
    report = {"verdict": "FAIL", "exit_code": 1, "report": None}
    lab.add("validate", {**facts(found), **report})
    saved = CheckpointRow("step_5.pt", 5, "name", "torch", 9, 1.0, "healthy", "full", "", (2,), "here")
    lab.add("checkpoints", [saved.to_dict()])
    lab.add("drill", asdict(DrillVerdict(True, "cured", "drill-nan-1", 2, 3.5)))
    lab.add("image-lock", [vars(Pinned("train:1", IMAGE, "ampere"))])
    lab.add("image-send", {"id": "sha256:0", "host": "ampere", "bytes": 5})


# The outputs


@pytest.mark.parametrize("name", NAMES)
def test_every_output_is_as_documented(name: str, lab: Lab) -> None:
    for output in lab.outputs[name]:
        assert problems(name, output) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_documented_field_is_seen(name: str, lab: Lab) -> None:
    found = {path for output in lab.outputs[name] for path in seen(schema(name), output)}
    assert sorted(set(properties(schema(name))) - found) == []


def test_every_field_of_an_attempt_is_seen_with_a_value(lab: Lab) -> None:
    """Null would fit almost any of them."""
    found = {path for output in lab.outputs["history"] for path in seen(schema("history"), output)}
    of_attempts = {path for path in properties(schema("history")) if path.startswith(".attempts")}
    assert len(of_attempts) > 100
    assert sorted(path for path in of_attempts if f"{path}!" not in found) == []


def objects(schema: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every object of an output whose fields are documented, with its schema."""
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for each in value:
            yield from objects(schema["items"], each)
    if isinstance(value, dict) and "properties" in schema:
        yield schema, value
        for key, below in schema["properties"].items():
            yield from objects(below, value.get(key))


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"launch-grid-dryrun"}))
def test_a_field_that_is_missing_renamed_added_or_of_another_type_is_noticed(name: str, lab: Lab) -> None:
    output = copy.deepcopy(lab.outputs[name][-1])
    found = list(objects(schema(name), output))
    assert found
    for below, value in found[:6] + found[-2:]:
        for key in below["required"]:
            kept = value.pop(key)
            assert problems(name, output), f"{key} may be missing"
            value[f"{key}_renamed"] = kept
            assert problems(name, output), f"{key} may be renamed"
            del value[f"{key}_renamed"]
            if below["properties"][key].get("type") or "anyOf" in below["properties"][key]:
                value[key] = {"odd": object} if "object" not in below["properties"][key].get("type", ()) else "odd"
                assert problems(name, output), f"{key} may have any type"
            value[key] = kept
        value["extra"] = 1
        assert problems(name, output), "an undocumented field is not noticed"
        del value["extra"]
    assert problems(name, output) == []


# The documents


def commands(group: click.Group, before: str = "") -> Iterator[str]:
    """Yield the name of every command that has `--json`."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{before}{name} ")
        elif any("--json" in param.opts for param in command.params):
            yield f"{before}{name}"


def test_every_command_with_json_has_its_schemas_and_no_schema_is_left_over() -> None:
    names = [schema for command in commands(cli) for schema in SCHEMAS_OF.get(command, (command,))]
    assert sorted(set(names)) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_a_schema_and_is_in_the_page(name: str) -> None:
    Draft202012Validator.check_schema(schema(name))
    assert schema(name)["$id"] == f"{name}.json"
    assert f"](schemas/{name}.json)" in (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    text = (SCHEMAS / f"{name}.json").read_text(encoding="utf-8")
    assert text == json.dumps(schema(name), indent=2) + "\n"
