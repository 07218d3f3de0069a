"""Writes a draft as the text of a job file. All that comes from the script is quoted, or cleaned in comments."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from rung.jobs.model.terminal_text import clean
from rung.jobs.spec.job_spec import SHELL_WORDS
from rung.recovery.doctor.job_draft.asked import Draft

WIDTH = 118


def job_text(draft: Draft, opening: Sequence[str]) -> str:
    """Return the job file, with its comments."""
    blocks = [_lines(opening)]
    for name, value in draft.fields.items():
        fields = [] if value is None else [f"{name}: {_value(name, value)}"]
        blocks.append("\n".join([*filter(None, [_lines(draft.notes[name])]), *fields]))
    if draft.left:
        blocks.append("\n".join(["# Left to you:", *(_comment(each, "- ") for each in draft.left)]))
    return "\n\n".join(blocks) + "\n"


def _lines(notes: Sequence[str]) -> str:
    return "\n".join(map(_comment, notes))


def _comment(text: str, mark: str = "") -> str:
    plain = mark + clean(text)
    lines = textwrap.wrap(plain, WIDTH, break_on_hyphens=False, subsequent_indent=" " * len(mark))
    return "\n".join(f"# {line}" for line in lines)


def _value(name: str, value: Any) -> str:
    if name not in ("run", "run_on_resume"):
        return _flow(value)
    # In one line, these would have a meaning for a shell.
    apart = any("\n" in word or word in SHELL_WORDS for word in value)
    return _scalar([*value]) if apart else _scalar(command_line(value))


def command_line(words: Sequence[str]) -> str:
    """Return a command as one line; placeholders need no quotes."""
    return " ".join(word if _is_bare(word) else shlex.quote(word) for word in words)


def _is_bare(word: str) -> bool:
    plain = word.replace("{", "").replace("}", "")
    return bool(word) and (not plain or shlex.quote(plain) == plain)


def _flow(value: Any) -> str:
    """Return a value in one line of YAML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow(name)}: {_flow(each)}" for name, each in value.items()) + "}"
    # As the one entry of a list: inside of {...} more characters need quotes than outside.
    return _scalar([value]).removeprefix("[").removesuffix("]")


def _scalar(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10**9, allow_unicode=False)
    return text.removesuffix("...\n").strip()
