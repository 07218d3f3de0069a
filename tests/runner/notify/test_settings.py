"""Tests notify.yaml: who is told of what, what is refused in one line, and that no line shows a token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rung.jobs.model.errors import NotifyError, UsageError
from rung.jobs.model.event import Occasion
from rung.jobs.model.paths import HomePaths
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.load import parse_spec
from rung.runner.notify.settings import (
    SettingsFile,
    Target,
    parse_settings,
    read_settings,
    refuse_unknown_targets,
)
from tests.support.message_server import TOKEN, write_settings

SLACK = f"slack://{TOKEN}/B/C/#training"


def job(**fields: Any) -> JobSpec:
    return parse_spec(yaml.safe_dump({"name": "a", "run": "true", **fields}).encode())


def test_without_a_file_nobody_is_told(paths: HomePaths) -> None:
    assert read_settings(paths) is None


def test_a_job_is_told_to_all_targets_about_everything_unless_somebody_says_otherwise(home: Path) -> None:
    write_settings(home, {"lab": SLACK, "me": SLACK})
    settings = read_settings(HomePaths(home))
    assert settings is not None
    assert [settings.recipients(job(), [each]) for each in Occasion] == [["lab", "me"]] * len(Occasion)
    assert settings.recipients(job(notify="me"), [Occasion.FAILED]) == ["me"]
    assert settings.recipients(job(notify=["me"]), [Occasion.FAILED]) == ["me"]
    assert settings.recipients(job(notify="off"), [Occasion.FAILED]) == []
    assert settings.recipients(job(notify=False), [Occasion.FAILED]) == []
    only = job(notify={"events": ["failed"]})
    assert settings.recipients(only, [Occasion.NEEDS_YOU, Occasion.FAILED]) == ["lab", "me"]
    assert settings.recipients(only, [Occasion.SUCCEEDED]) == []


def test_the_file_names_the_default_and_the_job_file_wins() -> None:
    raw = f"targets: {{lab: '{SLACK}', me: '{SLACK}'}}\nto: lab\nevents: [needs_you]\nquiet: 22:00-07:00\n"
    settings = parse_settings(raw.encode(), "n")
    assert settings.recipients(job(), [Occasion.NEEDS_YOU]) == ["lab"]
    assert settings.recipients(job(), [Occasion.RECOVERING]) == []
    assert settings.recipients(job(notify={"to": ["me"], "events": ["recovering"]}), [Occasion.RECOVERING]) == ["me"]
    assert settings.quiet is not None and settings.quiet.passes == frozenset()


@pytest.mark.parametrize(
    ("raw", "line", "what"),
    [
        ("targets:\n  lab: [", 2, "cannot be read as YAML"),
        (f"targets: {{lab: *{TOKEN}}}", 1, "cannot be read as YAML"),
        (f"- {SLACK}", 1, "cannot be read as YAML"),
        ("", 1, "cannot be read as YAML"),
        ("targets: {}", 1, "targets: "),
        (f"targets:\n  lab: '{TOKEN}'", 2, "targets.lab: is no URL"),
        (f"targets:\n  lab: 'json://a b/{TOKEN}'", 2, "targets.lab: is no URL"),
        (f"targets:\n  lab: ['{SLACK}']", 2, "targets.lab: "),
        (f"targets:\n  '{SLACK}': lab", 2, "targets: String should match pattern"),
        (f"targets: {{lab: '{SLACK}'}}\nto: ['{SLACK}']", 2, "to[0]: String should match pattern"),
        (f"targets: {{lab: '{SLACK}'}}\nto: lap", 1, "to: there is no target 'lap'; did you mean 'lab'?"),
        (f"targets: {{lab: '{SLACK}'}}\nevents: ['{TOKEN}']", 2, "events[0]: Input should be 'recovering'"),
        (f"targets: {{lab: '{SLACK}'}}\nquiet: '{TOKEN}'", 1, "quiet: write it as"),
        (f"targets: {{lab: '{SLACK}'}}\ntarget: '{SLACK}'", 2, "target: unknown key; known here: targets, to,"),
        (f"targets: {{lab: '{SLACK}'}}\n'{SLACK}': x", 2, "unknown key; known here: targets, to,"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line_with_no_value_in_it(raw: str, line: int, what: str) -> None:
    with pytest.raises(NotifyError) as refused:
        parse_settings(raw.encode(), "notify.yaml")
    said = str(refused.value)
    assert said.startswith(f"notify.yaml:{line}: {what}") and "\n" not in said
    assert TOKEN not in said


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_that_others_may_use_is_refused(home: Path, mode: int) -> None:
    file = write_settings(home, {"lab": SLACK})
    file.chmod(mode)
    with pytest.raises(NotifyError, match="other users may use it, and its URLs hold tokens; forbid that: chmod 600 /"):
        read_settings(HomePaths(home))


def test_the_file_is_read_again_when_it_has_changed(home: Path) -> None:
    file = SettingsFile(HomePaths(home))
    assert file.read() is None
    path = write_settings(home, {"lab": SLACK})
    first = file.read()
    assert first is not None and file.read() is first
    path.chmod(0o644)
    with pytest.raises(NotifyError):
        file.read()
    path.chmod(0o600)
    write_settings(home, {"lab": SLACK, "me": SLACK})
    second = file.read()
    assert second is not None and list(second.targets) == ["lab", "me"]
    path.unlink()
    assert file.read() is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (SLACK, "slack"),
        (f"tgram://{TOKEN}/1234", "tgram"),
        (f"json://user:{TOKEN}@lab.example.org:8080/{TOKEN}", "json://lab.example.org"),
        (f"mailtos://me:{TOKEN}@example.org?smtp=mail.example.org", "mailtos://example.org"),
        (f"HTTPS://hooks.example.org/{TOKEN}", "https://hooks.example.org"),
        (f"json://[{TOKEN}", "json"),
        (f"ntfy://{TOKEN}", "ntfy"),
    ],
)
def test_of_a_url_only_scheme_and_a_real_host_are_shown(url: str, shown: str) -> None:
    target = Target("lab", url)
    assert target.service == shown
    assert TOKEN not in repr(target)


def test_a_job_that_names_an_unknown_target_is_refused(home: Path) -> None:
    paths = HomePaths(home)
    with pytest.raises(UsageError, match=r"notify: there is no target 'lab' in .*/notify.yaml$"):
        refuse_unknown_targets(job(notify="lab"), paths)
    write_settings(home, {"lab": SLACK})
    refuse_unknown_targets(job(notify="lab"), paths)
    refuse_unknown_targets(job(notify="off"), paths)
    with pytest.raises(UsageError, match=r"'lap' in .*; did you mean 'lab'\?$"):
        refuse_unknown_targets(job(notify="lap"), paths)
