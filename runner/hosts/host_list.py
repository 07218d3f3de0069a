"""Reads the list of hosts from Ansible's inventory file: what Rung needs to reach each host.

In the repository `ansible/inventory/hosts.yml` is the list, in an installed Rung the file `rung/hosts.yml` of the
user's settings; RUNG_HOSTS names another file. Nothing here connects to anything.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from rung.jobs.model.engine import ENGINES, HOST_ENGINES, SLURM
from rung.jobs.model.errors import InventoryError
from rung.jobs.model.host import ENGINE_SOCKET, Host
from rung.jobs.model.terminal_text import hidden_character
from rung.jobs.spec.yaml_reader import YamlFile
from rung.runner.hosts.ansible_inventory import Entry, Inventory, Value
from rung.runner.hosts.site_settings import read_site

_REPOSITORY = Path(__file__).resolve().parents[2]
# The variables of Ansible that Rung uses, and Rung's own.
SETTINGS = {
    "ansible_host": "address",
    "ansible_ssh_host": "address",
    "ansible_user": "user",
    "ansible_ssh_user": "user",
    "ansible_port": "port",
    "ansible_ssh_port": "port",
    "ansible_ssh_private_key_file": "key",
    "ansible_private_key_file": "key",
    "rung_jump": "jump",
    "rung_known_hosts": "known_hosts",
    "rung_engine_socket": "engine_socket",
    "rung_registries": "registries",
    "rung_volume_roots": "volume_roots",
    "rung_shared": "shared",
    "rung_address": "address_for_hosts",
}
ARGUMENTS = "ansible_ssh_common_args"
ENGINE, SITE, SHARED = "rung_engine", "rung_slurm", "rung_shared"
PASSWORDS = frozenset({"ansible_password", "ansible_ssh_pass", "ansible_ssh_password"})
# Connections of Ansible that are SSH, and those that are this machine itself.
SSH_CONNECTIONS = frozenset({"ssh", "smart", "paramiko", "paramiko_ssh", "ansible.builtin.ssh"})
LOCAL_CONNECTIONS = frozenset({"local", "ansible.builtin.local"})
# One word that is not an option and contains no template.
WORD = re.compile(r"[^\s\x00-\x1f\x7f-\x9f{}-][^\s\x00-\x1f\x7f-\x9f{}]{0,254}")
REGISTRY = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,254}(?::[0-9]{1,5})?")
NO_VALUE_FLAGS = re.compile(r"-[46AaCKkqTvXxY]+")


def default_list(environ: Mapping[str, str]) -> Path:
    """Return the file that is read if RUNG_HOSTS is not set."""
    if (_REPOSITORY / "pyproject.toml").is_file():
        return _REPOSITORY / "ansible" / "inventory" / "hosts.yml"
    # The rule of the XDG base directories: a path that is not absolute does not count.
    settings = Path(environ.get("XDG_CONFIG_HOME", ""))
    return (settings if settings.is_absolute() else Path.home() / ".config") / "rung" / "hosts.yml"


def find_hosts(environ: Mapping[str, str]) -> list[Host]:
    """Return the hosts of the list that the environment names; none if there is no list."""
    named = environ.get("RUNG_HOSTS")
    path = Path(named).expanduser() if named else default_list(environ)
    if not named and not path.exists():
        return []
    try:
        raw = path.read_bytes()
    except OSError as error:
        advice = "RUNG_HOSTS names the list of hosts" if named else "it is the list of hosts"
        raise InventoryError([f"{path}: cannot be read: {error.strerror}; {advice}"]) from None
    try:
        return parse_hosts(raw)
    except InventoryError as error:
        raise InventoryError([f"{path}:{problem}" for problem in error.problems]) from None


def parse_hosts(raw: bytes) -> list[Host]:
    """Return the hosts in these bytes, or raise an InventoryError whose problems read `LINE: what`."""
    file = YamlFile(raw, "a list of hosts", "all:")
    if not file.readable:
        raise InventoryError(file.problem_lines())
    reader = _Reader(file)
    hosts = with_sharing([host for entry in Inventory(file).entries() if (host := reader.host(entry))])
    reader.refuse_circles({host.name: host for host in hosts})
    if file.problems:
        raise InventoryError(file.problem_lines())
    return hosts


def with_sharing(hosts: Sequence[Host]) -> list[Host]:
    """Return the hosts, each with the names of those that have the same folder on a file system that they share."""
    folders = {
        host.shared: [each.name for each in hosts if each.shared == host.shared] for host in hosts if host.shared
    }
    return [
        replace(host, shares_with=tuple(name for name in folders.get(host.shared, ()) if name != host.name))
        for host in hosts
    ]


class _Reader:
    """Turns the variables of a host into a Host, and records every invalid one."""

    def __init__(self, file: YamlFile) -> None:
        self._file = file
        self._lines: dict[str, int] = {}

    def host(self, entry: Entry) -> Host | None:
        self._lines[entry.name] = entry.line
        if not WORD.fullmatch(entry.name):
            self._problem(entry.line, f"host {entry.name}: the name must be one word that does not begin with -")
            return None
        if hidden := hidden_character(entry.name):
            self._problem(entry.line, f"host {entry.name}: no invisible or direction-changing characters ({hidden})")
            return None
        if not self._is_used(entry):
            return None
        way = entry.vars.get("ansible_connection")
        fields: dict[str, Any] = {"address": entry.name, "engine_socket": ENGINE_SOCKET}
        fields["is_here"] = way is not None and way.value in LOCAL_CONNECTIONS
        if ARGUMENTS in entry.vars:
            fields |= self._arguments(entry.vars[ARGUMENTS])
        for name, value in entry.vars.items():
            if name in SETTINGS:
                fields |= self._setting(name, value)
            else:
                self._unknown(name, value)
        return Host(entry.name, groups=entry.groups, **fields, **self._engine(entry.vars))

    def _engine(self, given: Mapping[str, Value]) -> dict[str, Any]:
        named, settings = given.get(ENGINE), given.get(SITE)
        kind = next((kind for kind in HOST_ENGINES if named is None or kind.name == named.value), None)
        if kind is None and named is not None:
            known = ", ".join(kind.name for kind in HOST_ENGINES)
            why = "is no engine of this version" if named.value in [*ENGINES] else "should name an engine"
            self._problem(named.line, f"{ENGINE}: {why}; known: {known} (got {str(named.value)[:60]!r})")
            return {}
        if kind is SLURM and SHARED in given:
            self._problem(given[SHARED].line, f"{SHARED}: a site of Slurm has its folder in {SITE}")
        if kind is not SLURM:
            if settings is not None:
                self._problem(settings.line, f"{SITE}: has no effect without {ENGINE}: {SLURM.name}")
            return {}
        site, problems = read_site(settings.value if settings else None)
        for problem in problems:
            self._problem(settings.line if settings else 1, f"{SITE}{problem}")
        return {"engine": SLURM, "site": site}

    def _is_used(self, entry: Entry) -> bool:
        way = entry.vars.get("ansible_connection")
        if way is None or way.value in SSH_CONNECTIONS:
            return True
        if way.value not in LOCAL_CONNECTIONS:
            self._problem(way.line, f"ansible_connection: {way.value}: Rung reaches hosts only by ssh")
            return False
        # This machine may be the login node of a cluster; otherwise it needs no entry.
        return ENGINE in entry.vars and entry.vars[ENGINE].value == SLURM.name

    def _setting(self, name: str, found: Value) -> dict[str, Any]:
        wanted = SETTINGS[name]
        problem = CHECKS.get(wanted, _word)(found.value)
        if problem:
            self._problem(found.line, f"{name}: {problem} (got {str(found.value)[:60]!r})")
            return {}
        if wanted == "port":
            return {wanted: int(found.value)}
        if wanted == "shared":
            return {wanted: str(PurePosixPath(found.value))}
        if wanted == "registries":
            return {wanted: tuple(name.lower() for name in found.value)}
        if wanted == "volume_roots":
            return {wanted: tuple(str(PurePosixPath(root)) for root in _listed(found.value))}
        return {wanted: None if (wanted, found.value) == ("jump", "none") else found.value}

    def _unknown(self, name: str, found: Value) -> None:
        """Refuse variables that would silently have no effect; all others belong to Ansible."""
        if name in PASSWORDS:
            self._problem(found.line, f"{name}: Rung logs in only with keys; name one in ansible_ssh_private_key_file")
            return
        known = [*SETTINGS, ARGUMENTS, ENGINE, SITE]
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
        if name not in known and (name.startswith("rung_") or (close and name.startswith("ansible_"))):
            advice = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(n for n in known if 'rung' in n)}"
            self._problem(found.line, f"{name}: unknown variable; {advice}")

    def _arguments(self, found: Value) -> dict[str, Any]:
        """Read the jump host and the file of known keys from options for ssh; other `-o` settings are ignored."""
        try:
            words = shlex.split(found.value) if isinstance(found.value, str) else [str(found.value)]
        except ValueError as error:
            words = [f"{found.value} ({error})"]
        taken: dict[str, Any] = {}
        remaining = iter(words)
        for word in remaining:
            if word[:2] in ("-J", "-o"):
                option = word[2:] or next(remaining, "")
                name, _, value = (
                    (f"ProxyJump={option}" if word[1] == "J" else option).replace(" ", "=", 1).partition("=")
                )
                taken |= self._option(name.lower(), value.strip(" ="), found.line)
            elif not NO_VALUE_FLAGS.fullmatch(word):
                self._problem(found.line, f"{ARGUMENTS}: {word}: Rung reads only -J and -o here")
                break
        return taken

    def _option(self, name: str, value: str, line: int) -> dict[str, Any]:
        if name == "proxyjump" and WORD.fullmatch(value):
            return {"jump": None if value == "none" else value}
        if name == "userknownhostsfile" and not _path(value):
            return {"known_hosts": value}
        if name in ("proxyjump", "userknownhostsfile"):
            self._problem(line, f"{ARGUMENTS}: {name}: cannot be read (got {value!r})")
        if name == "proxycommand":
            self._problem(line, f"{ARGUMENTS}: Rung starts no ProxyCommand; name the jump host with ProxyJump")
        if name == "stricthostkeychecking" and value.lower() in ("no", "off"):
            self._problem(line, f"{ARGUMENTS}: Rung never accepts an unknown host key; leave StrictHostKeyChecking out")
        return {}

    def refuse_circles(self, hosts: Mapping[str, Host]) -> None:
        for host in hosts.values():
            seen, jump = {host.name}, host.jump
            while jump is not None and jump in hosts and jump not in seen:
                seen.add(jump)
                jump = hosts[jump].jump
            if jump == host.name:
                self._problem(self._lines[host.name], f"host {host.name} would be its own jump host")

    def _problem(self, line: int, what: str) -> None:
        self._file.problems.append((line, what))


def _word(value: Any) -> str:
    plain = isinstance(value, str) and WORD.fullmatch(value) and not hidden_character(value)
    return "" if plain else "should be one plain word"


def _port(value: Any) -> str:
    number = int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,5}", value) else value
    good = isinstance(number, int) and not isinstance(number, bool) and 0 < number < 65536
    return "" if good else "should be a number from 1 to 65535"


def _path(value: Any) -> str:
    good = isinstance(value, str) and value.isprintable() and value.startswith(("/", "~/")) and "{{" not in value
    return "" if good else "should be a path that begins with / or ~/"


def _socket(value: Any) -> str:
    return _path(value) or ("" if value.startswith("/") else "should be a path that begins with /")


def _registries(value: Any) -> str:
    good = isinstance(value, list) and all(isinstance(name, str) and REGISTRY.fullmatch(name) for name in value)
    return "" if good else "should be a list of registries, such as [registry.example.org:5000]"


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _roots(value: Any) -> str:
    roots = _listed(value)
    good = roots and not any(_socket(root) or ".." in PurePosixPath(root).parts for root in roots)
    return "" if good else "should be a list of paths that begin with / and have no .."


def _shared(value: Any) -> str:
    good = not _socket(value) and ".." not in PurePosixPath(value).parts and PurePosixPath(value) != PurePosixPath("/")
    return "" if good else "should be a folder that begins with / and has no .."


CHECKS: dict[str, Callable[[Any], str]] = {
    "port": _port,
    "key": _path,
    "known_hosts": _path,
    "engine_socket": _socket,
    "registries": _registries,
    "volume_roots": _roots,
    "shared": _shared,
}
