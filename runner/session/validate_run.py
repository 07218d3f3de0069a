"""Requests the validation of a job file or a job, and waits for its verdict."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rung.jobs.model.errors import ControllerError, StoreOwned, UsageError
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.load import load_spec
from rung.runner.context import TURN_SECONDS
from rung.runner.hosts.host_list import find_hosts
from rung.runner.launch import submit
from rung.runner.launch.file_values import with_file_values
from rung.runner.launch.shell_python import recorded_python
from rung.runner.session.background import ensure_controller
from rung.runner.session.follow import hand_over
from rung.runner.session.session import Session
from rung.runner.state.lock import ownership
from rung.runner.state.store import Event
from rung.runner.validation.record import Validation, digest_of, find_or_begin, refuse_useless, validations

JOB_FILE = "job.yaml"


@dataclass(frozen=True)
class Subject:
    """What to validate: a job file, or a job of the store."""

    spec: JobSpec
    origin: Path
    job_id: str | None = None


def find_subject(session: Session, target: str) -> Subject:
    """Return what to validate: a job file, a folder with one, or the id or name of a job."""
    path = Path(target)
    file = path / JOB_FILE if path.is_dir() else path
    if file.is_file() or "/" in target or path.suffix in (".yaml", ".yml"):
        return Subject(load_spec(file), file.absolute().parent)
    try:
        job = session.store.find(target)
    except UsageError:
        message = f"{target}: no job file, no folder with a {JOB_FILE}, and no job of this id or name (`rung queue`)"
        raise UsageError(message) from None
    return Subject(job.spec, session.store.origin(job.id), job.id)


def request_validation(session: Session, subject: Subject, metric: str | None, *, again: bool) -> Validation:
    """Write the validation, or return the one of the same job that runs or is decided."""
    spec, origin = subject.spec, subject.origin
    submit.refuse_impossible(spec, origin, lambda: find_hosts(os.environ))
    session.refuse_never(spec)
    spec = with_file_values(spec, origin / spec.workdir)
    refuse_useless(spec, metric)
    name = metric or spec.validated_metric
    assert name is not None, "a job without a metric was refused"
    digest = digest_of(spec, origin, name, session.paths.home)
    job_id = subject.job_id
    python = recorded_python(spec, os.environ).get("python") if job_id is None else session.store.python(job_id)
    validation = Validation(0, digest, spec, origin, name, time.time(), job_id, python=python)
    with session.store.transaction():
        return find_or_begin(session.store, validation, again=again)


@dataclass
class VerdictWait:
    """Waits for a verdict, and is the controller where none can be in the background."""

    session: Session
    on_event: Callable[[Event], None]
    _last_event: int = 0

    def wait(self, validation: Validation) -> Validation:
        # Older events are not shown.
        self._last_event = max((event.seq for event in self.session.store.events()), default=0)
        if validation.verdict is None:
            with suppress(ControllerError):
                ensure_controller(self.session.paths, os.environ)
        while validation.verdict is None:
            try:
                with ownership(self.session.paths):
                    validation = self._control(validation)
            except StoreOwned:
                validation = self._wait_for_other(validation)
        hand_over(self.session)
        return validation

    def _control(self, validation: Validation) -> Validation:
        controller = self.session.controller()
        try:
            while validation.verdict is None:
                controller.turn()
                controller.wait()
                validation = self._reload(validation)
            controller.settle(self.session.store)
        finally:
            controller.close()
        return validation

    def _wait_for_other(self, validation: Validation) -> Validation:
        """Wait for the controller of another process, as long as there is one."""
        while validation.verdict is None and self.session.controller_running():
            time.sleep(TURN_SECONDS)
            validation = self._reload(validation)
        return validation

    def _reload(self, validation: Validation) -> Validation:
        (validation,) = [each for each in validations(self.session.store) if each.number == validation.number]
        self._pass_new_events(validation)
        return validation

    def _pass_new_events(self, validation: Validation) -> None:
        for event in self.session.store.events(after=self._last_event):
            self._last_event = event.seq
            if event.job_id in (validation.baseline, validation.candidate):
                self.on_event(event)
