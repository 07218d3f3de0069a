"""Finds what the command of a relaunch must give a script so that it loads its checkpoint."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from rung.recovery.doctor.job_draft.path_parts import PathReader
from rung.recovery.doctor.job_draft.settings import Setting, Style
from rung.recovery.doctor.resume_code import FRAMEWORKS, MOST, Outlook, conditions, defaults, loads, options_in, outlook
from rung.recovery.doctor.resume_code import Settings as Known

# What these take is no checkpoint of this run.
OTHER_WEIGHTS = re.compile(r"pretrain|teacher|backbone|weights|tokenizer|vocab|student|vae|clip", re.IGNORECASE)
# Where the script gets the path that it loads by a setting, its value is this placeholder.
CHECKPOINT = "{checkpoint}"


@dataclass(frozen=True)
class Resume:
    """How a script resumes: by a path that it is given, by further options, or by itself."""

    outlook: Outlook
    path: Setting | None = None
    further: tuple[tuple[Setting, str], ...] = ()
    # A framework loads the checkpoint that zero-edit gives it.
    is_by_framework: bool = False


def find_resume(paths: PathReader, argv: Sequence[str], folders: Sequence[Setting]) -> Resume:
    """Return how the script resumes; `folders` are settings that give the folder of its checkpoints."""
    script = paths.script
    modules = {module.partition(".")[0] for module in script.names.modules}
    plain = outlook(script, argv, "zero-edit")
    if plain.resumes and modules & set(FRAMEWORKS):
        return Resume(plain, is_by_framework=True)
    for node in islice(loads(script), MOST):
        found = _by_path(paths, node, argv, folders) or _by_options(paths, node, argv)
        if found is not None:
            return found
    return Resume(plain)


def _by_path(paths: PathReader, node: ast.Call, argv: Sequence[str], folders: Sequence[Setting]) -> Resume | None:
    """Return how a load is reached whose path is a setting of its own; None: it is not."""
    parts = paths.read(node.args[0]) if node.args else ()
    setting = parts[0] if len(parts) == 1 else None
    if not isinstance(setting, Setting) or setting in folders or OTHER_WEIGHTS.search(setting.name):
        return None
    if setting.style in (Style.VARIABLE, Style.FILE):
        return Resume(Outlook(None, "the path to load comes from outside of the command"), path=setting)
    given = setting.set_in(argv, "checkpoint.pt")
    found = outlook(paths.script, given, "zero-edit")
    return Resume(found, path=setting) if found.resumes else None


def _by_options(paths: PathReader, node: ast.Call, argv: Sequence[str]) -> Resume | None:
    """Return the options that make a load happen which this command does not make happen; None: there are none."""
    known = Known(paths.script, options_in(argv), defaults(paths.script))
    unmet = [test for test in conditions(paths.script, node) if known.holds(test) is not True]
    further = [_made_true(test, paths.settings) for test in unmet]
    if not unmet or None in further:
        return None
    found = dict(each for each in further if each is not None)
    words = tuple(argv)
    for setting, value in found.items():
        words = setting.set_in(words, value)
    after = outlook(paths.script, words, "zero-edit")
    return Resume(after, further=tuple(found.items())) if after.resumes else None


def _made_true(test: ast.expr, settings: Mapping[str, Setting]) -> tuple[Setting, str] | None:
    """Return the setting and the value that make a condition true; None: no setting does."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return next((found for each in test.values if (found := _made_true(each, settings))), None)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.comparators[0], ast.Constant):
        setting, value = _setting(test.left, settings), test.comparators[0].value
        if isinstance(test.ops[0], (ast.Eq, ast.Is)) and setting is not None and isinstance(value, str):
            return setting, value
        return None
    setting = _setting(test, settings)
    # A value of which only "not empty" is known: a yes is one only where the default is a no.
    usable = setting is not None and (setting.is_switch or setting.default is False)
    return (setting, "True") if setting is not None and usable else None


def _setting(node: ast.expr, settings: Mapping[str, Setting]) -> Setting | None:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return settings.get(name)
