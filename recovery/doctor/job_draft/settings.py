"""Finds the settings that a script takes from outside: the options of its command, and the keys of Hydra."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any

from rung.recovery.doctor.analysis.import_names import Operation, dotted
from rung.recovery.doctor.analysis.script import Script
from rung.recovery.doctor.resume_code import UNKNOWN

# More options than any script has; the rest of a hostile one is not read.
MOST = 1000
# Options that HfArgumentParser makes of transformers' own arguments, where the script names one of these classes.
OF_TRAINER = ("output_dir", "per_device_train_batch_size", "gradient_accumulation_steps")
# A hostile script may name its options anything; others than these are not used.
PLAIN = re.compile(r"[-+]{0,2}\w[\w.-]{0,99}", re.ASCII)
SWITCHES = ("store_true", "BooleanOptionalAction")


class Style(StrEnum):
    """How a setting is given."""

    FLAG = "flag"  # --out-dir X
    ASSIGNED = "assigned"  # --out_dir=X, which replaces a constant of the script
    OVERRIDE = "override"  # train.out_dir=X, for Hydra
    VARIABLE = "variable"  # OUT_DIR=X in the environment
    FILE = "file"  # a key of a config file


@dataclass(frozen=True)
class Setting:
    """One setting: its name in Python, how the command gives it, and its default where the code tells."""

    name: str
    spellings: tuple[str, ...]
    style: Style
    line: int
    default: Any = UNKNOWN
    is_switch: bool = False
    file: str = ""

    @property
    def spelling(self) -> str:
        """Return the spelling to write: the first long one."""
        return next((each for each in self.spellings if each.startswith("--")), self.spellings[0])

    def given(self, argv: Sequence[str]) -> str | None:
        """Return the value that a command gives it; None: it gives none."""
        for index, word in enumerate(argv):
            name, equals, value = word.partition("=")
            if name in self.spellings and equals:
                return value
            if word in self.spellings and self.style is Style.FLAG:
                return "" if self.is_switch else next(iter(argv[index + 1 : index + 2]), "")
        return None

    def words(self, value: str) -> tuple[str, ...]:
        """Return the words of a command that give it a value."""
        if self.is_switch:
            return (self.spelling,)
        return (self.spelling, value) if self.style is Style.FLAG else (f"{self.spelling}={value}",)

    def set_in(self, argv: Sequence[str], value: str) -> tuple[str, ...]:
        """Return a command with this value: in place of the one it gives, else at the end."""
        for index, word in enumerate(argv):
            if word.partition("=")[0] in self.spellings:
                apart = "=" not in word and not self.is_switch and self.style is Style.FLAG
                return (*argv[:index], *self.words(value), *argv[index + (2 if apart else 1) :])
        return (*argv, *self.words(value))


def settings_of(script: Script) -> dict[str, Setting]:
    """Return the settings of a script by their names in Python; the first of a name counts."""
    found: dict[str, Setting] = {}
    sources = (_argparse(script), _click(script), _dataclasses(script), _constants(script))
    for setting in islice((each for source in sources for each in source), MOST):
        if all(map(PLAIN.fullmatch, setting.spellings)):
            found.setdefault(setting.name, setting)
    return found


def _argparse(script: Script) -> Iterator[Setting]:
    for node, op in script.called("add_argument"):
        flags = [word for word in _texts(node.args) if word.startswith("-")]
        long = [word for word in flags if word.startswith("--")]
        if not long:
            continue
        action = op.keywords.get("action")
        word = action.value if isinstance(action, ast.Constant) else dotted(action).rpartition(".")[2] if action else ""
        name = next(iter(_texts([op.keywords["dest"]] if "dest" in op.keywords else [])), _python_name(long[0]))
        yield Setting(name, tuple(flags), Style.FLAG, node.lineno, _default(op), word in SWITCHES)


def _click(script: Script) -> Iterator[Setting]:
    for node, op in script.called("option"):
        flags = [word.partition("/")[0] for word in _texts(node.args) if word.startswith("-")]
        long = [word for word in flags if word.startswith("--")]
        if not long or not script.names.full(node.func).startswith("click."):
            continue
        plain = [word for word in _texts(node.args) if not word.startswith("-")]
        switch = isinstance(flag := op.keywords.get("is_flag"), ast.Constant) and flag.value is True
        switch = switch or any("/" in word for word in _texts(node.args))
        name = plain[0] if plain else _python_name(long[0])
        yield Setting(name, tuple(flags), Style.FLAG, node.lineno, _default(op), switch)


def _dataclasses(script: Script) -> Iterator[Setting]:
    """Yield the options that HfArgumentParser makes of the fields of dataclasses."""
    for node, _ in islice(script.called("HfArgumentParser"), 5):
        words = {
            dotted(part).rpartition(".")[2] for part in ast.walk(node) if isinstance(part, (ast.Name, ast.Attribute))
        }
        for each in script.nodes:
            if isinstance(each, ast.ClassDef) and each.name in words:
                yield from _fields(each)
        if any(word.endswith(("TrainingArguments", "Config")) for word in words):
            yield from (Setting(name, (f"--{name}",), Style.FLAG, node.lineno) for name in OF_TRAINER)


def _fields(owner: ast.ClassDef) -> Iterator[Setting]:
    for node in owner.body:
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            continue
        value: ast.expr | None = node.value
        if isinstance(value, ast.Call):
            value = next((word.value for word in value.keywords if word.arg == "default"), None)
        default = value.value if isinstance(value, ast.Constant) else UNKNOWN
        yield Setting(node.target.id, (f"--{node.target.id}",), Style.FLAG, node.lineno, default)


def _constants(script: Script) -> Iterator[Setting]:
    """Yield the constants of a script that runs a file which replaces them by `--name=value`."""
    if not any(_runs_a_file(script, node) for node, _ in script.called("exec")):
        return
    for node in script.tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if isinstance(node, ast.Assign) and isinstance(target, ast.Name) and isinstance(node.value, ast.Constant):
            yield Setting(target.id, (f"--{target.id}",), Style.ASSIGNED, node.lineno, node.value.value)


def _runs_a_file(script: Script, node: ast.Call) -> bool:
    return any("open" in script.names_in(each) or "read_text" in script.names_in(each) for each in node.args)


def _default(op: Operation) -> Any:
    value = op.keywords.get("default")
    return value.value if isinstance(value, ast.Constant) else UNKNOWN if value is not None else None


def _texts(nodes: Sequence[ast.expr]) -> list[str]:
    return [each.value for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, str)]


def _python_name(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def hydra_config(script: Script) -> str:
    """Return the name of the config in a function under @hydra.main; empty: it has none."""
    for node in script.nodes:
        if isinstance(node, ast.FunctionDef) and node.args.args:
            for each in node.decorator_list:
                if script.names.full(each.func if isinstance(each, ast.Call) else each) == "hydra.main":
                    return node.args.args[0].arg
    return ""


def value_of(setting: Setting, argv: Sequence[str], environ: Mapping[str, str] | None = None) -> Any:
    """Return the value of a setting in this command: as given, else its default; UNKNOWN: the code does not tell."""
    given = setting.given(argv) if setting.style is not Style.VARIABLE else (environ or {}).get(setting.spelling)
    return setting.default if given is None else given
