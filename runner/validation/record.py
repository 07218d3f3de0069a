"""Defines a validation as it is stored: what is compared, the two jobs, and the verdict."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from rung.jobs.model.errors import StoreError, UsageError
from rung.jobs.model.knobs import Precision
from rung.jobs.spec.fields import STORED
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.knob_channels import why_unreachable
from rung.recovery.validation.verdict import Verdict, rule_of
from rung.runner.files.ignore import Ignored
from rung.runner.state.store import Store

# The files of a workdir that decide how a run computes: code and settings. Data and results are too large to read.
CODE = frozenset(
    {".py", ".pyx", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".sh"}
    | {".yaml", ".yml", ".json", ".toml", ".cfg", ".ini"}
)
LEFT_OUT = frozenset({"__pycache__", "node_modules"})
MOST_FILES = 5_000
MOST_BYTES = 1 << 20
# Fields that do not change the numbers of a run.
NOT_COMPARED = {"name", "priority", "recovery"}
# A name has at most a hundred characters.
LONGEST_NAME = 70
# Fields whose name in the store is older than their name in the code.
STORED_NAMES = {"for_job": "of", "blocks_job": "holds"}


@dataclass(frozen=True)
class Validation:
    """One comparison, from the request to the verdict."""

    number: int
    digest: str
    spec: JobSpec
    origin: Path
    metric: str
    asked_at: float
    # The job that was named or that waits; None if a file was validated.
    for_job: str | None = None
    # Whether that job waits for the verdict.
    blocks_job: bool = False
    baseline: str | None = None
    candidate: str | None = None
    verdict: Verdict | None = None
    because: str = ""
    # The Python of the shell that asked for it, for runs on this machine.
    python: str | None = None

    @property
    def id(self) -> str:
        return f"v{self.number}"

    def but(self, **changes: Any) -> Validation:
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        data = {STORED_NAMES.get(field.name, field.name): getattr(self, field.name) for field in fields(self)}
        del data["number"], data["digest"]
        return {**data, "spec": self.spec.model_dump(mode="json"), "origin": str(self.origin)}

    @classmethod
    def from_row(cls, number: int, digest: str, data: dict[str, Any]) -> Validation:
        verdict = Verdict(data["verdict"]) if data["verdict"] else None
        spec = JobSpec.model_validate(data["spec"], context=STORED)
        made = {"spec": spec, "origin": Path(data["origin"]), "verdict": verdict}
        renamed = {name: data.pop(stored) for name, stored in STORED_NAMES.items() if stored in data}
        return cls(number, digest, **{**data, **renamed, **made})


def validations(store: Store, *, active: bool = False) -> list[Validation]:
    try:
        return [Validation.from_row(*row) for row in store.validations(active=active)]
    except (ValueError, TypeError, LookupError) as error:
        what = str(error).splitlines()[0]
        raise StoreError(
            f"a validation in the store cannot be read ({what}); bring the store back from a copy"
        ) from None


def refuse_useless(spec: JobSpec, metric: str | None) -> None:
    """Refuse a job that has nothing to validate, or cannot be run in FP32."""
    if rule_of(spec, metric) is None:
        raise UsageError(
            f"{spec.name}: there is no number to compare: name it in success.metric, validation.metric or --metric"
        )
    if spec.knobs.knobs().precision is Precision.FP32:
        raise UsageError(f"{spec.name}: knobs.precision is fp32 already: there is nothing to validate")
    if reason := why_unreachable(spec, "precision", Precision.FP32):
        raise UsageError(f"{spec.name}: its FP32 baseline cannot be run: {reason}")


def digest_of(spec: JobSpec, origin: Path, metric: str, home: Path) -> str:
    """Return a digest of what is compared: the job without its recovery, and the code and settings in its workdir.

    Files in RUNG_HOME do not count, if it is in the workdir.
    """
    compared = spec.model_dump(mode="json", exclude=NOT_COMPARED)
    whole = hashlib.sha256(json.dumps([compared, metric], sort_keys=True).encode())
    for line in _content((origin / spec.workdir).absolute(), spec, home):
        whole.update(line.encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def _content(workdir: Path, spec: JobSpec, home: Path) -> Iterator[str]:
    """Yield a line for every file that counts; a large one counts by its size and time."""
    ignored, count = Ignored(workdir), 0
    for folder, folders, names in os.walk(workdir):
        at = Path(folder).relative_to(workdir)
        kept = (name for name in folders if Path(folder) / name != home and _counts_as_folder(ignored, at / name))
        folders[:] = sorted(kept)
        for name in sorted(names):
            path = at / name
            if (path.suffix in CODE or str(path) in spec.run) and not ignored.excludes(str(path), folder=False):
                count += 1
                yield f"{path}\0{_fingerprint(workdir / path, read=count <= MOST_FILES)}\0"


def _counts_as_folder(ignored: Ignored, path: Path) -> bool:
    hidden = path.name.startswith(".") or path.name in LEFT_OUT
    return not hidden and not ignored.excludes(str(path), folder=True)


def _fingerprint(path: Path, *, read: bool) -> str:
    try:
        status = path.stat()
        if read and status.st_size <= MOST_BYTES:
            content = path.read_bytes()
            return "a job file" if _is_job_file(content) else hashlib.sha256(content).hexdigest()
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return f"{status.st_size} {status.st_mtime_ns}"


def _is_job_file(content: bytes) -> bool:
    """Tell whether a file is a job file: what counts of it is in the spec already."""
    return all(re.search(rb"^" + key + rb":", content, re.MULTILINE) for key in (b"name", b"run"))


def find_or_begin(store: Store, asked: Validation, *, again: bool = False) -> Validation:
    """Return a running or decided validation of the same content, or write this one; inside a transaction."""
    known = validations(store)
    under_way = [each for each in known if each.verdict is None and _same_question(each, asked)]
    decided = [each for each in known if each.digest == asked.digest and each.verdict not in (None, Verdict.UNDECIDED)]
    for found in under_way or ([] if again else decided[-1:]):
        return found
    return asked.but(number=store.add_validation(asked.digest, asked.to_dict()))


def _same_question(one: Validation, other: Validation) -> bool:
    """Tell whether two validations compare the same; files that a run writes beside its script do not matter."""
    if one.digest == other.digest:
        return True
    return (one.spec, one.origin, one.metric) == (other.spec, other.origin, other.metric)


def run_spec(asked: Validation, *, baseline: bool) -> JobSpec:
    """Return the job of one of the two runs: nothing is recovered in it, and its resources are measured."""
    spec = asked.spec
    precision = Precision.FP32 if baseline else spec.knobs.precision
    word = "fp32" if baseline else spec.knobs.knobs().precision or "as-asked"
    # A shared folder may have checkpoints that a run would resume from instead of beginning.
    own = {"dir": "checkpoints"} if spec.checkpoint.dir.startswith("/") else {}
    return spec.model_copy(
        update={
            "name": f"{spec.name[:LONGEST_NAME]}/validate-{word}",
            "knobs": spec.knobs.model_copy(update={"precision": precision}),
            "envs": {**spec.envs, "RUNG_USAGE": "1", **({} if baseline else {"RUNG_NEAR_LIMIT": "1"})},
            "checkpoint": spec.checkpoint.model_copy(update=own),
            "recovery": spec.recovery.model_copy(update={"max_attempts": 1, "step_back": None, "gate": "off"}),
        }
    )
