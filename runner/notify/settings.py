"""Reads notify.yaml in RUNG_HOME: who is told about jobs, by which service, of what, and when not.

Its URLs hold tokens. No message of an error shows a value of the file, and `repr` hides the URLs.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from rung.jobs.model.errors import NotifyError, UsageError
from rung.jobs.model.event import Occasion
from rung.jobs.model.paths import HomePaths
from rung.jobs.spec.fields import Model, TargetName
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.yaml_reader import YamlFile, nearest, path_text
from rung.runner.notify.batches import QuietHours, parse_quiet

FOR_OTHERS = stat.S_IRWXG | stat.S_IRWXO
MOST_TARGETS = 20
URL = re.compile(r"[A-Za-z][A-Za-z0-9]{1,40}://\S{1,4000}")
# Only in these URLs the host is a host; in others a token can stand there.
WITH_HOST = re.compile(r"(?:json|xml|form|mailto|gotify|mmost|http)s?")
PLAIN_HOST = re.compile(r"[A-Za-z0-9.:-]{1,255}")
WORD = re.compile(r"[A-Za-z0-9_-]{1,40}")
EXAMPLE = "targets: with a name and a URL"


@dataclass(frozen=True)
class Target:
    """A service that takes messages; only the sending reads its URL."""

    name: str
    url: str = field(repr=False)

    @property
    def service(self) -> str:
        """Return what may be shown of the URL: its scheme, and its host where that is no token."""
        scheme = self.url.partition("://")[0].lower()
        try:
            host = urlsplit(self.url).hostname or ""
        except ValueError:
            host = ""
        return f"{scheme}://{host}" if WITH_HOST.fullmatch(scheme) and PLAIN_HOST.fullmatch(host) else scheme


@dataclass(frozen=True)
class Settings:
    """Who is told of what, where a job file does not say it, and when nobody is."""

    targets: dict[str, Target]
    to: tuple[str, ...]
    occasions: frozenset[Occasion]
    quiet: QuietHours | None = None

    def recipients(self, spec: JobSpec, occasions: Sequence[Occasion]) -> list[str]:
        """Return the targets that are told about one of these occasions of a job."""
        asked = spec.notify
        events = self.occasions if asked is None or asked.events is None else frozenset(asked.events)
        names = self.to if asked is None or asked.to is None else asked.to
        return [name for name in names if name in self.targets] if events & set(occasions) else []


def _url(text: str) -> str:
    if not URL.fullmatch(text):
        raise ValueError("is no URL such as mailto://user:password@example.org, without spaces")
    return text


def _one_or_many(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class _File(Model):
    targets: dict[TargetName, Annotated[str, AfterValidator(_url)]] = Field(min_length=1, max_length=MOST_TARGETS)
    to: Annotated[tuple[TargetName, ...] | None, BeforeValidator(_one_or_many)] = None
    events: Annotated[tuple[Occasion, ...], BeforeValidator(_one_or_many)] = tuple(Occasion)
    quiet: str | None = None
    passes_quiet: Annotated[tuple[Occasion, ...], BeforeValidator(_one_or_many)] = ()

    @model_validator(mode="after")
    def _names_its_targets(self) -> _File:
        unknown = [name for name in self.to or () if name not in self.targets]
        if unknown:
            raise ValueError(f"to: there is no target {unknown[0]!r}{nearest(unknown[0], self.targets)}")
        if self.quiet is not None:
            parse_quiet(self.quiet, ())
        return self


class SettingsFile:
    """notify.yaml, read again whenever it has changed."""

    def __init__(self, paths: HomePaths) -> None:
        self._paths = paths
        self._seen: tuple[int, int, int] | None = None
        self._settings: Settings | None = None

    def read(self) -> Settings | None:
        try:
            found = self._paths.notify.stat()
        except OSError:
            self._seen = None
            return read_settings(self._paths)
        seen = (found.st_ino, found.st_ctime_ns, found.st_size)
        if seen != self._seen:
            self._settings = read_settings(self._paths)
            self._seen = seen
        return self._settings


def read_settings(paths: HomePaths) -> Settings | None:
    """Return the settings; None if there is no file. One that others can read, or that is not valid, is refused."""
    try:
        with paths.notify.open("rb") as file:
            _refuse_open_to_others(paths, os.fstat(file.fileno()))
            raw = file.read(200_000)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotifyError(f"{paths.notify}: cannot be read: {error.strerror}") from None
    return parse_settings(raw, str(paths.notify))


def _refuse_open_to_others(paths: HomePaths, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise NotifyError(f"{paths.notify}: belongs to another user (uid {found.st_uid}); write one of your own")
    if found.st_mode & FOR_OTHERS:
        command = f"chmod 600 {shlex.quote(str(paths.notify))}"
        raise NotifyError(f"{paths.notify}: other users may use it, and its URLs hold tokens; forbid that: {command}")


def parse_settings(raw: bytes, name: str) -> Settings:
    """Return the settings in these bytes, or raise an error of one line that shows no value of them."""
    file = YamlFile(raw, "a file of notifications", EXAMPLE)
    if file.problems or not file.readable:
        # What YAML says may quote the text, so only the line is told.
        raise NotifyError(f"{name}:{file.problems[0][0]}: cannot be read as YAML with {EXAMPLE}, each once")
    try:
        read = _File.model_validate(file.data)
    except ValidationError as error:
        raise NotifyError(f"{name}:{_problem(error, file)}") from None
    quiet = parse_quiet(read.quiet, read.passes_quiet) if read.quiet is not None else None
    targets = {each: Target(each, url) for each, url in read.targets.items()}
    return Settings(targets, read.to if read.to is not None else tuple(targets), frozenset(read.events), quiet)


def _problem(error: ValidationError, file: YamlFile) -> str:
    """Return the first problem with its line, without a value of the file: a URL may stand in the wrong place."""
    detail = error.errors(include_input=False)[0]
    names = [part for part in detail["loc"] if isinstance(part, int) or WORD.fullmatch(part)]
    place = f"{path_text(names)}: " if names else ""
    if detail["type"] == "extra_forbidden":
        return f"{file.line(detail['loc'])}: {place}unknown key; known here: {', '.join(_File.model_fields)}"
    return f"{file.line(detail['loc'])}: {place}{detail['msg'].removeprefix('Value error, ')}"


def refuse_unknown_targets(spec: JobSpec, paths: HomePaths) -> None:
    """Refuse a job that wants to tell somebody who is not in notify.yaml."""
    wanted = (spec.notify.to if spec.notify is not None else None) or ()
    if not wanted:
        return
    settings = read_settings(paths)
    known = settings.targets if settings is not None else {}
    for name in wanted:
        if name not in known:
            hint = nearest(name, known) if known else ""
            raise UsageError(f"{spec.name}: notify: there is no target {name!r} in {paths.notify}{hint}")
