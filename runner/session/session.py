"""Submits and changes jobs for a command, and runs the controller for it.

What only some commands need is imported where they need it: the controller and the checks take as long to load as all
the rest, and most commands use neither.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rung.jobs.job import Job
from rung.jobs.model.errors import InventoryError, RungError, StoreOwned, UsageError
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.terminal_text import clean
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.load import load_spec
from rung.runner.context import TURN_SECONDS, Clock, Context
from rung.runner.engine_pool import RealEngines
from rung.runner.hosts.host_list import find_hosts
from rung.runner.hosts.survey import Report, survey_all
from rung.runner.launch import submit
from rung.runner.launch.file_values import with_file_values
from rung.runner.launch.grid import Combination
from rung.runner.launch.job_file import JobFile
from rung.runner.launch.known_sites import keep_sites_of_home, refuse_never
from rung.runner.launch.shell_python import find_python, recorded_python, with_python
from rung.runner.launch.submit import Beginning
from rung.runner.notify.settings import read_settings, refuse_unknown_targets
from rung.runner.session.open_home import OpenHome
from rung.runner.session.pause import PatientController
from rung.runner.state.home import find_home
from rung.runner.state.lock import STOPPED, is_owned, ownership, put_note, using
from rung.runner.state.owner import STOPS, StopRequest, stops_held_back
from rung.runner.state.store import Event
from rung.runner.views.tables import event_line

if TYPE_CHECKING:
    from rung.runner.preflight.check_job import CheckResult


@dataclass
class Session(OpenHome):
    """What a command holds open that submits or changes jobs, or runs the controller."""

    def submit(self, spec: JobSpec, origin: Path, file: Path | None = None, start: str | None = None) -> Job:
        """Queue a job; `start` is JOB[@STEP], the checkpoint of another job that it begins at."""
        self._refuse(spec, origin)
        about: dict[str, Any] = {**({"file": str(file)} if file else {}), **recorded_python(spec, os.environ)}
        with self._beginning(start, [spec]) as found:
            beginning = replace(found, about={**about, **found.about})
            return submit.submit(self.store, spec, origin, at=time.time(), beginning=beginning)

    def submit_grid(
        self, combinations: Sequence[Combination], file: Path, at_once: int | None, start: str | None = None
    ) -> tuple[str, list[Job]]:
        """Queue a job for each combination, all or none, at most `at_once` of which run at the same time."""
        for each in combinations:
            self._refuse(each.spec, file.parent)
        with self._beginning(start, [each.spec for each in combinations]) as beginning:
            return submit.submit_grid(self.store, combinations, file, at_once, at=time.time(), beginning=beginning)

    def _refuse(self, spec: JobSpec, origin: Path) -> None:
        """Refuse a job that could never run, or whose notifications could not be sent."""
        submit.refuse_impossible(spec, origin, lambda: find_hosts(os.environ))
        self.refuse_never(spec)
        refuse_unknown_targets(spec, self.paths)

    def refuse_never(self, spec: JobSpec) -> None:
        """Refuse a job that no site can ever run, by what is known of the sites; none is asked."""
        refuse_never(spec, lambda: find_hosts(os.environ), self.store, time.time())

    @contextmanager
    def _beginning(self, start: str | None, specs: Sequence[JobSpec]) -> Iterator[Beginning]:
        """Return what new jobs begin with: nothing, or a copy of the checkpoint that JOB[@STEP] names."""
        if start is None:
            yield Beginning()
            return
        from rung.runner.checkpoints.start_from import parse_start, start_point

        name, step = parse_start(start)
        engines, source = self.engines(), self.store.find(name)
        try:
            context = Context(self.store, engines, self.paths, os.environ)
            with using(self.paths), start_point(context, source, step, specs) as point:
                yield Beginning(point.describe(), partial(point.give_to, self.store, paths=self.paths))
        finally:
            engines.close()

    def cancel(self, job: Job) -> Job:
        submit.cancel(self.store, job, at=time.time())
        return self.store.job(job.id)

    def retry(self, job: Job, settings: Sequence[str], file: Path | None = None, *, give_up_hosts: bool = False) -> Job:
        pairs = dict(_parse_setting(text) for text in settings)
        edited = JobFile.load(file, self.store.settings_of(job.id)) if file is not None else None
        if edited is not None:
            self._refuse(edited.spec, edited.origin)
        elif not job.refused:
            self.refuse_never(job.spec)
        with using(self.paths):
            submit.retry(self.store, job, pairs, edited, give_up_hosts=give_up_hosts, at=time.time())
        return self.store.job(job.id)

    def controller_running(self) -> bool:
        return is_owned(self.paths)

    def control(self, *, until_idle: bool = False, idle_end: float | None = None) -> None:
        """Run the controller until it is stopped, and print every event in one line.

        `until_idle`: until no job is active, whichever controller ends the last one. `idle_end`: until none has been
        active for so many seconds.
        """
        limit = 0.0 if until_idle else idle_end
        # Before anybody can see a controller and stop it.
        import_module("rung.runner.controller.controller")
        stop = StopRequest()
        with stop.noted(), suppress(KeyboardInterrupt):
            while not stop.is_made:
                try:
                    with stops_held_back(), ownership(self.paths):
                        self._control(limit, stop)
                except StoreOwned:
                    if not until_idle:
                        raise
                    self._await_other(stop)
                # A job that was submitted just before the lock was released relies on this controller.
                if not self.store.jobs(active=True):
                    return

    def _control(self, idle_limit: float | None, stop: StopRequest) -> None:
        """Give all jobs their turns, until somebody stops it or no job has been active for too long."""
        controller = None
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
            controller = self.controller(stop=stop)
            last_event = controller.patiently(self._greet)
            busy_at = time.monotonic()
            while not stop.is_made:
                active = controller.turn()
                last_event = controller.patiently(partial(self._print_events, last_event))
                if active or (idle_limit and controller.unsent(self.store)):
                    busy_at = time.monotonic()
                elif idle_limit is not None and time.monotonic() - busy_at >= idle_limit:
                    controller.settle(self.store)
                    return
                controller.wait()
            self._say_stopped()
        except KeyboardInterrupt:
            # Asked twice, or while the store was blocked.
            self._say_stopped()
        finally:
            if controller is not None:
                controller.close()

    def _say_stopped(self) -> None:
        put_note(self.paths, STOPPED)
        click.echo("controller stopped; running jobs go on, and the next controller finds them")

    def _await_other(self, stop: StopRequest) -> None:
        """Wait while another process is the controller and jobs are active, or until somebody stops us."""
        while not stop.is_made and is_owned(self.paths) and self.store.jobs(active=True):
            time.sleep(TURN_SECONDS)

    def _greet(self) -> int:
        """Print the first line of a controller; return the last event before it."""
        jobs = len(self.store.jobs(active=True))
        click.echo(f"controller pid={os.getpid()} home={self.paths.home} jobs={jobs}")
        return self.store.last_event()

    def _print_events(self, last_event: int) -> int:
        for event in self.store.events(after=last_event):
            click.echo(event_line(event, self._host_of(event)))
            last_event = event.seq
        return last_event

    def _host_of(self, event: Event) -> str:
        attempts = self.store.attempts(event.job_id)
        if not attempts:
            return "-"
        return attempts[(event.attempt or len(attempts)) - 1].host

    def engines(self, only: str | None = None) -> RealEngines:
        return RealEngines(os.environ, Path.home(), self.store.store_id, only=only)

    def controller(self, engines: RealEngines | None = None, *, stop: StopRequest | None = None) -> PatientController:
        from rung.runner.controller.controller import Controller
        from rung.runner.notify.notifier import Notifier

        made = Controller(self.store, engines or self.engines(), self.paths, os.environ, Clock())
        notifier = Notifier(self.paths, os.environ)
        notifier.start()
        return PatientController(made, self.paths, notifier, stop)


def _parse_setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set {text}: write it as knob=value, such as lr=1e-4")
    # As the job file has it: knobs.lr.
    return name.removeprefix("knobs."), value


def dryrun(spec: JobSpec, origin: Path, *, as_json: bool) -> str:
    """Return what a launch would run, and what each rung would change; nothing is written."""
    from rung.runner.preflight.dry_run import LaunchPreview

    submit.refuse_impossible(spec, origin, lambda: find_hosts(os.environ))
    spec = with_file_values(spec, origin / spec.workdir)
    environ = with_python(os.environ, find_python(os.environ))
    preview = LaunchPreview(spec, origin, find_home(os.environ), environ, survey_hosts)
    return preview.to_json() if as_json else preview.text()


def dryrun_grid(combinations: Sequence[Combination], origin: Path, at_once: int | None, *, as_json: bool) -> str:
    """Return the combinations of a grid, and what the launch of the first one would be; nothing is written."""
    first = dryrun(combinations[0].spec, origin, as_json=as_json)
    for each in combinations[1:]:
        submit.refuse_impossible(each.spec, origin, lambda: find_hosts(os.environ))
    if as_json:
        jobs = [{"name": each.spec.name, "settings": dict(each.settings)} for each in combinations]
        return json.dumps({"at_once": at_once, "jobs": jobs, "first": json.loads(first)}, indent=2)
    names = [f"job   {clean(each.spec.name)}" for each in combinations]
    count = f"{len(names)} job{'s' if len(names) > 1 else ''}" + (f", at most {at_once} at once" if at_once else "")
    return "\n".join([f"{count}; the first of them:", *first.splitlines(), *names])


def survey_hosts(ask: Sequence[str] = ()) -> list[Report]:
    """Return a report of every host of the list, all surveyed at the same time; `ask` as in survey_all."""
    hosts = find_hosts(os.environ)
    if not hosts:
        return []
    # Imported only here, because a job that runs on this machine needs no SSH.
    from rung.runner.hosts.local_remote import LocalRemote
    from rung.runner.ssh.remote import Remotes

    remotes = Remotes(hosts, Path.home(), os.environ)
    here = {host.name: LocalRemote(host.name, os.environ) for host in hosts if host.is_here}
    try:
        return survey_all(hosts, lambda name: here.get(name) or remotes.remote(name), time.time, ask)
    finally:
        remotes.close()


def check(file: Path | None) -> list[CheckResult]:
    """Return the checks of this machine, of every host, and of a job."""
    from rung.runner.engines.process import ProcessEngine
    from rung.runner.hosts.health import health_command
    from rung.runner.preflight.check_host import check_host
    from rung.runner.preflight.check_job import CheckResult, check_job, check_machine, check_slots
    from rung.runner.preflight.fit import check_fit

    paths = find_home(os.environ)
    found = [*check_machine(paths), *check_slots(os.environ)]
    reports: list[Report] = []
    try:
        reports = survey_hosts(health_command(quick=False))
        keep_sites_of_home(paths, reports, at=time.time())
        found += [finding for report in reports for finding in check_host(report)]
    except InventoryError as error:
        found += [CheckResult(False, problem) for problem in error.problems]
    if file is not None:
        spec = load_spec(file)
        found.append(CheckResult(True, f"job file {file} is valid"))
        found += [CheckResult(False, problem) for problem in _notify_problems(spec, paths)]
        found += check_job(spec, file.absolute().parent, paths, ProcessEngine(), os.environ)
        if spec.is_remote and reports:
            found += check_fit(spec, reports)
    return found


def _notify_problems(spec: JobSpec, paths: HomePaths) -> list[str]:
    """Return why the job would not be launched, or nobody be told about it."""
    try:
        read_settings(paths)
        refuse_unknown_targets(spec, paths)
    except RungError as error:
        return [str(error)]
    return []
