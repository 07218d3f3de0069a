"""Opens the home and the store for a command, and runs the controller for it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from rung.jobs.job import Job
from rung.jobs.model.errors import InventoryError, StoreError, StoreOwned, UsageError
from rung.jobs.model.paths import HomePaths
from rung.jobs.model.state import JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.load import load_spec
from rung.runner.checkpoints.start_from import parse_start, start_point
from rung.runner.context import Clock, Context
from rung.runner.controller.controller import TURN_SECONDS, Controller
from rung.runner.engine_pool import RealEngines
from rung.runner.engines.process import ProcessEngine
from rung.runner.hosts.health import health_command
from rung.runner.hosts.host_list import find_hosts
from rung.runner.hosts.survey import Report, survey_all
from rung.runner.launch import submit
from rung.runner.launch.file_values import with_file_values
from rung.runner.launch.job_file import JobFile
from rung.runner.preflight.check_host import check_host
from rung.runner.preflight.check_job import CheckResult, check_job, check_machine, check_slots
from rung.runner.preflight.dry_run import LaunchPreview
from rung.runner.preflight.fit import check_fit
from rung.runner.session.pause import PatientController, patiently
from rung.runner.state.home import find_home, make_home, refuse_shared_home
from rung.runner.state.lock import is_owned, ownership
from rung.runner.state.removal_lock import using
from rung.runner.state.store import Event, Store
from rung.runner.views.follow import Follower, LogFollower
from rung.runner.views.live_line import LiveLine, has_live_line
from rung.runner.views.story_follower import StoryFollower, StoryPrinter
from rung.runner.views.tables import event_line


@dataclass
class Session:
    """What one command holds open."""

    paths: HomePaths
    store: Store

    @classmethod
    def open(cls, *, create: bool = False, wait: bool = False) -> Session:
        """Open the home and the store; `wait`: for as long as the disk is full or another process holds the store."""
        paths = find_home(os.environ)
        if create:
            make_home(paths)
        elif not paths.store.exists():
            raise StoreError(f"{paths.home}: there is no store yet; submit a job with `rung launch FILE`")
        else:
            refuse_shared_home(paths)
        if wait:
            return cls(paths, patiently(paths, lambda: Store(paths.store), owner=False))
        return cls(paths, Store(paths.store))

    def submit(self, spec: JobSpec, origin: Path, file: Path | None = None, start: str | None = None) -> Job:
        """Queue a job; `start` is JOB[@STEP], the checkpoint of another job that it begins at."""
        submit.refuse_impossible(spec, origin, lambda: find_hosts(os.environ))
        about: dict[str, Any] = {"file": str(file)} if file else {}
        if start is None:
            return submit.submit(self.store, spec, origin, at=time.time(), about=about)
        name, step = parse_start(start)
        engines, source = self.engines(), self.store.find(name)
        try:
            context = Context(self.store, engines, self.paths, os.environ)
            with using(self.paths), start_point(context, source, step, spec) as point:
                give = partial(point.give_to, self.store, paths=self.paths)
                about |= point.describe()
                return submit.submit(self.store, spec, origin, at=time.time(), about=about, on_added=give)
        finally:
            engines.close()

    def cancel(self, job: Job) -> Job:
        submit.cancel(self.store, job, at=time.time())
        return self.store.job(job.id)

    def retry(self, job: Job, settings: Sequence[str], file: Path | None = None, *, give_up_hosts: bool = False) -> Job:
        pairs = dict(_parse_setting(text) for text in settings)
        edited = JobFile.load(file) if file is not None else None
        if edited is not None:
            submit.refuse_impossible(edited.spec, edited.origin, lambda: find_hosts(os.environ))
        with using(self.paths):
            submit.retry(self.store, job, pairs, edited, give_up_hosts=give_up_hosts, at=time.time())
        return self.store.job(job.id)

    def controller_running(self) -> bool:
        return is_owned(self.paths)

    def follow(self, job_id: str, *, log: bool) -> int:
        """Show a job until it ends, and run the controller if no other process does; return the exit code."""
        follower = self._follower(job_id, log=log)
        try:
            with ownership(self.paths):
                return self._control_and_follow(job_id, follower)
        except StoreOwned:
            return self._watch(follower)
        finally:
            follower.close()

    def watch_log(self, job_id: str) -> int:
        """Show the log of a job until it ends, without running the controller; return the exit code."""
        return self._watch(self._follower(job_id, log=True))

    def _watch(self, follower: Follower) -> int:
        warned = False
        while not (job := follower.show_new()).ended:
            if not warned and not self.controller_running():
                follower.close()
                click.echo("no controller is running: start one with `rung controller`", err=True)
                warned = True
            time.sleep(TURN_SECONDS)
        return _show_end(follower, job)

    def _control_and_follow(self, job_id: str, follower: Follower) -> int:
        controller = self.controller()
        try:
            while not (job := controller.patiently(follower.show_new)).ended:
                controller.turn()
                time.sleep(TURN_SECONDS)
            _tidy(controller)
        except KeyboardInterrupt:
            follower.close()
            click.echo(f"\n{job_id} goes on; `rung logs -f {job_id}` shows it, `rung controller` supervises it")
            return 130
        finally:
            controller.close()
        return _show_end(follower, job)

    def control(self, *, until_idle: bool) -> None:
        """Run the controller until it is stopped, and print every event in one line."""
        with ownership(self.paths):
            signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
            controller = self.controller()
            try:
                last_event = controller.patiently(self._greet)
                while controller.turn() or not until_idle:
                    last_event = controller.patiently(partial(self._print_events, last_event))
                    time.sleep(TURN_SECONDS)
                controller.patiently(partial(self._print_events, last_event))
            except KeyboardInterrupt:
                click.echo("controller stopped; running jobs go on, and the next controller finds them")
            finally:
                controller.close()

    def _greet(self) -> int:
        """Print the first line of a controller; return the last event before it."""
        jobs = len(self.store.jobs(active=True))
        click.echo(f"controller pid={os.getpid()} home={self.paths.home} jobs={jobs}")
        return max((event.seq for event in self.store.events()), default=0)

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

    def controller(self, engines: RealEngines | None = None) -> PatientController:
        made = Controller(self.store, engines or self.engines(), self.paths, os.environ, Clock())
        return PatientController(made, self.paths)

    def _follower(self, job_id: str, *, log: bool) -> Follower:
        if log:
            return LogFollower(self.store, self.paths, job_id, time.monotonic)
        live = LiveLine(sys.stdout) if has_live_line(sys.stdout, os.environ) else None
        return StoryFollower(self.store, self.paths, job_id, time.time, StoryPrinter(live))


def _tidy(controller: PatientController) -> None:
    """Wait for what is being removed after the end of a job; the next controller does what is left."""
    with suppress(KeyboardInterrupt):
        while controller.tidy():
            time.sleep(TURN_SECONDS)


def _show_end(follower: Follower, job: Job) -> int:
    """Show how a followed job ended, and return the exit code for it."""
    follower.close()
    follower.show_end(job)
    return 0 if job.state is JobState.SUCCEEDED else 1


def _parse_setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set {text}: write it as knob=value, such as lr=1e-4")
    # As the job file has it: knobs.lr.
    return name.removeprefix("knobs."), value


def dryrun(spec: JobSpec, origin: Path, *, as_json: bool) -> str:
    """Return what a launch would run, and what each rung would change; nothing is written."""
    submit.refuse_impossible(spec, origin, lambda: find_hosts(os.environ))
    spec = with_file_values(spec, origin / spec.workdir)
    preview = LaunchPreview(spec, origin, find_home(os.environ), os.environ, survey_hosts)
    return preview.to_json() if as_json else preview.text()


def survey_hosts(ask: Sequence[str] = ()) -> list[Report]:
    """Return a report of every host of the list, all surveyed at the same time; `ask` as in survey_all."""
    hosts = find_hosts(os.environ)
    if not hosts:
        return []
    # Imported only here, because a job that runs on this machine needs no SSH.
    from rung.runner.ssh.remote import Remotes

    remotes = Remotes(hosts, Path.home(), os.environ)
    try:
        return survey_all(hosts, remotes.remote, time.time, ask)
    finally:
        remotes.close()


def check(file: Path | None) -> list[CheckResult]:
    """Return the checks of this machine, of every host, and of a job."""
    paths = find_home(os.environ)
    found = [*check_machine(paths), *check_slots(os.environ)]
    reports: list[Report] = []
    try:
        reports = survey_hosts(health_command(quick=False))
        found += [finding for report in reports for finding in check_host(report)]
    except InventoryError as error:
        found += [CheckResult(False, problem) for problem in error.problems]
    if file is not None:
        spec = load_spec(file)
        found.append(CheckResult(True, f"job file {file} is valid"))
        found += check_job(spec, file.absolute().parent, paths, ProcessEngine(), os.environ)
        if spec.is_remote and reports:
            found += check_fit(spec, reports)
    return found
