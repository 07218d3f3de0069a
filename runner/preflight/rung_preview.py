"""Shows what each rung would change in a launch: the command, the environment, files, settings inside the job.

It builds the next attempt and its request with the code of a real relaunch, and starts nothing.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rung.jobs.job import Attempt, Job
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import Knobs, RungName, no_value_text
from rung.jobs.model.paths import HomePaths
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.knob_channels import why_unreachable
from rung.jobs.spec.recovery_spec import RungSpec
from rung.recovery.decide.decide import Relaunch
from rung.recovery.decide.rungs import BF16_CAPABILITY, RungContext, apply_rung
from rung.recovery.ledger.step_cost import fp32_cost
from rung.runner.files.work_copy import edited_texts
from rung.runner.launch.request import build_request
from rung.runner.launch.trackers import VARIABLES
from rung.runner.seams.engine import Request
from rung.runner.state.next_attempt import next_attempt, same_placement

# Lines shown around a change in a file.
CONTEXT_LINES = 1
# These variables carry the knobs, which are shown as knobs.
RUNG_VARIABLES = "RUNG_"
SCRIPT_LR = "the script's own lr, which is known after the first attempt"
SKIPPED_DATA = "the updates around the fault are left out; which ones is known when there is one"
PLACES = "only some places compute in FP32, the rest stays FP16; which ones a replay of the failing step finds"

Pair = tuple[str, str]
Changes = Mapping[str, tuple[Any, Any]]


@dataclass(frozen=True)
class RungPreview:
    """What one rung would change, or why it would be skipped."""

    rung: str
    skipped: str = ""
    knobs: Changes = field(default_factory=dict)
    command: tuple[Pair, ...] = ()
    env: Mapping[str, Pair] = field(default_factory=dict)
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Knobs that the code inside the job sets on the live objects.
    inside: tuple[str, ...] = ()
    summary: str = ""
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        if self.skipped:
            return {"rung": self.rung, "skipped": self.skipped}
        changes = {"knobs": dict(self.knobs), "command": list(self.command), "env": dict(self.env)}
        files = {path: list(lines) for path, lines in self.files.items()}
        return {"rung": self.rung, **changes, "files": files, "inside": list(self.inside), "note": self.note or None}

    def lines(self) -> Iterator[str]:
        """Yield the preview as text: the rung, then each change on a line of its own."""
        if self.skipped:
            yield f"rung  {self.rung}: skipped, {self.skipped}"
            return
        yield f"rung  {self.rung}: {self.note or self.summary}"
        yield from (f"        run   {old or 'nothing'} -> {new or 'nothing'}" for old, new in self.command)
        yield from (f"        env   {name}: {old or 'nothing'} -> {new}" for name, (old, new) in self.env.items())
        for path, diff in self.files.items():
            yield f"        file  {path}"
            yield from (f"              {line}" for line in diff)
        if self.inside:
            yield f"        live  {', '.join(self.inside)}: set on the live objects, by the code inside the job"


def rung_changes(spec: JobSpec) -> dict[str, tuple[str | Changes, str]]:
    """Return for every rung of a job's ladder which knobs it would change first or why it is skipped, and a note."""
    before, found = spec.knobs.knobs(), {step.rung.value: _first_knobs(spec, step) for step in spec.recovery.rungs}
    return {
        rung: (after if isinstance(after, str) else after.changes_from(before), note)
        for rung, (after, note) in found.items()
    }


def _first_knobs(spec: JobSpec, step: RungSpec, gpu: Gpu | None = None) -> tuple[Knobs | str, str]:
    """Return the knobs after a rung or why it is skipped, and a note where its values are known only in the run."""
    knobs = spec.knobs.knobs()
    if step.rung is RungName.SKIP_DATA:
        unreachable = why_unreachable(spec, "skip")
        return (unreachable, "") if unreachable else (knobs, SKIPPED_DATA)
    if step.rung is RungName.FP32_MODULES and not step.places:
        unreachable = why_unreachable(spec, "fp32_modules")
        return (unreachable, "") if unreachable else (knobs, PLACES + _or_fp32(gpu))
    if step.rung is RungName.LOWER_LR and spec.knobs.mode == "zero-edit" and knobs.lr is None:
        after = apply_rung(step, RungContext(spec, knobs, knobs, script_values=Knobs(lr=1.0)))
        return after, f"lr -> {after.lr:g} x {SCRIPT_LR}" if isinstance(after, Knobs) else ""
    return apply_rung(step, RungContext(spec, knobs, knobs, gpu=gpu)), ""


def _or_fp32(gpu: Gpu | None) -> str:
    """Say when FP32 as a whole is taken instead of places: on a GPU without bf16."""
    if gpu is None or gpu.capability >= BF16_CAPABILITY:
        return ""
    return f"; fp32 instead if it takes no longer than they do: FP32 as a whole costs {fp32_cost(gpu, None, None)}"


def change_text(spec: JobSpec, changes: str | Changes) -> str:
    """Return changes of knobs, or the reason of a rung that is skipped, as text."""
    if isinstance(changes, str):
        return changes

    def shown(name: str, value: Any) -> Any:
        return no_value_text(name, zero_edit=spec.knobs.mode == "zero-edit") if value is None else value

    return ", ".join(f"{name} {shown(name, old)} -> {shown(name, new)}" for name, (old, new) in changes.items())


class LadderPreview:
    """What the rungs of one job would change in its first attempt."""

    def __init__(self, job: Job, first: Attempt, home: tuple[HomePaths, Mapping[str, str]], origin: Path) -> None:
        self._job, self._first = job, first
        self._home, self._origin = home, origin
        self._before = self._request(first)

    def rungs(self) -> list[RungPreview]:
        """Return a preview of every rung of the ladder, and of lower_batch, which is used after out of memory."""
        steps = list(self._job.spec.recovery.rungs)
        if all(step.rung is not RungName.LOWER_BATCH for step in steps):
            steps.append(RungSpec(rung=RungName.LOWER_BATCH))
        return [self._rung(step) for step in steps]

    def resume(self) -> RungPreview:
        """Return what every relaunch changes in addition to its rung: it resumes from the last healthy checkpoint."""
        resumed = replace(self._first, resumed_from=self._job.spec.checkpoint.searched)
        return self._difference("resume", self._request(resumed), {})

    def _rung(self, step: RungSpec) -> RungPreview:
        spec, knobs = self._job.spec, self._job.knobs
        after, note = _first_knobs(spec, step, next(iter(self._first.gpus), None))
        if isinstance(after, str):
            return RungPreview(step.rung.value, after)
        decision = Relaunch(step.rung, after, None, "")
        placement = same_placement(self._first)
        following = next_attempt(self._job, self._first.number + 1, placement, decision, 0.0)
        preview = self._difference(step.rung.value, self._request(following), after.changes_from(knobs))
        return replace(preview, knobs={}, note=note) if note else preview

    def _request(self, attempt: Attempt) -> Request:
        paths, environ = self._home
        return build_request(self._job, attempt, paths, self._origin, environ)

    def _difference(self, rung: str, after: Request, knobs: Changes) -> RungPreview:
        before, live = self._before, self._job.spec.knobs.mode != "flags"
        return RungPreview(
            rung,
            knobs=knobs,
            command=tuple(argument_changes(before.argv, after.argv)),
            env=_env_changes(before.env, after.env, self._job.spec.envs),
            files=self._file_changes(after),
            inside=tuple(knobs) if live else (),
            summary=change_text(self._job.spec, knobs),
        )

    def _file_changes(self, after: Request) -> dict[str, tuple[str, ...]]:
        if after.source is None:
            return {}
        old, new = edited_texts(after.source, self._before.edits), edited_texts(after.source, after.edits)
        return {path: _diff(old[path], new[path]) for path in new if old[path] != new[path]}


def argument_changes(before: tuple[str, ...], after: tuple[str, ...]) -> Iterator[Pair]:
    """Yield the arguments of a command that differ, each with its option."""
    for kind, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        named = a > 0 and before[a - 1].startswith("-") and "=" not in before[a - 1] and kind == "replace"
        shift = 1 if named else 0
        yield shlex.join(before[a - shift : b]), shlex.join(after[c - shift : d])


def _env_changes(before: Mapping[str, str], after: Mapping[str, str], own: Mapping[str, str]) -> dict[str, Pair]:
    """Return the variables that differ, without those that Rung sets for itself and for trackers."""
    changed = [name for name in after if before.get(name) != after[name] and not name.startswith(RUNG_VARIABLES)]
    names = [name for name in changed if name in own or name not in VARIABLES]
    return {name: (before.get(name, ""), after[name]) for name in names}


def _diff(old: str, new: str) -> tuple[str, ...]:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=CONTEXT_LINES, lineterm="")
    return tuple(line for line in lines if not line.startswith(("---", "+++")))
