"""Tests the other readers on many made-up inputs: logs, surveys, verdicts, lists of hosts, rows of the store.

Only our own errors come out, and texts are one clean line. `make test-long` tries 100,000 inputs of each kind.
"""

from __future__ import annotations

import json
import random
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.errors import InventoryError, StoreError
from rung.jobs.model.host import Host
from rung.jobs.model.knobs import Knobs
from rung.jobs.model.terminal_text import clean
from rung.jobs.spec.job_spec import JobSpec
from rung.recovery.detect.detector import Detector
from rung.recovery.detect.scan import Scan
from rung.runner.checkpoints.verify import _parse_verdicts
from rung.runner.hosts.host_list import parse_hosts
from rung.runner.hosts.nvidia_smi import parse_gpus, parse_users
from rung.runner.hosts.survey import Report, parse_facts, parse_owners
from rung.runner.state.codec import attempt_to_dict
from rung.runner.state.store import Store
from tests.support.message_lines import SAMPLES
from tests.support.random_inputs import FEW, MANY, each, text, value

COUNTS = pytest.mark.parametrize("many", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
MESSAGES = [line for lines in SAMPLES.values() for line in lines]
STEPS = ["step 5 loss 2.0", "{'loss': nan}", "loss=inf", "epoch 1: 3%|x| 1/9 [00:00<?, loss=1e999]", "rung: {"]


def a_line(rng: random.Random) -> str:
    """Return a line as a job may print it: a real message, numbers, anything, or several of them in one."""
    return "".join(rng.choice([rng.choice(MESSAGES), rng.choice(STEPS), text(rng)]) for _ in range(rng.randrange(1, 4)))


@COUNTS
def test_any_log_gives_faults_with_a_clean_line_as_their_evidence(many: int) -> None:
    def check(rng: random.Random) -> None:
        lines = [a_line(rng) for _ in range(rng.randrange(1, 6))]
        raw = "\n".join(lines).encode("utf-8", "surrogatepass")
        scan = Scan(Detector(), quick=rng.random() < 0.5)
        cut = rng.randrange(len(raw) + 1)
        faults = [*scan.feed(raw[:cut]), *scan.feed(raw[cut:]), *scan.finish()]
        for fault in faults:
            assert fault.evidence == clean(fault.evidence) and "\n" not in fault.evidence
            assert len(fault.evidence) < 2000 and fault.line is not None

    each(many, check)


WORDS = ["time", "user", "disk", "GPU-1", "NVIDIA A100", "0", "-1", "9" * 400, "8.0", "[N/A]", ", ", "\n", "%", "MiB"]


@COUNTS
def test_any_output_of_a_survey_is_a_report(many: int) -> None:
    def check(rng: random.Random) -> None:
        said = "".join(rng.choice([rng.choice(WORDS), text(rng), " "]) for _ in range(rng.randrange(30)))
        report = parse_facts(Report(Host("a", "a")), said, 1.0, 2.0)
        assert all(disk.free >= 0 for disk in report.disks)
        gpus, troubles = parse_gpus(said)
        assert all(gpu.type and "\n" not in gpu.type for gpu in gpus) and len(troubles) <= len(said)
        parse_users(said)
        parse_owners(said, {})

    each(many, check)


@COUNTS
def test_any_output_of_the_verifier_is_a_verdict_or_nothing(many: int) -> None:
    def check(rng: random.Random) -> None:
        row = {"path": text(rng), "verdict": value(rng, 1), "step": value(rng, 1), "detail": value(rng, 1)}
        lines = [json.dumps(rng.choice([row, value(rng)])), text(rng), "[" * rng.randrange(3000)]
        for name, verdict in _parse_verdicts("\n".join(rng.sample(lines, 3))).items():
            assert "/" not in name and isinstance(verdict.verdict, str)
            assert verdict.step is None or 0 <= verdict.step < 1 << 53
            assert verdict.detail == clean(verdict.detail)

    each(many, check)


@COUNTS
def test_any_list_of_hosts_is_a_list_or_an_error_of_ours(many: int) -> None:
    keys = ["all", "hosts", "children", "vars", "ansible_host", "ansible_port", "ansible_user", "rung_volume_roots"]

    def nested(rng: random.Random, depth: int) -> Any:
        if depth == 0 or rng.random() < 0.2:
            return value(rng, 1)
        return {rng.choice([*keys, text(rng)]): nested(rng, depth - 1) for _ in range(rng.randrange(4))}

    def check(rng: random.Random) -> None:
        raw = json.dumps({"all": nested(rng, 4)}) if rng.random() < 0.8 else text(rng, most=60)
        with suppress(InventoryError):
            assert all(host.name for host in parse_hosts(raw.encode("utf-8", "surrogatepass")))

    each(many, check)


@COUNTS
def test_any_row_of_the_store_is_read_or_an_error_of_ours(tmp_path: Path, many: int) -> None:
    store = Store(tmp_path / "rung.db")
    with store.transaction():
        job = store.add_job(JobSpec(name="a", run=("true",)), str(tmp_path), at=1.0)
        store.put_attempt(Attempt(job.id, 1, "h", Knobs(), None, "as submitted"))
    whole = attempt_to_dict(store.attempts(job.id)[0])

    def check(rng: random.Random) -> None:
        data = {**whole, rng.choice([*whole, text(rng)]): value(rng)} if rng.random() < 0.9 else value(rng)
        raw = json.dumps(data)
        with store.transaction():
            store._rows("UPDATE attempts SET data = ?", raw)
            store._rows("INSERT OR REPLACE INTO verdicts VALUES (?, 'a:1:2', ?)", job.id, json.dumps(value(rng)))
            query = "INSERT INTO events (at, job_id, attempt, kind, data) VALUES (1.0, ?, 1, 'x', ?) RETURNING seq"
            (event,) = store._rows(query, job.id, json.dumps(value(rng)))
        for read in (store.attempts, store.verdicts, partial(store.events, after=event["seq"] - 1)):
            with suppress(StoreError):
                read(job.id)

    each(many, check)
    store.close()
