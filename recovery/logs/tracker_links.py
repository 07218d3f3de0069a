"""Finds the links to the runs of a job in W&B and MLflow that a log shows.

The log is hostile input: a link is plain characters within bounds, without a user, a password or a query, which may
hold a key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

MOST_LINKS = 4
# How many places of one chunk are looked at: a hostile log has one on every line, and time is bounded too.
MOST_MATCHES = 256
# How much of a line before a link is looked at: wandb writes `wandb: View run at `, in colours.
LINE = 200
# More than the longest link and what stands before it on its line.
OVERLAP = 1024

_HOST = rb"https?://[A-Za-z0-9.-]{1,200}(?::[0-9]{1,5})?"
_PART = rb"[A-Za-z0-9._~%+-]{1,128}"
_WANDB = re.compile(_HOST + rb"/" + _PART + rb"/" + _PART + rb"/runs/[A-Za-z0-9_-]{1,128}")
_MLFLOW = re.compile(_HOST + rb"(?:/" + _PART + rb"){0,4}/#/experiments/[0-9]{1,20}/runs/[0-9a-f]{32}(?![0-9a-f])")
# A run that no server keeps has no link, so Rung's own record names it as MLflow does. Scripts name the runs of others.
_LOCAL = re.compile(rb"(?<=rung\| tracker link=)runs:/[0-9a-f]{32}(?![0-9a-f])")
_RUN_ID = re.compile(r"(?:/#/experiments/[0-9]{1,20}/runs/|^runs:/)([0-9a-f]{32})")


class TrackerLinks:
    """Reads a log in chunks, in constant memory, and keeps the first few links."""

    def __init__(self) -> None:
        self.found: tuple[str, ...] = ()
        self._held = b""

    def feed(self, chunk: bytes) -> None:
        data, self._held = self._held + chunk, (self._held + chunk)[-OVERLAP:]
        if (b"/runs/" not in data and b"=runs:/" not in data) or len(self.found) == MOST_LINKS:
            return
        matches = (*_first(_MLFLOW, data), *_first(_LOCAL, data), *_first(_WANDB, data))
        for match in sorted(matches, key=lambda each: each.start()):
            # One that goes up to the end of the chunk may be longer; it is still held then.
            if match.end() < len(data) and (match.re is not _WANDB or _is_of_wandb(data, match)):
                self._keep(match[0].decode("ascii"))

    def _keep(self, link: str) -> None:
        if link not in self.found and len(self.found) < MOST_LINKS:
            self.found = (*self.found, link)


def _first(pattern: re.Pattern[bytes], data: bytes) -> Iterator[re.Match[bytes]]:
    return islice(pattern.finditer(data), MOST_MATCHES)


def _is_of_wandb(data: bytes, match: re.Match[bytes]) -> bool:
    """Tell whether a link is one of W&B's: by its host, or because wandb has written the line."""
    before = data[max(0, match.start() - LINE) : match.start()]
    return b"wandb" in before[before.rfind(b"\n") + 1 :] + match[0]


def mlflow_run(links: Sequence[str], known: str | None = None) -> str | None:
    """Return the id of the one run in MLflow that a log shows, else the known one.

    None if there are several, since it is open then which is the outer one.
    """
    runs = {found[1] for link in links if (found := _RUN_ID.search(link))} or {known}
    return runs.pop() if len(runs) == 1 else None
