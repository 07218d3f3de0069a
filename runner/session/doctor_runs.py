"""Finds what runs of the examined scripts have shown: modules near FP16's limit, and the cures that replays found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rung.jobs.job import Attempt
from rung.jobs.model.knobs import RungName
from rung.jobs.model.paths import HomePaths
from rung.jobs.spec.job_spec import JobSpec
from rung.recovery.decide.replay_cure import read_cure
from rung.recovery.validation.near_limit import FACTOR, advice, are_places
from rung.runner.state.home import find_home, refuse_shared_home
from rung.runner.state.store import Store
from rung.runner.validation.record import validations
from rung.runner.validation.report_files import read_facts

CLAMP = "write knobs: {constants: clamp}"


@dataclass(frozen=True)
class SeenInRun:
    """What one run has shown of a script: where that is kept, and the places to keep in FP32."""

    job: str
    source: str
    places: tuple[str, ...]
    says: str


def seen_in_runs(paths: Sequence[Path], environ: Mapping[str, str]) -> list[SeenInRun]:
    """Return what validations and replays of jobs that run these scripts have shown; the newest of each job."""
    home = find_home(environ)
    if not home.store.exists():
        return []
    refuse_shared_home(home)
    examined = [path.resolve() for path in paths]
    with closing(Store(home.store)) as store:
        found = [*_from_validations(store, home, examined), *_from_replays(store, examined)]
    return list({(each.job, each.source.partition(" ")[0]): each for each in found}.values())


def _from_validations(store: Store, home: HomePaths, examined: Sequence[Path]) -> Iterator[SeenInRun]:
    newest: dict[str, tuple[str, tuple[str, ...]]] = {}
    for each in validations(store):
        near = (read_facts(home.validation(each.id)) or {}).get("near_limit")
        # One that saw nothing near the limit counts too: the script may have been changed.
        if near is not None and _is_examined(each.spec, each.origin, examined):
            newest[each.spec.name] = each.id, _named(near)
    for name, (number, places) in newest.items():
        if places:
            says = f"{', '.join(places)} came within a factor of {FACTOR} of FP16's limit: {advice(places)}"
            yield SeenInRun(name, f"validation {number}", places, says)


def _named(near: Any) -> tuple[str, ...]:
    """Return the places in a report, whatever somebody has written into it."""
    listed = near.get("places") if isinstance(near, dict) else None
    places = tuple(listed) if isinstance(listed, list) else ()
    return places if are_places(places) else ()


def _from_replays(store: Store, examined: Sequence[Path]) -> Iterator[SeenInRun]:
    for job in store.jobs():
        if _is_examined(job.spec, store.origin(job.id), examined):
            for attempt in store.attempts(job.id):
                yield from _from_replay(job.spec.name, attempt)


def _from_replay(name: str, attempt: Attempt) -> Iterator[SeenInRun]:
    cure = read_cure(attempt.fault) if attempt.fault else None
    if cure is None or cure.rung not in (RungName.FP32_MODULES, RungName.CLAMP_CONSTANTS):
        return
    present = attempt.asked.fp32_modules
    places = tuple(dict.fromkeys((*(present.split(",") if present else ()), *cure.places)))
    todo = advice(places) if cure.places else CLAMP
    yield SeenInRun(name, f"replay of attempt {attempt.number}", cure.places, f"{cure.describe(present)}: {todo}")


def _is_examined(spec: JobSpec, origin: Path, examined: Sequence[Path]) -> bool:
    """Tell whether a job runs one of these files, or works in one of these folders."""
    workdir = (origin / spec.workdir).resolve()
    scripts = {(workdir / word).resolve() for word in (*spec.run, *(spec.run_on_resume or ())) if word.endswith(".py")}
    return any(each.is_relative_to(path) for path in examined for each in (*scripts, workdir))
