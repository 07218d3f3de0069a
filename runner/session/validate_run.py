"""Owns a validation that a person asked for: what is meant, asking for it, and waiting for its verdict."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rung.jobs.model.errors import StoreOwned, UsageError
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.load import load_spec
from rung.runner.controller.controller import TURN_SECONDS
from rung.runner.engine_pool import RealEngines
from rung.runner.hosts.host_list import find_hosts
from rung.runner.launch import submit
from rung.runner.launch.file_values import with_file_values
from rung.runner.session.session import Session
from rung.runner.state.lock import ownership
from rung.runner.state.store import Event
from rung.runner.validation.record import Validation, digest_of, find_or_begin, refuse_useless, validations

JOB_FILE = "job.yaml"


@dataclass(frozen=True)
class Subject:
    """What a person wants validated: a job file, or a job of the store by its id."""

    spec: JobSpec
    origin: Path
    job_id: str | None = None


def find_subject(desk: Session, target: str) -> Subject:
    """Return what a target means: a job file, a folder with one, or the id or name of a job."""
    path = Path(target)
    file = path / JOB_FILE if path.is_dir() else path
    if file.is_file() or "/" in target or path.suffix in (".yaml", ".yml"):
        return Subject(load_spec(file), file.absolute().parent)
    try:
        job = desk.store.find(target)
    except UsageError:
        said = f"{target}: no job file, no folder with a {JOB_FILE}, and no job of this id or name (`rung queue`)"
        raise UsageError(said) from None
    return Subject(job.spec, desk.store.origin(job.id), job.id)


def ask(desk: Session, subject: Subject, metric: str | None, *, again: bool) -> Validation:
    """Write the validation, or find the one of the same thing that is under way or decided."""
    spec, origin = subject.spec, subject.origin
    submit.refuse_impossible(spec, origin, lambda: find_hosts(os.environ))
    spec = with_file_values(spec, origin / spec.workdir)
    refuse_useless(spec, metric)
    name = metric or spec.validated_metric
    assert name is not None, "a job without a metric was refused"
    digest = digest_of(spec, origin, name, desk.paths.home)
    asked = Validation(0, digest, spec, origin, name, time.time(), subject.job_id)
    with desk.store.transaction():
        return find_or_begin(desk.store, asked, again=again)


@dataclass
class Waiting:
    """Waits for a verdict, being the controller where there is no other."""

    desk: Session
    tell: Callable[[Event], None]
    _seen: int = 0

    def wait(self, asked: Validation) -> Validation:
        # What other jobs have told before is not ours to tell.
        self._seen = max((event.seq for event in self.desk.store.events()), default=0)
        while asked.verdict is None:
            try:
                with ownership(self.desk.paths):
                    asked = self._control(asked)
            except StoreOwned:
                asked = self._look_on(asked)
        return asked

    def _control(self, asked: Validation) -> Validation:
        controller = self.desk.controller(RealEngines(os.environ, Path.home(), self.desk.store.store_id))
        try:
            while asked.verdict is None:
                controller.turn()
                asked = self._later(asked)
        finally:
            controller.close()
        return asked

    def _look_on(self, asked: Validation) -> Validation:
        """Let another controller do it, for as long as there is one."""
        while asked.verdict is None and self.desk.controller_running():
            asked = self._later(asked)
        return asked

    def _later(self, asked: Validation) -> Validation:
        time.sleep(TURN_SECONDS)
        (asked,) = [each for each in validations(self.desk.store) if each.number == asked.number]
        self._tell_new(asked)
        return asked

    def _tell_new(self, asked: Validation) -> None:
        for event in self.desk.store.events(after=self._seen):
            self._seen = event.seq
            if event.job_id in (asked.baseline, asked.candidate):
                self.tell(event)
