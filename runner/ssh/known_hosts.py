"""Reads the known_hosts files of OpenSSH and checks the key that a host shows against them.

paramiko's reader drops revoked keys, patterns and a second key of one type, so the lines are parsed here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from rung.jobs.model.errors import HostRefused

# A large site's file has some thousand lines of about 150 bytes.
MAX_BYTES = 16 << 20
FIELDS = re.compile(r"(?:(@\S+)\s+)?(\S+)\s+(\S+)\s+(\S+)")


@dataclass(frozen=True)
class HostKey:
    """A host key: its type, and the key in the encoding of the files."""

    type: str
    base64: str

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(base64.b64decode(self.base64, validate=True)).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


@dataclass(frozen=True)
class KnownKey:
    """One line of a known_hosts file."""

    hosts: str
    key: HostKey
    revoked: bool
    path: Path
    line: int

    def is_for(self, name: str) -> bool:
        if self.hosts.startswith("|1|"):
            return _matches_hash(name, self.hosts)
        patterns = self.hosts.split(",")
        if any(_matches(name, pattern[1:]) for pattern in patterns if pattern.startswith("!")):
            return False
        return any(_matches(name, pattern) for pattern in patterns if not pattern.startswith("!"))


def read_known_keys(paths: Iterable[Path]) -> list[KnownKey]:
    """Return every key in these files; missing files are skipped."""
    found: list[KnownKey] = []
    for path in paths:
        try:
            with path.open("rb") as file:
                text = file.read(MAX_BYTES).decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise HostRefused(f"{path}, where host keys are known from, cannot be read: {error.strerror}") from None
        found += _parse(text, path)
    return found


def _parse(text: str, path: Path) -> Iterator[KnownKey]:
    for number, line in enumerate(text.splitlines(), 1):
        match = FIELDS.match(line.strip())
        # A certificate authority vouches for certificates, which we do not ask hosts for.
        if match and not line.lstrip().startswith("#") and match[1] in (None, "@revoked"):
            yield KnownKey(match[2], HostKey(match[3], match[4]), match[1] is not None, path, number)


def known_for(keys: Sequence[KnownKey], name: str) -> list[KnownKey]:
    return [known for known in keys if known.is_for(name)]


def why_refused(known: Sequence[KnownKey], name: str, shown: HostKey, files: Sequence[Path]) -> str | None:
    """Return why the key that a host shows is refused, and the command that fixes it; None: the key is known."""
    what = f"{shown.type} {shown.fingerprint}"
    if any(entry.revoked and entry.key == shown for entry in known):
        return f"the host key of {name} ({what}) is revoked; this host must not be trusted"
    trusted = [entry for entry in known if not entry.revoked]
    if any(entry.key == shown for entry in trusted):
        return None
    add = f"echo {shlex.quote(f'{name} {shown.type} {shown.base64}')} >> {shlex.quote(str(files[0]))}"
    if not trusted:
        return f"the host key of {name} ({what}) is not known; if the host's own fingerprint is the same: {add}"
    same_type = [entry for entry in trusted if entry.key.type == shown.type]
    old = (same_type or trusted)[0]
    where = f"{old.path}:{old.line} has {old.key.type} {_fingerprint(old.key)}"
    remove = f"ssh-keygen -R {shlex.quote(name)} -f {shlex.quote(str(old.path))}"
    changed = "has changed" if same_type else "is of another type than the known one"
    return (
        f"the host key of {name} {changed} (it shows {what}, {where}): someone may be in between; "
        f"if the host was set up anew: {remove} && {add}"
    )


def _fingerprint(key: HostKey) -> str:
    try:
        return key.fingerprint
    except (binascii.Error, ValueError):
        return "(unreadable)"


def _matches(name: str, pattern: str) -> bool:
    # Square brackets are part of a name with a port, not a choice of characters as for fnmatch.
    return fnmatchcase(name.lower(), pattern.lower().replace("[", "[[]"))


def _matches_hash(name: str, entry: str) -> bool:
    try:
        _, _, salt, digest = entry.split("|")
        made = hmac.new(base64.b64decode(salt), name.lower().encode(), hashlib.sha1).digest()
        return hmac.compare_digest(made, base64.b64decode(digest))
    except ValueError:
        return False
