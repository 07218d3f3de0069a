"""Turns the paths of a container into those of a cluster, where a job may run without one. Pure.

A request names what an attempt sees in a container. On a cluster these are plain folders in the account's home, which
all nodes share.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rung.jobs.model.paths import IN_FILES, IN_INSIDE, IN_JOB, IN_RECORD, IN_WORK, HostPaths
from rung.runner.engines.on_host.layout import HostLayout, wanted_of
from rung.runner.seams.engine import FileEdit, Request

LOG, SECRETS = "log", "secrets"


@dataclass(frozen=True)
class SitePaths:
    """The folders of one attempt on a cluster."""

    paths: HostPaths
    inside: str
    job_id: str
    attempt: int
    residence: int

    @property
    def record(self) -> str:
        return self.paths.record(self.job_id, self.attempt)

    @property
    def work(self) -> str:
        return self.paths.work(self.job_id, self.attempt)

    @property
    def job(self) -> str:
        return self.paths.job(self.job_id, self.residence)

    @property
    def log(self) -> str:
        """The output of the batch job."""
        return f"{self.record}/{LOG}"

    @property
    def secrets(self) -> str:
        return f"{self.record}/{SECRETS}"

    @property
    def scratch(self) -> str:
        """The /tmp of a container."""
        return f"{self.paths.attempt(self.job_id, self.attempt)}/scratch"

    @property
    def folders(self) -> dict[str, str]:
        """Return the folder on the cluster for each one of a container."""
        return {
            IN_WORK: self.work,
            IN_JOB: self.job,
            IN_RECORD: self.record,
            IN_INSIDE: self.inside,
            IN_FILES: self.paths.job_root(self.job_id),
        }

    def text(self, text: str) -> str:
        """Return a text in which every path of a container is that of the cluster."""
        return PATH.sub(lambda found: self.folders[found[0]], text)


# A whole name: /rung/jobs and /data/rung/job are other paths.
PATH = re.compile(rf"(?<![\w/.-])(?:{'|'.join((IN_WORK, IN_JOB, IN_RECORD, IN_INSIDE, IN_FILES))})(?![\w.-])")


def paths_of(request: Request, layout: HostLayout) -> SitePaths:
    residence = wanted_of(request).residence
    return SitePaths(layout.paths, layout.inside, request.job_id, request.attempt, residence)


def on_site(request: Request, paths: SitePaths) -> Request:
    """Return the request with the paths that the command sees on the cluster."""
    return replace(
        request,
        argv=tuple(paths.text(word) for word in request.argv),
        cwd=Path(paths.text(str(request.cwd))),
        env={name: paths.text(value) for name, value in request.env.items()},
        checkpoint_dir=Path(paths.text(str(request.checkpoint_dir))),
        edits=tuple(FileEdit(edit.path, _values(edit.values, paths)) for edit in request.edits),
    )


def _values(values: Mapping[str, Any], paths: SitePaths) -> dict[str, Any]:
    return {key: paths.text(value) if isinstance(value, str) else value for key, value in values.items()}
