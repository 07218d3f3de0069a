"""Finds the Python files of a path, reads them within limits, and collects the findings of the doctor's rules."""

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

# A project has some hundred files; more are probably a whole disk.
MAX_FILES = 20_000
# Not the user's own code: read only if it is named itself.
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})


@dataclass
class LintRun:
    """The findings by file, the files that could not be read, and the counts."""

    findings: list[tuple[str, LintFinding]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    files: int = 0
    lines: int = 0
    in_fp16: int = 0

    @property
    def exit_code(self) -> int:
        """Return 2 if a file could not be read, 1 if there is an error, else 0."""
        if self.problems:
            return 2
        return int(any(finding.severity is Severity.ERROR for _, finding in self.findings))


def lint(paths: Sequence[Path], *, fp16: bool) -> LintRun:
    """Examine scripts and folders of scripts; `fp16`: treat every file as FP16 code."""
    run = LintRun()
    results: dict[str, _FileResult] = {}
    for path in paths:
        for file, name in _files(path):
            if len(results) >= MAX_FILES:
                raise UsageError(f"{path}: more than {MAX_FILES} Python files; name the folder of your own code")
            try:
                script = Script(_read(file))
            except Unreadable as problem:
                run.problems.append(f"{clean(name)}:{'' if problem.line else ' '}{problem}")
                continue
            # The syntax tree is not kept: the trees of a whole library would fill the memory.
            results[name] = _FileResult(examine(script), says_fp16(script), script.names.modules)
            run.problems += [f"{clean(name)}:{line}: no rule is called {rule}" for line, rule in unknown_rules(script)]
            run.lines += len(script.lines)
    half = frozenset(results) if fp16 else _in_fp16(results)
    for name, each in results.items():
        findings = each.examined.in_fp16 if name in half else each.examined.elsewhere
        run.findings += [(clean(name), finding) for finding in findings]
    run.files, run.in_fp16 = len(results), len(half)
    return run


@dataclass(frozen=True)
class _FileResult:
    """The findings of a file with and without FP16, and what decides between the two."""

    examined: Examined
    says_fp16: bool
    imports: frozenset[str]


def _in_fp16(results: Mapping[str, _FileResult]) -> frozenset[str]:
    start = frozenset(name for name, each in results.items() if each.says_fp16)
    return reached({name: each.imports for name, each in results.items()}, start)


def _files(path: Path) -> Iterator[tuple[Path, str]]:
    """Yield the Python files of a path, each with the name to show."""
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
    """Return the bytes of a file; do not open a pipe, a device or a huge file."""
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
