"""Decides which files of a folder are not shipped, by .gitignore and .dockerignore files.

Git's own folder is never shipped. Only names are checked here.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from pathspec import GitIgnoreSpec, PathSpec

from rung.jobs.model.errors import EngineError

GIT, DOCKER = ".gitignore", ".dockerignore"
ALWAYS = frozenset({".git"})


class Ignored:
    """The rules of one folder; a deeper .gitignore comes before one above it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._git: dict[str, GitIgnoreSpec | None] = {}
        lines = _lines(root / DOCKER)
        self._docker = PathSpec.from_lines("gitignore", [docker_rule(line) for line in lines])
        # With an exception among the rules, an excluded folder may still contain something that is not excluded.
        self._exceptions = any(line.startswith("!") for line in lines)

    def excludes(self, path: str, *, folder: bool) -> bool:
        """Tell whether a relative path is excluded; for a folder, whether all of it is."""
        if PurePosixPath(path).name in ALWAYS:
            return True
        if self._by_git(path, folder=folder):
            return True
        if folder and self._exceptions:
            return False
        return bool(self._docker.check_file(path + "/" * folder).include)

    def _by_git(self, path: str, *, folder: bool) -> bool:
        for parent in PurePosixPath(path).parents:
            rules = self._rules("" if str(parent) == "." else f"{parent}/")
            match = (
                rules.check_file(path[len(f"{parent}/") if str(parent) != "." else 0 :] + "/" * folder)
                if rules
                else None
            )
            if match is not None and match.include is not None:
                return match.include
        return False

    def _rules(self, parent: str) -> GitIgnoreSpec | None:
        if parent not in self._git:
            lines = _lines(self._root / parent / GIT)
            self._git[parent] = GitIgnoreSpec.from_lines(lines) if lines else None
        return self._git[parent]


def docker_rule(line: str) -> str:
    """Translate a rule of Docker into one of git; Docker's rules all begin at the folder itself."""
    text = line.strip()
    if not text or text.startswith("#"):
        return ""
    exception, path = ("!", text[1:].strip()) if text.startswith("!") else ("", text)
    return f"{exception}/{path.removeprefix('./').strip('/')}"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return []
    except OSError as error:
        raise EngineError(f"{path}: cannot be read: {error.strerror}") from None
