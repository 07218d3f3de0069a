"""Resolves the volumes of a job on its host, and refuses those that would give a container control of it.

A link on the host may lead anywhere, so the decision is made on the resolved path, and that path is mounted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rung.jobs.model.errors import EngineError
from rung.jobs.model.host import ENGINE_SOCKET
from rung.jobs.model.terminal_text import clean
from rung.jobs.spec.volume import Volume, inside, why_refused

# For each argument a line: its number, what it is, and its path without links. `-m` accepts what is not there.
RESOLVE_SCRIPT = """
n=0
for path in "$@"; do
  if [ -d "$path" ]; then kind=folder; elif [ -f "$path" ]; then kind=file
  elif [ -e "$path" ] || [ -L "$path" ]; then kind=other; else kind=missing; fi
  printf '%s %s %s\\n' "$n" "$kind" "$(readlink -m -- "$path")"
  n=$((n + 1))
done
"""
LINE = re.compile(r"([0-9]{1,4}) (folder|file|other|missing) (/[^\x00-\x1f\x7f-\x9f]*)")
NOT_MOUNTED = {
    "other": "is neither a folder nor a file",
    "missing": "is not there: make the folder on the host, or correct the job file",
}

# Runs a script with arguments on the host, and returns its output, which is bounded.
RunScript = Callable[..., str]


@dataclass(frozen=True)
class VolumeRules:
    """What the list of hosts says about volumes on one host."""

    host: str
    socket: str = ENGINE_SOCKET
    # Empty: any folder that is not refused.
    roots: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Resolved:
    kind: str
    path: str


def resolve_volumes(
    script: RunScript, volumes: Sequence[Volume], home: str, rules: VolumeRules, *, made: str | None
) -> tuple[Volume, ...]:
    """Return the volumes with resolved paths, or raise an EngineError. `made`: a folder that Rung makes if missing."""
    if not volumes:
        return ()
    known = (home, rules.socket, *rules.roots)
    asked = [volume.host for volume in volumes]
    answers = _parse(rules.host, script(RESOLVE_SCRIPT, *known, *asked), len(known) + len(asked))
    own, socket, *rest = (answer.path for answer in answers[: len(known)])
    roots = tuple(rest)
    checked = []
    for volume, answer in zip(volumes, answers[len(known) :], strict=True):
        reason = why_refused(answer.path, (home, own), (rules.socket, socket)) or _outside(answer.path, roots)
        if reason is None and not (answer.kind == "missing" and made is not None and inside(made, volume.host)):
            reason = NOT_MOUNTED.get(answer.kind)
        if reason is not None:
            link = f", which is {clean(answer.path)}," if answer.path != volume.host else ""
            raise EngineError(f"{rules.host}: volume {clean(volume.host)}{link} {reason}")
        checked.append(replace(volume, host=answer.path))
    _refuse_nested(checked, rules.host)
    return tuple(checked)


def _refuse_nested(volumes: Sequence[Volume], host: str) -> None:
    """Refuse a volume that the job could replace by a link through another one, between this check and the mount."""
    for volume in volumes:
        for other in volumes:
            if volume.host != other.host and not other.read_only and inside(volume.host, other.host):
                raise EngineError(
                    f"{host}: volume {clean(volume.host)} lies in {clean(other.host)}, which the job may write: "
                    "mount the outer one alone, or read-only"
                )


def _outside(path: str, roots: tuple[str, ...]) -> str | None:
    if not roots or any(inside(path, root) for root in roots):
        return None
    return f"lies in none of the folders that rung_volume_roots allows on this host ({', '.join(roots)})"


def _parse(host: str, output: str, many: int) -> list[_Resolved]:
    """Parse the answer of the script: one line for each path, in order. A path with a line break fails here."""
    lines = [LINE.fullmatch(line) for line in output.removesuffix("\n").split("\n")]
    found = [_Resolved(line[2], line[3]) for number, line in enumerate(lines) if line and line[1] == str(number)]
    if len(lines) != many or len(found) != many or any(".." in answer.path.split("/") for answer in found):
        raise EngineError(f"{host}: its volumes cannot be resolved: it needs `readlink -m` of the GNU coreutils")
    return found
