"""Shows a job until it ends, and sees to it that a controller watches it meanwhile."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress

import click

from rung.jobs.job import Job
from rung.jobs.model.errors import ControllerError, StoreOwned
from rung.jobs.model.state import JobState
from rung.recovery.trials.leftovers import unneeded_trials
from rung.runner.context import TURN_SECONDS
from rung.runner.session.background import ensure_controller, starts_by_itself
from rung.runner.session.pause import PatientController
from rung.runner.session.session import Session
from rung.runner.session.watching import controller_name, unwatched
from rung.runner.state.lock import is_owned, note, ownership, was_stopped
from rung.runner.views.follow import Follower, LogFollower
from rung.runner.views.live_line import LiveLine, has_live_line
from rung.runner.views.story_follower import StoryFollower, StoryPrinter

# A controller in the background may be killed; one that dies more often than this is not started again.
MOST_STARTS = 5
# For the controller to remove the folders of trials after the end of a job; one on a host may take longer.
TIDY_SECONDS = 10.0


class JobFollow:
    """Shows one job on this terminal. The controller is another process, if there can be one."""

    def __init__(self, session: Session, job_id: str, *, log: bool) -> None:
        self._session, self._job_id = session, job_id
        self._follower = _make_follower(session, job_id, log=log)

    def follow(self) -> int:
        """Show the job until it ends; be the controller ourselves where none can be in the background."""
        starts = 0
        try:
            first = self._follower.show_new()
            if first.ended:
                return self._show_end(first)
            while True:
                if starts < MOST_STARTS and self._started():
                    starts += 1
                try:
                    with ownership(self._session.paths):
                        job = self._control()
                except StoreOwned:
                    job = self._watch()
                if job is not None:
                    return self._show_end(job)
        except KeyboardInterrupt:
            self._follower.close()
            click.echo(f"\n{self._job_id} goes on; {self._who_watches()}; `rung follow {self._job_id}` shows it")
            return 130
        finally:
            self._follower.close()

    def watch_only(self) -> int:
        """Show the job until it ends, and start nothing."""
        warned = False
        while not (job := self._follower.show_new()).ended:
            line = None if warned else unwatched(self._session.paths, self._session.store, job)
            if line is not None:
                self._follower.close()
                click.echo(line, err=True)
                warned = True
            time.sleep(TURN_SECONDS)
        return self._show_end(job)

    def _started(self) -> bool:
        """Start a controller in the background where none runs; True if one was started."""
        if is_owned(self._session.paths):
            return False
        try:
            return ensure_controller(self._session.paths, os.environ)
        except ControllerError as error:
            self._follower.close()
            click.echo(f"{error}; this command is the controller until the job ends", err=True)
            return False

    def _watch(self) -> Job | None:
        """Show the job while another process is the controller; None if that died before the job has ended.

        One that a person has stopped is not replaced.
        """
        said: str | None = None
        paths, store = self._session.paths, self._session.store
        while not (job := self._follower.show_new()).ended:
            if not is_owned(paths) and not was_stopped(paths):
                return None
            line = unwatched(paths, store, job) or note(paths)
            if line and line != said:
                self._follower.close()
                click.echo(line, err=True)
            said = line
            time.sleep(TURN_SECONDS)
        self._await_tidy(job)
        return job

    def _await_tidy(self, job: Job) -> None:
        """Let the controller remove what the job no longer needs, so that its size is told right."""
        deadline = time.monotonic() + TIDY_SECONDS
        store = self._session.store
        while unneeded_trials(job, store.attempts(job.id)) and time.monotonic() < deadline:
            if not is_owned(self._session.paths):
                return
            time.sleep(TURN_SECONDS)

    def _control(self) -> Job | None:
        """Be the controller until the job has ended."""
        controller = self._session.controller()
        try:
            while not (job := controller.patiently(self._follower.show_new)).ended:
                controller.turn()
                controller.wait()
            _tidy(controller)
            controller.settle(self._session.store)
        finally:
            controller.close()
        return job

    def _who_watches(self) -> str:
        """Say who watches the job after this command; start a controller if this one was it."""
        with suppress(ControllerError):
            if ensure_controller(self._session.paths, os.environ):
                return f"{controller_name(self._session.paths)} watches it"
        return "nobody watches it until `rung controller` runs"

    def _show_end(self, job: Job) -> int:
        """Show how the job ended, and return the exit code for it."""
        self._follower.close()
        self._follower.show_end(job)
        hand_over(self._session)
        return 0 if job.state is JobState.SUCCEEDED else 1


def hand_over(session: Session) -> None:
    """Leave no active job without a controller: start one if this command was it."""
    if not is_owned(session.paths) and starts_by_itself(os.environ) and session.store.jobs(active=True):
        try:
            ensure_controller(session.paths, os.environ)
        except ControllerError as error:
            click.echo(f"{error}; nobody watches the jobs that are active", err=True)


def _make_follower(session: Session, job_id: str, *, log: bool) -> Follower:
    if log:
        return LogFollower(session.store, session.paths, job_id, time.monotonic)
    live = LiveLine(sys.stdout) if has_live_line(sys.stdout, os.environ) else None
    return StoryFollower(session.store, session.paths, job_id, time.time, StoryPrinter(live))


def _tidy(controller: PatientController) -> None:
    """Wait for what is being removed after the end of a job; the next controller does what is left."""
    with suppress(KeyboardInterrupt):
        while controller.tidy():
            time.sleep(TURN_SECONDS)
