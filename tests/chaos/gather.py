"""Gathers the evidence of a run that has settled: from the ledgers, the journal, the files, and what Rung says."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.chaos.evidence import DAMAGED_LATE, DISK_FULL, WRAPPER_KILLED, Evidence, JobEvidence, Told
from tests.chaos.lab import RUNG, Lab
from tests.chaos.ledger import Record, Run, read_ledger, runs_of
from tests.chaos.training import sum_of

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
# Names that files have only while they are written.
DRAFT = re.compile(r"\.draft|claim\.\d+|request\.\d+|\.copy$|\.tmp$|\.part$|\.new$")
# What Rung says in the log of a job on a host: that it lacks its end, and what a full disk there has kept it from.
LACKS_ITS_END = re.compile(rb"rung: (this log may lack its last lines|the host cannot read the rest of this log)")
OWN_LINE = re.compile(LACKS_ITS_END.pattern + rb"|rung: the (record|checkpoint folder) .* cannot be")
# A training that is killed leaves the draft of its own checkpoint.
OWN_DRAFT = re.compile(r"^\.draft-\d+$")


def gather(lab: Lab) -> Evidence:
    ids = {name: job_id for job_id, name in lab.read("SELECT id, name FROM jobs")}
    return Evidence(
        jobs=tuple(_job(lab, name, file, ids.get(name)) for name, file in lab.jobs),
        most_at_once=lab.runs.most_at_once,
        secret=sum_of(lab.token.encode()),
        leases=tuple(" ".join(map(str, row)) for row in lab.read("SELECT gpu, job_id, attempt FROM leases")),
        processes=tuple(_processes(lab)),
        on_hosts=(*lab.runs.leftovers(), *(f"attempt that was given up: {each}" for each in lab.given_up())),
        drafts=tuple(_drafts(lab)),
        secrets=tuple(_secrets(lab)),
        controllers=tuple(lab.journal.controllers),
        unsettled=tuple(lab.journal.unsettled),
    )


def _job(lab: Lab, name: str, file: Path, job_id: str | None) -> JobEvidence:
    commands = [command for command in lab.journal.commands if command.job in (name, job_id)]
    launched = any(command.words[0] == "launch" and command.code == 0 for command in commands)
    runs = tuple(_runs(lab, name))
    steps = json.loads(file.with_suffix(".json").read_bytes())["steps"]
    if job_id is None:
        return JobEvidence(name, None, launched=launched, runs=runs, steps=steps)
    history = json.loads(ask(lab, "history", "--json", job_id))
    ends = [event for event in history["events"] if event["kind"] == "state" and event["data"]["to"] in ENDED]
    return JobEvidence(
        name,
        job_id,
        history["job"]["state"],
        launched,
        cancels=sum(command.words[0] == "cancel" for command in commands),
        retries=sum(command.words[0] == "retry" and command.code == 0 for command in commands),
        ends=len(ends),
        attempts=tuple(_told(lab, job_id, attempt, history) for attempt in history["attempts"]),
        runs=runs,
        steps=steps,
        injected={attempt["number"]: _injected(lab, job_id, attempt) for attempt in history["attempts"]},
        recorded=_recorded(lab, job_id, [attempt["number"] for attempt in history["attempts"]]),
    )


def _runs(lab: Lab, name: str) -> list[Run]:
    """Return the processes of a job; what they printed as a log has it."""
    return runs_of([_as_logged(lab, record) for record in read_ledger(lab.runs.ledger(name))])


def _as_logged(lab: Lab, record: Record) -> Record:
    if record["kind"] != "line":
        return record
    return {**record, "text": lab.runs.as_logged(record["text"].encode("latin-1")).decode("latin-1")}


def _recorded(lab: Lab, job_id: str, attempts: list[int]) -> dict[int, int]:
    codes = {number: lab.runs.recorded_code(job_id, number) for number in attempts}
    return {number: code for number, code in codes.items() if code is not None}


def _injected(lab: Lab, job_id: str, attempt: dict[str, Any]) -> frozenset[str]:
    journal, number = lab.journal, attempt["number"]
    kinds = set(journal.attempts.get((job_id, number), ()))
    if number >= journal.damaged_late.get(job_id, number + 1):
        kinds.add(DAMAGED_LATE)
    kinds |= {DISK_FULL for first, last in journal.full if _ran_then(attempt, first, last)}
    there = [each for each in journal.hosts if each[0] in (attempt.get("host"), attempt.get("node"))]
    return frozenset(kinds | {kind for _, kind, first, last in there if _ran_then(attempt, first, last)})


def _ran_then(attempt: dict[str, Any], first: float, last: float) -> bool:
    started, ended = attempt["started_at"], attempt["ended_at"]
    return (started is None or started <= last) and (ended is None or ended >= first)


def _told(lab: Lab, job_id: str, attempt: dict[str, Any], history: dict[str, Any]) -> Told:
    log = lab.home / "jobs" / job_id / "attempts" / str(attempt["number"]) / "log"
    # Not splitlines: only a line feed ends a line of these jobs. What has none is half a line.
    lines = re.findall(rb"[^\n]*\n|[^\n]+$", log.read_bytes()) if log.exists() else []
    garbage = lab.journal.garbage
    shown = None
    # One call takes a second: the newest log of each job is asked for.
    if attempt is history["attempts"][-1] and lines:
        text = ask(lab, "logs", job_id).decode("utf-8", "replace").split("\n")[:-1]
        shown = tuple(line for line in text if not (line.startswith("garbage ") or _is_no_output(lab, line.encode())))
    fault = attempt["fault"]["kind"] if attempt["fault"] else None
    kept = tuple(line for line in lines if not (line in garbage or _is_no_output(lab, line)))
    incomplete = any(LACKS_ITS_END.match(line) for line in lines)
    about = attempt["number"], attempt["outcome"], fault, attempt["resumed_from"]
    return Told(*about, kept, shown, bool(attempt.get("host_lost")), incomplete)


def _is_no_output(lab: Lab, line: bytes) -> bool:
    """Tell whether a line of a log is not of the job: it is one of Rung's own, or of the engine."""
    return OWN_LINE.match(line) is not None or lab.runs.is_not_of_the_job(line)


def ask(lab: Lab, *words: str) -> bytes:
    """Return what a command prints."""
    done = subprocess.run([RUNG, *words], env=lab.env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert done.returncode == 0, f"rung {' '.join(words)}: {done.stderr.decode(errors='replace')}"
    return done.stdout


def _processes(lab: Lab) -> Iterator[str]:
    for pid in lab.runs.all_processes():
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        yield f"pid {pid}: {command[:200]}"


def _drafts(lab: Lab) -> Iterator[str]:
    for path in lab.home.rglob("*"):
        if DRAFT.search(path.name) and not OWN_DRAFT.match(path.name) and not _is_reserved(lab, path):
            yield str(path.relative_to(lab.home))
    for path in (lab.folder / "tmp").iterdir():
        yield f"TMPDIR/{path.name}"


def _is_reserved(lab: Lab, path: Path) -> bool:
    """Tell whether this is the room that a wrapper reserves for its record; one that is killed cannot give it back."""
    number, job_id = path.parent.name, path.parents[2].name
    return path.name == "done.draft" and WRAPPER_KILLED in lab.journal.attempts.get((job_id, int(number)), ())


def _secrets(lab: Lab) -> Iterator[str]:
    for place in (lab.home, *lab.runs.places_of_secrets()):
        for path in place.rglob("*"):
            if path.is_file() and not path.is_symlink() and lab.token.encode() in path.read_bytes():
                yield str(path.relative_to(place.parent))
