"""Tests that the docs match the code: all names are there; links, job files and commands work."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import UnionType
from urllib.parse import unquote

import click
import pytest
from pydantic import BaseModel

from rung.jobs.job import Outcome
from rung.jobs.model.fault import FaultKind
from rung.jobs.model.knobs import KNOB_NAMES, Precision, RungName
from rung.jobs.model.state import TRANSITIONS, JobState
from rung.jobs.spec.job_spec import JobSpec
from rung.jobs.spec.knob_spec import PLACEHOLDERS
from rung.jobs.spec.load import parse_spec
from rung.runner.cli.main import cli

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.glob("*.md"))]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.MULTILINE)
TRANSITION = re.compile(r"^\| ([A-Z]+) -> ([A-Z]+) \|", re.MULTILINE)
TARGET = re.compile(r"^([a-z-]+):.*## ", re.MULTILINE)
SHELL_ENDS = {"|", "||", "&&", ";", ">", ">>", "<", "&"}


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def prose(path: Path) -> str:
    """Return a page without its fenced blocks."""
    return FENCE.sub("", text(path))


def blocks(path: Path, *languages: str) -> list[str]:
    return [body for language, body in FENCE.findall(text(path)) if language in languages]


def missing(names: Iterable[str], page: str) -> list[str]:
    """Return the names that a page does not show as code, `like this`."""
    shown = set(re.findall(r"`([^`\n]+)`", prose(DOCS / page)))
    return [name for name in names if name not in shown]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def field_names(model: type[BaseModel] = JobSpec, prefix: str = "") -> Iterator[str]:
    """Yield every field of the job file, nested ones with dots."""
    for name, field in model.model_fields.items():
        name = field.alias or name
        yield f"{prefix}{name}"
        for kind in field.annotation.__args__ if isinstance(field.annotation, UnionType) else (field.annotation,):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from field_names(kind, f"{prefix}{name}.")


# Names


@pytest.mark.parametrize(
    ("names", "page"),
    [
        (JobState, "states.md"),
        (Outcome, "states.md"),
        (FaultKind, "faults.md"),
        (FaultKind, "ladder.md"),
        (RungName, "ladder.md"),
        (Precision, "job-file.md"),
        (list(field_names()), "job-file.md"),
        ([f"knobs.{name}" for name in KNOB_NAMES], "job-file.md"),
        ([f"{{{name}}}" for name in PLACEHOLDERS], "job-file.md"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_name_is_in_its_page(names: Iterable[str], page: str) -> None:
    assert missing([str(name) for name in names], page) == []


def test_the_fields_of_the_job_file_are_found_at_every_depth() -> None:
    assert {"name", "knobs.lr", "success.below", "recovery.ladder", "checkpoint.every"} <= set(field_names())


def test_the_page_of_states_lists_exactly_the_allowed_transitions() -> None:
    documented = set(TRANSITION.findall(text(DOCS / "states.md")))
    assert documented == {(str(a), str(b)) for a, targets in TRANSITIONS.items() for b in targets}


def test_the_table_of_states_marks_exactly_the_allowed_transitions() -> None:
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text(DOCS / "states.md").splitlines()
        if "|" in line
    ]
    head = next(row for row in rows if row[0] == "from \\ to")
    drawn = {(row[0], head[i]) for row in rows if len(row) == len(head) for i, cell in enumerate(row) if cell == "x"}
    assert drawn == {(str(a), str(b)) for a, targets in TRANSITIONS.items() for b in targets}


def test_every_command_is_in_the_table_of_commands() -> None:
    documented = set(re.findall(r"^\| `rung (\w+)", text(DOCS / "operations.md"), re.MULTILINE))
    assert documented == set(cli.commands)


def test_every_make_target_is_documented_and_every_documented_one_exists() -> None:
    targets = set(TARGET.findall(text(ROOT / "Makefile")))
    pattern = re.compile(r"(?:`|^\$ )make ([a-z-]+)", re.MULTILINE)
    documented = {name for page in PAGES for name in pattern.findall(text(page))}
    assert len(targets) > 10
    assert documented == targets


def test_every_page_is_linked_from_the_readme() -> None:
    linked = {unquote(target).partition("#")[0] for target in LINK.findall(text(ROOT / "README.md"))}
    assert [name_of(page) for page in PAGES[1:] if name_of(page) not in linked] == []


# Links


def slug(heading: str) -> str:
    """Return the anchor of a heading, as code hosts build it."""
    plain = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
    return plain.replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_all_relative_links_and_anchors_exist(page: Path) -> None:
    dead = []
    for target in LINK.findall(INLINE_CODE.sub("", prose(page))):
        if re.match(r"https?://", target):
            continue
        file, _, anchor = unquote(target).partition("#")
        found = (page.parent / file) if file else page
        if not found.exists() or (anchor and anchor not in map(slug, HEADING.findall(prose(found)))):
            dead.append(target)
    assert dead == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_named_file_exists(page: Path) -> None:
    named = re.findall(r"`((?:jobs|recovery|runner|tests|docs)/[\w./-]+)`", prose(page))
    assert [name for name in named if not (ROOT / name).exists() and "NAME" not in name] == []


# Examples


def job_files() -> list[tuple[str, str]]:
    return [(name_of(page), body) for page in PAGES for body in blocks(page, "yaml") if re.search(r"^run:", body, re.M)]


@pytest.mark.parametrize(("page", "body"), job_files())
def test_every_job_file_shown_is_valid(page: str, body: str) -> None:
    assert parse_spec(body.encode()).run


def test_the_readme_and_the_job_file_page_show_job_files() -> None:
    assert {"README.md", "docs/job-file.md"} <= {page for page, _ in job_files()}


def shown_commands() -> list[tuple[str, str]]:
    """Return every `rung ...` line of the console and shell blocks, and every inline one."""
    found = []
    for page in PAGES:
        lines = [line.removeprefix("$ ") for body in blocks(page, "console", "sh") for line in body.splitlines()]
        inline = [code.strip("`") for code in INLINE_CODE.findall(prose(page))]
        found += [(name_of(page), line) for line in [*lines, *inline] if re.match(r"rung [a-z-]", line)]
    return found


def wrong_in(line: str) -> str | None:
    """Return which command or option of a line does not exist; None when all of them exist."""
    words = shlex.split(line, comments=True)[1:]
    words = words[: next((i for i, word in enumerate(words) if word in SHELL_ENDS), len(words))]
    if words[0] in ("--help", "--version"):
        return None
    command = cli.commands.get(words[0])
    if isinstance(command, click.Group) and len(words) > 1:
        command, words = command.commands.get(words[1]), words[1:]
    if command is None:
        return f"no command {words[0]}"
    options = {name: param for param in command.params if isinstance(param, click.Option) for name in param.opts}
    options |= {name: click.Option([name], is_flag=True) for name in ("-h", "--help")}
    rest = iter(words[1:])
    given = 0
    for word in rest:
        if word == "--":
            # All that follows are arguments.
            given += len([*rest])
            break
        if word == "-" or not word.startswith("-"):
            given += 1
            continue
        name, equals, _ = word.partition("=")
        if name not in options:
            return f"no option {name}"
        if not options[name].is_flag and not equals and next(rest, None) is None:
            return f"{name} needs a value"
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    if given <= len(arguments) or any(each.nargs == -1 for each in arguments):
        return None
    return f"{given} arguments, at most {len(arguments)}"


@pytest.mark.parametrize(("page", "line"), sorted(set(shown_commands())))
def test_every_command_shown_exists_with_its_options(page: str, line: str) -> None:
    assert wrong_in(line) is None


@pytest.mark.parametrize(
    "line",
    [
        "rung lauch a",
        "rung image lok a",
        "rung image send a b c",
        "rung queue --jsn",
        "rung logs a -n",
        "rung queue a",
        "rung history --diff=1 a b",
        "rung history -- a --diff",
    ],
)
def test_a_wrong_command_is_noticed(line: str) -> None:
    assert wrong_in(line) is not None
