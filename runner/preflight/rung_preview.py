"""Owns what each rung would change of a launch: words of the command, variables, files, settings made inside the job.

It is the first half of the real path: the rung's own function, the next attempt, its request. No start.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rung.jobs.job import Attempt, Job
from rung.jobs.model.knobs import Knobs, RungName
from rung.jobs.model.paths import HomePaths
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.knob_channels import why_unreachable
from rung.jobs.spec.recovery_spec import RungSpec
from rung.recovery.decide.decide import Relaunch
from rung.recovery.decide.rungs import RungContext, apply_rung
from rung.runner.files.work_copy import edited
from rung.runner.launch.request import build_request
from rung.runner.seams.engine import Request
from rung.runner.state.next_attempt import Placement, next_attempt

# Lines of a file shown around a change.
CONTEXT = 1
# What the code inside is told is shown as the knobs themselves.
OWN = "RUNG_"
LATER = "the script's own lr, which is known after the first attempt"
AROUND = "the updates around the fault are left out; which ones is known when there is one"

Pair = tuple[str, str]


@dataclass(frozen=True)
class WhatIf:
    """One rung: why it would be skipped, or what it would change."""

    rung: str
    skipped: str = ""
    knobs: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    command: tuple[Pair, ...] = ()
    env: Mapping[str, Pair] = field(default_factory=dict)
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Knobs that the code inside the job sets on the live objects.
    inside: tuple[str, ...] = ()
    note: str = ""
    # What a knob is that nobody has set.
    unset: str = "unset"

    def to_dict(self) -> dict[str, Any]:
        if self.skipped:
            return {"rung": self.rung, "skipped": self.skipped}
        told = {"knobs": dict(self.knobs), "command": list(self.command), "env": dict(self.env)}
        files = {path: list(lines) for path, lines in self.files.items()}
        return {"rung": self.rung, **told, "files": files, "inside": list(self.inside), "note": self.note or None}

    def lines(self) -> Iterator[str]:
        """Yield what it would do, for a person: the rung first, then each thing that changes below it."""
        if self.skipped:
            yield f"rung  {self.rung}: skipped, {self.skipped}"
            return
        yield f"rung  {self.rung}: {self.note or self._knob_text()}"
        yield from (f"        run   {old or 'nothing'} -> {new or 'nothing'}" for old, new in self.command)
        yield from (f"        env   {name}: {old or 'nothing'} -> {new}" for name, (old, new) in self.env.items())
        for path, diff in self.files.items():
            yield f"        file  {path}"
            yield from (f"              {line}" for line in diff)
        if self.inside:
            yield f"        live  {', '.join(self.inside)}: set on the live objects, by the code inside the job"

    def _knob_text(self) -> str:
        told = ((name, self.unset if old is None else old, new) for name, (old, new) in self.knobs.items())
        return ", ".join(f"{name} {old} -> {new}" for name, old, new in told)


class Ladder:
    """What the rungs of one job would change of its first attempt."""

    def __init__(self, job: Job, first: Attempt, home: tuple[HomePaths, Mapping[str, str]], origin: Path) -> None:
        self._job, self._first = job, first
        self._home, self._origin = home, origin
        self._before = self._request(first)

    def rungs(self) -> list[WhatIf]:
        """Return one answer for every rung of the job's ladder, and for the one that out of memory adds to it."""
        steps = list(self._job.spec.recovery.rungs)
        if all(step.rung is not RungName.LOWER_BATCH for step in steps):
            steps.append(RungSpec(rung=RungName.LOWER_BATCH))
        return [self._rung(step) for step in steps]

    def resume(self) -> WhatIf:
        """Return what every relaunch changes beside its rung: it goes on from the last healthy checkpoint."""
        found = replace(self._first, resumed_from=self._job.spec.checkpoint.pattern)
        return self._difference("resume", self._request(found), {})

    def _rung(self, step: RungSpec) -> WhatIf:
        spec, knobs = self._job.spec, self._job.knobs
        after = apply_rung(step, RungContext(spec, knobs, knobs))
        note = ""
        if isinstance(after, str) and step.rung is RungName.LOWER_LR:
            after, note = _later(step, spec, knobs, after)
        if isinstance(after, str) and step.rung is RungName.SKIP_DATA:
            return WhatIf(step.rung.value, why_unreachable(spec, "skip") or "", note=AROUND)
        if isinstance(after, str):
            return WhatIf(step.rung.value, after)
        decision = Relaunch(step.rung, after, None, "")
        spot = Placement(self._first.host, self._first.gpus, self._first.image, self._first.stay)
        then = next_attempt(self._job, self._first.number + 1, spot, decision, 0.0)
        found = self._difference(step.rung.value, self._request(then), after.changes_from(knobs))
        return replace(found, knobs={}, note=note) if note else found

    def _request(self, attempt: Attempt) -> Request:
        paths, environ = self._home
        return build_request(self._job, attempt, paths, self._origin, environ)

    def _difference(self, rung: str, after: Request, knobs: Mapping[str, tuple[Any, Any]]) -> WhatIf:
        before, live = self._before, self._job.spec.knobs.mode != "flags"
        return WhatIf(
            rung,
            knobs=knobs,
            command=tuple(word_changes(before.argv, after.argv)),
            env=_env_changes(before.env, after.env),
            files=self._file_changes(after),
            inside=tuple(knobs) if live else (),
            unset="the script's own" if self._job.spec.knobs.mode == "zero-edit" else "unset",
        )

    def _file_changes(self, after: Request) -> dict[str, tuple[str, ...]]:
        if after.source is None:
            return {}
        old, new = edited(after.source, self._before.edits), edited(after.source, after.edits)
        return {path: _diff(old[path], new[path]) for path in new if old[path] != new[path]}


def _later(step: RungSpec, spec: JobSpec, knobs: Knobs, why: str) -> tuple[Knobs | str, str]:
    """Return what lower_lr does where the lr is read from the running script, by the factor alone."""
    if spec.knobs.mode != "zero-edit" or knobs.lr is not None:
        return why, ""
    after = apply_rung(step, RungContext(spec, knobs, knobs, script_values=Knobs(lr=1.0)))
    return after, f"lr -> {after.lr:g} x {LATER}" if isinstance(after, Knobs) else ""


def word_changes(before: tuple[str, ...], after: tuple[str, ...]) -> Iterator[Pair]:
    """Yield the words of a command that differ, each with the option that it belongs to."""
    for kind, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        named = a > 0 and before[a - 1].startswith("-") and "=" not in before[a - 1] and kind == "replace"
        shift = 1 if named else 0
        yield shlex.join(before[a - shift : b]), shlex.join(after[c - shift : d])


def _env_changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, Pair]:
    names = [name for name in after if before.get(name) != after[name] and not name.startswith(OWN)]
    return {name: (before.get(name, ""), after[name]) for name in names}


def _diff(old: str, new: str) -> tuple[str, ...]:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=CONTEXT, lineterm="")
    return tuple(line for line in lines if not line.startswith(("---", "+++")))
