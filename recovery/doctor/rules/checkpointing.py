"""Rules on checkpoints: written atomically, and complete for a resume."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import islice

from rung.recovery.doctor.analysis.import_names import Operation, dotted
from rung.recovery.doctor.analysis.inference import source_text
from rung.recovery.doctor.analysis.script import Script
from rung.recovery.doctor.rules.rule import Hit, Rule, Severity

SAVED_IN_PLACE = Rule(
    "checkpoint-not-atomic",
    "a checkpoint is written in place",
    "a job that is killed while it writes leaves half a file under the name that a resume looks for",
    "write to a temporary name in the same folder, then os.replace(temporary, path)",
    Severity.NOTE,
    Severity.NOTE,
)
RESUME_RESTORES_LR = Rule(
    "resume-restores-lr",
    "a resume brings the old lr back",
    "load_state_dict restores the lr of the checkpoint: a lower lr asked for at the restart has no effect",
    'set the lr after loading: for group in optimizer.param_groups: group["lr"] = lr (and scheduler.base_lrs)',
    Severity.NOTE,
    Severity.NOTE,
)
LR_UNDONE = Rule(
    "lr-set-before-resume",
    "an lr is set, and then the optimizer's or scheduler's old state is loaded over it",
    "load_state_dict restores the lr of the checkpoint, so that the lr set before has no effect",
    "load the state first, then set the lr",
    Severity.WARNING,
    Severity.WARNING,
)
RULES = (SAVED_IN_PLACE, RESUME_RESTORES_LR, LR_UNDONE)
# Most loads that are examined in one file.
MOST = 50
MOVES = ("replace", "rename", "move", "link", "renames")
STATEFUL = ("optim", "opt", "sched")


def check(script: Script) -> Iterator[Hit]:
    """Yield saves and loads that can break a resume or undo its lr."""
    if script.trains:
        yield from _saves(script)
        yield from _resumes(script)


def _saves(script: Script) -> Iterator[Hit]:
    if any(_moves(op) for _, op in script.called(*MOVES)):
        return
    for node, op in script.called("save"):
        path = op.argument(0, "f")
        if op.home == "torch" and path is not None and _is_repeated(script, node) and not _in_memory(script, path):
            yield Hit(SAVED_IN_PLACE, node, f"torch.save writes {source_text(path)} in place")
            return  # One hit is enough: all saves of a script are alike.


def _moves(op: Operation) -> bool:
    """Return whether a call renames a file; replace(old, new) of a text does not."""
    return op.home != "method" or len(op.rest) == 1


def _is_repeated(script: Script, node: ast.Call) -> bool:
    function = script.scopes.function(node)
    name = getattr(function, "name", "").lower()
    return script.in_loop(node) is not None or "save" in name or "checkpoint" in name


def _in_memory(script: Script, path: ast.expr) -> bool:
    made = script.ranges.operation(script.ranges.follow(path))
    return made is not None and made.name in ("BytesIO", "NamedTemporaryFile", "TemporaryFile", "SpooledTemporaryFile")


def _resumes(script: Script) -> Iterator[Hit]:
    lr_is_given = any("lr" in op.keywords for _, op in script.calls)
    setters = [node for node in script.nodes if isinstance(node, (ast.Assign, ast.AugAssign)) and _sets_lr(node)]
    for node, op in islice(script.called("load_state_dict"), MOST):
        name = dotted(op.subject).rpartition(".")[2].lower() if op.subject is not None else ""
        if not name.startswith(STATEFUL) and not name.endswith(("optimizer", "scheduler", "_optim", "_opt")):
            continue
        later = [
            each
            for each in setters
            if script.scopes.function(each) is not script.scopes.function(node) or _below(each, node)
        ]
        if later:
            return
        before = [each for each in setters if not script.are_exclusive(each, node)]
        if before:
            yield Hit(
                LR_UNDONE, node, f"the lr set in line {before[-1].lineno} is undone: {name} brings its old one back"
            )
            return
        if lr_is_given:
            yield Hit(RESUME_RESTORES_LR, node, f"{source_text(node.func)} brings the lr of the checkpoint back")
            return


def _sets_lr(node: ast.Assign | ast.AugAssign) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(
        isinstance(each, ast.Subscript) and isinstance(each.slice, ast.Constant) and each.slice.value == "lr"
        for each in targets
    )


def _below(one: ast.stmt, other: ast.expr) -> bool:
    return one.lineno > other.lineno
