"""Decides whether Rung saves for a script that does not save by itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from itertools import islice

from rung.jobs.spec.checkpoint_spec import OWN_EVERY
from rung.recovery.doctor.analysis.script import Script
from rung.recovery.doctor.job_draft.saves import MOST, Save, is_repeated
from rung.recovery.doctor.resume_code import trainer_of

BY_RUNG = {"by": "rung", "every": OWN_EVERY}
# Calls that may save a checkpoint, by their names, and those that save other things.
SAVERS = re.compile(r"save|(checkpoint|ckpt|snapshot)$", re.IGNORECASE)
NO_SAVERS = re.compile(r"savefig|savetxt|save_(for_backward|image|img|fig|plot)", re.IGNORECASE)


def can_rung_save(script: Script, saves: Sequence[Save]) -> bool:
    """Return whether the script trains in a loop of its own, which saves nothing while it runs."""
    roots = {module.partition(".")[0] for module in script.names.modules}
    # The loaders of Accelerate fetch ahead, as Trainers do: the place in the data is not known.
    own_loop = script.uses_torch and script.trains and "accelerate" not in roots and trainer_of(script) is None
    return own_loop and all(save.why for save in saves)


def unread_save(script: Script) -> str:
    """Return a call in the training loop that may save, in code that was not read; empty: there is none."""
    defined = {node.name for node in script.nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    calls = (
        (node, op.name)
        for node, op in script.calls
        if op.home in ("other", "method") and SAVERS.search(op.name) and not NO_SAVERS.search(op.name)
    )
    unread = ((node, name) for node, name in islice(calls, MOST) if name not in defined and is_repeated(script, node))
    return next((f"{name}() in line {node.lineno}" for node, name in unread), "")
