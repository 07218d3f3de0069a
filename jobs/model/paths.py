"""Every file and folder name of a store, on this machine, on hosts and in containers. Does not touch the disk."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from rung.jobs.model.errors import EngineError

# The folder with the residences of a job: of all of them on a host, of its trials on this machine.
STAYS = "stays"
UNSAFE = re.compile(r"[^a-z0-9]+")


def job_id(name: str, sequence: int) -> str:
    """Return an id that is safe as a file name and in a shell, for any job name."""
    plain = UNSAFE.sub("-", name.lower()).strip("-")[:40].strip("-") or "job"
    return f"{plain}-{sequence}"


@dataclass(frozen=True)
class AttemptPaths:
    """The files of one launch. The wrapper in the job uses these names too.

    An attempt on several hosts has such files for each of them, in a folder of its own: `of_node`.
    """

    folder: Path
    # The number of the host among those of the attempt; None: these are the files of the whole attempt.
    node: int | None = None

    def of_node(self, node: int) -> AttemptPaths:
        return AttemptPaths(self.folder / "nodes" / str(node), node)

    @property
    def _whole(self) -> Path:
        return self.folder if self.node is None else self.folder.parents[1]

    @property
    def number(self) -> int:
        return int(self._whole.name)

    @property
    def job_folder(self) -> Path:
        return self._whole.parents[1]

    @property
    def job_id(self) -> str:
        return self.job_folder.name

    @property
    def home(self) -> Path:
        return self._whole.parents[3]

    @property
    def reserved(self) -> tuple[Path, ...]:
        """The folders of Rung in the job's folder; a checkpoint of the job is never there."""
        return self._whole.parent, self.job_folder / "mirror", self.job_folder / STAYS

    def residence(self, number: int) -> Path:
        """Return the folder of a later residence of the job on this machine; the first one is the job's own folder."""
        return self.job_folder / STAYS / str(later(number))

    @property
    def request(self) -> Path:
        return self.folder / "request.json"

    @property
    def claim(self) -> Path:
        return self.folder / "claim.json"

    @property
    def running(self) -> Path:
        return self.folder / "running.json"

    @property
    def done(self) -> Path:
        return self.folder / "done.json"

    @property
    def stop(self) -> Path:
        return self.folder / "stop"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def series(self) -> Path:
        """The points of its curves, taken from the log."""
        return self.folder / "series"

    @property
    def work(self) -> Path:
        """The attempt's copy of the workdir, if it has one on this machine."""
        return self.folder / "work"

    @property
    def cursor(self) -> Path:
        """How much of the log of an attempt on a host has been copied here."""
        return self.folder / "cursor.json"


@dataclass(frozen=True)
class HomePaths:
    """The files of one RUNG_HOME."""

    home: Path

    @property
    def store(self) -> Path:
        return self.home / "rung.db"

    @property
    def lock(self) -> Path:
        return self.home / "controller.lock"

    @property
    def removal_lock(self) -> Path:
        return self.home / "removal.lock"

    @property
    def controller_log(self) -> Path:
        """What a controller in the background prints."""
        return self.home / "controller.log"

    @property
    def turn_times(self) -> Path:
        """How long the turns of the controller take, and which hosts answer it."""
        return self.home / "controller.json"

    @property
    def counted(self) -> Path:
        """What the metrics have counted of each job; it can be counted again at any time."""
        return self.home / "counted.json"

    @property
    def secrets(self) -> Path:
        return self.home / "secrets"

    @property
    def notify(self) -> Path:
        """Who is told about jobs; its URLs hold tokens."""
        return self.home / "notify.yaml"

    def job(self, job_id: str) -> Path:
        return self.home / "jobs" / job_id

    def validation(self, name: str) -> Path:
        """Return the folder of a validation's report."""
        return self.home / "validations" / name

    def attempt(self, job_id: str, number: int) -> AttemptPaths:
        return AttemptPaths(self.job(job_id) / "attempts" / str(number))

    def mirror(self, job_id: str) -> Path:
        """Return the folder for copies of checkpoints that were written on a host."""
        return self.job(job_id) / "mirror"

    def checkpoints(self, job_id: str, folder: str, residence: int = 1) -> Path:
        """Return the checkpoint folder; an absolute path is used as it is. Every trial has a residence of its own."""
        own = self.job(job_id) if residence == 1 else self.job(job_id) / STAYS / str(residence)
        return own / folder


# Paths in a container. The wrapper and the code in the job use these names too.
IN_WORK = "/rung/work"
IN_JOB = "/rung/job"
IN_RECORD = "/rung/record"
IN_INSIDE = "/rung/inside"
IN_SECRETS = "/rung/secrets"
# Only in throw-away containers: the folder of the job, with what no attempt of it can write.
IN_FILES = "/rung/files"


def residence_in_files(residence: int) -> str:
    """Return the folder of a later residence of a job. The first one is the job's own and is never named alone."""
    return f"{IN_FILES}/{STAYS}/{later(residence)}"


def later(residence: int) -> int:
    """Return the number of a residence; an error for the first one, where the job began."""
    if residence < 2:
        raise EngineError(f"residence {residence} is the job's own folder")
    return residence


def set_aside_in_files(residence: int, attempt: int) -> str:
    """Return where the checkpoints of a residence are set aside before an attempt."""
    return f"{IN_FILES}/set-aside/{residence}/attempt-{attempt}"


@dataclass(frozen=True)
class HostPaths:
    """The folders of one store on a host: in the account's own home, or in another folder of its."""

    home: str
    store_id: str
    folder: str = ""

    @property
    def root(self) -> str:
        return f"{self.folder or f'{self.home}/.rung'}/{self.store_id}"

    @property
    def trees(self) -> str:
        """Shipped work folders, each content once; never changed afterwards."""
        return f"{self.root}/trees"

    def job_root(self, job_id: str) -> str:
        """Return the folder with everything of a job. The job itself sees only some of the folders in it."""
        return f"{self.root}/jobs/{job_id}"

    def job(self, job_id: str, residence: int) -> str:
        """Return the folder that a job keeps for its next attempt, with its checkpoints."""
        return f"{self.job_root(job_id)}/{STAYS}/{residence}"

    def attempt(self, job_id: str, number: int) -> str:
        return f"{self.job_root(job_id)}/attempts/{number}"

    def work(self, job_id: str, number: int) -> str:
        """Return the attempt's copy of the shipped work folder."""
        return f"{self.attempt(job_id, number)}/work"

    def record(self, job_id: str, number: int, node: int | None = None) -> str:
        """Return the folder where the wrapper records how the attempt ended; on several hosts each has its own."""
        return f"{self.attempt(job_id, number)}/record{f'-{node}' if node else ''}"
