"""Parses Ansible's YAML inventory: nested groups, and the variables of each host.

It does not know what a variable means. As in Ansible, a nearer group wins over a farther one, of two equally near ones
the later by name, and the host itself over all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice, product
from typing import Any

from rung.jobs.spec.yaml_reader import Location, YamlFile, nearest, path_text

MAX_HOSTS = 1000
GROUP_KEYS = ("hosts", "children", "vars")
MAX_GROUPS = 500
RANGE = re.compile(r"\[([0-9]{1,9}|[A-Za-z]):([0-9]{1,9}|[A-Za-z])(?::([0-9]{1,9}))?\]")
NAME_AND_PORT = re.compile(r"([^:]+):(\d{1,5})")


@dataclass(frozen=True)
class Value:
    """The value of a variable, and the line that sets it."""

    value: Any
    line: int


Vars = dict[str, Value]


@dataclass
class Group:
    vars: Vars = field(default_factory=dict)
    hosts: set[str] = field(default_factory=set)
    parents: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Entry:
    """A host with its variables and all its groups."""

    name: str
    line: int
    vars: Vars
    groups: tuple[str, ...]


class Inventory:
    """The groups and hosts of one file; errors are added to the file's problems."""

    def __init__(self, file: YamlFile) -> None:
        self._file = file
        self._groups: dict[str, Group] = {"all": Group()}
        self._hosts: dict[str, tuple[int, Vars]] = {}
        self._depths: dict[str, int] = {}
        for name, body in file.data.items():
            self._group(name, body, (name,), parent=None if name == "all" else "all")

    def entries(self) -> Iterator[Entry]:
        for name, (line, own) in self._hosts.items():
            groups = self._groups_of(name)
            merged: Vars = {}
            for group in sorted(groups, key=lambda found: (self._depth(found), found)):
                merged |= self._groups[group].vars
            yield Entry(name, line, merged | own, tuple(sorted(groups - {"all", "ungrouped"})))

    def _group(self, name: str, body: Any, at: Location, parent: str | None) -> None:
        if len(self._groups) >= MAX_GROUPS:
            self._problem(at, f"more than {MAX_GROUPS} groups")
            return
        group = self._groups.setdefault(name, Group())
        if parent is not None:
            if parent == name or name in self._ancestors(parent):
                self._problem(at, f"group {name} is inside itself")
                return
            group.parents.add(parent)
        for key, inner in self._mapping(body, at).items():
            if key not in GROUP_KEYS:
                self._problem((*at, key), f"{path_text((*at, key))}: unknown key{nearest(key, GROUP_KEYS)}")
            elif key == "vars":
                group.vars |= self._vars(inner, (*at, key))
            else:
                self._members(name, key, inner, (*at, key))

    def _members(self, group: str, key: str, inner: Any, at: Location) -> None:
        for name, body in self._mapping(inner, at).items():
            if key == "children":
                self._group(name, body, (*at, name), parent=group)
            else:
                self._host(group, name, body, (*at, name))

    def _host(self, group: str, pattern: str, body: Any, at: Location) -> None:
        own = self._vars(body, at)
        named = NAME_AND_PORT.fullmatch(RANGE.sub("", pattern))
        if named:
            pattern = pattern.rpartition(":")[0]
            own = {"ansible_port": Value(int(named[2]), self._file.line(at)), **own}
        names = expand(pattern) if len(pattern) < 256 else iter(())
        if (first := next(names, None)) is None:
            self._problem(at, f"{pattern[:60]!r} names no host")
            return
        for name in chain([first], names):
            if len(self._hosts) >= MAX_HOSTS:
                self._problem(at, f"more than {MAX_HOSTS} hosts")
                return
            line, before = self._hosts.get(name, (self._file.line(at), {}))
            self._hosts[name] = (line, before | own)
            self._groups[group].hosts.add(name)

    def _vars(self, body: Any, at: Location) -> Vars:
        found = self._mapping(body, at)
        return {name: Value(value, self._file.line((*at, name))) for name, value in found.items()}

    def _mapping(self, body: Any, at: Location) -> Mapping[str, Any]:
        if isinstance(body, dict):
            return body
        if body is not None:
            self._problem(at, f"{path_text(at)}: should be a mapping (names with a colon), or empty")
        return {}

    def _problem(self, at: Location, what: str) -> None:
        self._file.problems.append((self._file.line(at), what))

    def _ancestors(self, name: str) -> set[str]:
        found: set[str] = set()
        waiting = [name]
        while waiting:
            new = self._groups[waiting.pop()].parents - found
            found |= new
            waiting += new
        return found

    def _depth(self, name: str) -> int:
        """Return the longest path from `all` to a group; it is cached, because a group may have many parents."""
        if name not in self._depths:
            self._depths[name] = 1 + max(map(self._depth, self._groups[name].parents), default=-1)
        return self._depths[name]

    def _groups_of(self, host: str) -> set[str]:
        direct = {name for name, group in self._groups.items() if host in group.hosts}
        return direct.union({"all"}, *(self._ancestors(name) for name in direct))


def expand(pattern: str) -> Iterator[str]:
    """Yield the names that a pattern such as gpu[01:12] or rack[a:c] stands for; a plain name is itself."""
    fixed = RANGE.split(pattern)[::4]
    parts = [list(islice(_range(*match), MAX_HOSTS + 1)) for match in RANGE.findall(pattern)]
    for chosen in product(*parts):
        yield "".join(piece for pair in zip(fixed, (*chosen, ""), strict=True) for piece in pair)


def _range(first: str, last: str, step: str) -> Iterator[str]:
    stride = max(int(step or 1), 1)
    if first.isdecimal() and last.isdecimal():
        yield from (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1, stride))
    elif len(first) == len(last) == 1:
        yield from (chr(code) for code in range(ord(first), ord(last) + 1, stride))
