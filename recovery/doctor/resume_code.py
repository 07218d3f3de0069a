"""Tells from the code of a script whether a given command makes it load a checkpoint. The script is never run.

What it says is a reading of the `if`s around the loads: True, False, or None where the code does not tell.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from rung.jobs.model.terminal_text import clean
from rung.recovery.doctor.analysis.inference import source_text
from rung.recovery.doctor.analysis.script import Script

LOADS = ("load", "load_file", "load_checkpoint", "load_state", "load_from_checkpoint", "restore_checkpoint")
# A condition with one of these looks for the file, which is there before a relaunch that resumes.
LOOKS_FOR_FILE = frozenset({"exists", "isfile", "is_file", "isdir", "is_dir", "glob", "listdir", "iterdir"})
FRAMEWORKS = ("transformers", "lightning", "pytorch_lightning")
# What is in a script that one of these drives, or a library on top of them, by the end of its name: Seq2SeqTrainer.
DRIVERS = ("Trainer", "LightningCLI", "LightningModule")
# How many loads of a file, and how many functions around one, are followed.
MOST, DEEPEST = 50, 4
SETTINGS = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg")
UNKNOWN = object()


@dataclass(frozen=True)
class Outlook:
    """Whether a relaunch resumes, as far as the code tells, and how that is known."""

    resumes: bool | None
    why: str


@dataclass(frozen=True)
class Settings:
    """The settings of a script in one run: what the command gives, and the defaults in its code."""

    script: Script
    options: Mapping[str, str]
    defaults: Mapping[str, Any]

    def holds(self, test: ast.expr) -> bool | None:
        """Return whether a condition is true in this run; None: that cannot be told."""
        if isinstance(test, ast.BoolOp):
            answers = [self.holds(each) for each in test.values]
            decisive = isinstance(test.op, ast.Or)
            if decisive in answers:
                return decisive
            return None if None in answers else not decisive
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            answer = self.holds(test.operand)
            return None if answer is None else not answer
        if _looks_for_file(self.script, test, set()):
            return True
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            return self._compared(test)
        value = self._value(test)
        return None if value is UNKNOWN else bool(value)

    def _compared(self, test: ast.Compare) -> bool | None:
        value, other = self._value(test.left), test.comparators[0]
        if value is UNKNOWN or not isinstance(other, ast.Constant):
            return None
        same = value is None if other.value is None else str(value) == str(other.value)
        if isinstance(test.ops[0], (ast.Eq, ast.Is)):
            return same
        return not same if isinstance(test.ops[0], (ast.NotEq, ast.IsNot)) else None

    def _value(self, node: ast.expr, depth: int = 0) -> Any:
        """Return the value of `name` or `args.name`: as in the command, else its default; UNKNOWN: it is not told."""
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if name in self.options:
            return self.options[name]
        bound = self.script.scopes.value(node) if isinstance(node, ast.Name) else None
        if bound is not None and not isinstance(bound, ast.Constant):
            return self._value(bound, depth + 1) if depth < DEEPEST else UNKNOWN
        return self.defaults.get(name, UNKNOWN)


def outlook(script: Script, argv: Sequence[str], mode: str, configs: Sequence[Script] = ()) -> Outlook:
    """Return whether this command makes its script load a checkpoint.

    `mode` is the job's knobs.mode; `configs` are other Python files of the command, whose constants are settings.
    """
    name = script_in(argv) or "the script"
    modules = {module.partition(".")[0] for module in script.names.modules}
    framework = next((each for each in FRAMEWORKS if each in modules), None)
    if mode == "zero-edit" and framework is not None:
        return Outlook(True, f"zero-edit gives the checkpoint to the Trainer of {framework} in {name}")
    if mode == "inside" and "rung_inside" in modules and any(script.called("resume")):
        return Outlook(True, f"{name} calls resume() of rung_inside")
    files = {key: str(value) for each in configs for key, value in _constants(each).items()}
    settings = Settings(script, {**files, **options_in(argv)}, defaults(script))
    found = [_judge(settings, node) for node in loads(script)]
    # A file of settings that was not read may say something else.
    unread = any(word.endswith(SETTINGS) for word in argv)
    told = [Outlook(None if unread and not each.resumes else each.resumes, f"{name}:{each.why}") for each in found]
    for answer in (True, None, False):
        if fitting := [each for each in told if each.resumes is answer]:
            return replace(fitting[0], why=clean(fitting[0].why))
    return Outlook(None, f"no load of a checkpoint is seen in {name}; what it imports was not read")


def trainer_of(script: Script) -> str | None:
    """Return the framework whose Trainer drives the training of a script; None: the script's own loop does."""
    roots = {module.partition(".")[0] for module in script.names.modules}
    framework = next((each for each in (*FRAMEWORKS, "trl") if each in roots), None)
    words = (
        each.id if isinstance(each, ast.Name) else each.attr
        for each in script.nodes
        if isinstance(each, (ast.Name, ast.Attribute))
    )
    return framework if framework is not None and any(word.endswith(DRIVERS) for word in words) else None


def loads(script: Script) -> Iterator[ast.Call]:
    for node, op in islice(script.called(*LOADS), MOST):
        # json.load, yaml.load and np.load read other things.
        if op.name != "load" or op.home == "torch":
            yield node


def _judge(settings: Settings, node: ast.Call) -> Outlook:
    """Return whether one load is reached, with its line first in the reason."""
    script = settings.script
    what = f"{node.lineno} {source_text(node.func)}() is called"
    answers = [(settings.holds(test), source_text(test)) for test in conditions(script, node)]
    if not answers:
        given = script.names_in(node) & set(settings.options)
        return Outlook(True if given else None, f"{what} at every start")
    for answer in (False, None):
        unmet = [text for holds, text in answers if holds is answer]
        if unmet:
            more = "" if answer is None else ", and the command of a relaunch does not make that true"
            return Outlook(answer, f"{what} only if {unmet[0]}{more}")
    return Outlook(True, f"{what} if {' and '.join(dict.fromkeys(text for _, text in answers))}, as in a relaunch")


def conditions(script: Script, node: ast.AST) -> list[ast.expr]:
    """Return what must be true for a node to run: the `if`s around it, and those around the call of its function."""
    found: list[ast.expr] = []
    for _ in range(DEEPEST):
        found += [outer.test for outer, branch in script.branches(node) if branch == "then"]
        function = script.scopes.function(node)
        call = next(script.called(getattr(function, "name", "")), None)
        if call is None:
            break
        node = call[0]
    return [test for test in found if "__name__" not in script.names_in(test)]


def _looks_for_file(script: Script, test: ast.AST, seen: set[ast.AST]) -> bool:
    """Return whether an expression, or what its names were bound to, looks for a file."""
    if test in seen or len(seen) > MOST:
        return False
    seen.add(test)
    words = [each for each in ast.walk(test) if isinstance(each, (ast.Name, ast.Attribute))]
    if any((each.id if isinstance(each, ast.Name) else each.attr) in LOOKS_FOR_FILE for each in words):
        return True
    bound = (script.scopes.value(each) for each in words if isinstance(each, ast.Name))
    return any(_looks_for_file(script, each, seen) for each in bound if each is not None)


def script_in(argv: Sequence[str]) -> str | None:
    """Return the Python script in a command."""
    return next((word for word in argv if word.endswith(".py")), None)


def options_in(argv: Sequence[str]) -> dict[str, str]:
    """Return the options of a command by their names in Python: --init-from=x, --resume x, model.resume=x, --flag."""
    found: dict[str, str] = {}
    for index, word in enumerate(argv):
        name, equals, value = word.lstrip("-+").partition("=")
        if not equals and not word.startswith("--"):
            continue
        following = argv[index + 1] if index + 1 < len(argv) else "-"
        given = value if equals else "true" if following.startswith("-") else following
        found[name.rpartition(".")[2].replace("-", "_")] = given
    return found


def defaults(script: Script) -> dict[str, Any]:
    """Return the values of settings that the command does not give: constants of the file, options of argparse."""
    found = _constants(script)
    for node, op in islice(script.called("add_argument"), 1000):
        words = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        default, action = op.keywords.get("default"), op.keywords.get("action")
        switch = isinstance(action, ast.Constant) and action.value == "store_true"
        value = (
            default.value if isinstance(default, ast.Constant) else UNKNOWN if default else False if switch else None
        )
        for word in (each for each in words if each.startswith("--")):
            found[word.lstrip("-").replace("-", "_")] = value
    return found


def _constants(script: Script) -> dict[str, Any]:
    """Return the constants that a file sets outside of functions; the first value of each is its default."""
    found: dict[str, Any] = {}
    for node in script.tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if isinstance(node, ast.Assign) and isinstance(target, ast.Name) and isinstance(node.value, ast.Constant):
            found.setdefault(target.id, node.value.value)
    return found
