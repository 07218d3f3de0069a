"""Owns the doctor's visit: which files a path means, reading them within bounds, and all findings of the lot."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rung.jobs.model.errors import UsageError
from rung.jobs.model.terminal_text import clean
from rung.recovery.doctor.analysis.script import Script
from rung.recovery.doctor.analysis.source import MAX_BYTES, Unreadable
from rung.recovery.doctor.examine import Examined, examine, unknown_rules
from rung.recovery.doctor.fp16_reach import reached, says_fp16
from rung.recovery.doctor.rules.rule import LintFinding, Severity

# A project has some hundred files; whoever points at a whole disk is told so.
MAX_FILES = 20_000
# Nobody's own code: looked into only when named themselves.
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})


@dataclass
class Visit:
    """What came of it: findings by file, files that could not be read, and how many were."""

    findings: list[tuple[str, LintFinding]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    files: int = 0
    lines: int = 0
    in_fp16: int = 0

    @property
    def exit_code(self) -> int:
        """2 where something could not be read, since silence would be no verdict; 1 for an error; else 0."""
        if self.problems:
            return 2
        return int(any(finding.severity is Severity.ERROR for _, finding in self.findings))


def visit(paths: Sequence[Path], *, fp16: bool) -> Visit:
    """Examine scripts and folders of them; `fp16` takes every file for one that runs in FP16."""
    done = Visit()
    seen: dict[str, _Seen] = {}
    for path in paths:
        for file, name in _files(path):
            if len(seen) >= MAX_FILES:
                raise UsageError(f"{path}: more than {MAX_FILES} Python files; name the folder of your own code")
            try:
                script = Script(_read(file))
            except Unreadable as problem:
                done.problems.append(f"{clean(name)}:{'' if problem.line else ' '}{problem}")
                continue
            # The tree is let go of at once: that of a whole library would fill the memory.
            seen[name] = _Seen(examine(script), says_fp16(script), script.names.modules)
            done.problems += [f"{clean(name)}:{line}: no rule is called {rule}" for line, rule in unknown_rules(script)]
            done.lines += len(script.lines)
    half = frozenset(seen) if fp16 else _in_fp16(seen)
    for name, each in seen.items():
        findings = each.examined.in_fp16 if name in half else each.examined.elsewhere
        done.findings += [(clean(name), finding) for finding in findings]
    done.files, done.in_fp16 = len(seen), len(half)
    return done


@dataclass(frozen=True)
class _Seen:
    """What is kept of a file: its findings in both cases, and what decides between them."""

    examined: Examined
    says_fp16: bool
    imports: frozenset[str]


def _in_fp16(seen: Mapping[str, _Seen]) -> frozenset[str]:
    start = frozenset(name for name, each in seen.items() if each.says_fp16)
    return reached({name: each.imports for name, each in seen.items()}, start)


def _files(path: Path) -> Iterator[tuple[Path, str]]:
    """Yield the Python files that a path means, each with the name it is told by."""
    if not path.is_dir():
        yield path, str(path)
        return
    for folder, below, names in os.walk(path):
        below[:] = sorted(name for name in below if name not in SKIPPED and not name.startswith("."))
        for name in sorted(names):
            file = Path(folder) / name
            if name.endswith(".py") and not file.is_symlink():
                yield file, str(file)


def _read(file: Path) -> bytes:
    """Return a file's bytes; a pipe, a device or a monster is not opened."""
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("not a file")
        if status.st_size > MAX_BYTES:
            raise Unreadable(f"{status.st_size} bytes; scripts of up to {MAX_BYTES} are read")
        with file.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from None
