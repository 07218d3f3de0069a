"""Finds where and how a script saves its checkpoints."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from rung.recovery.doctor.analysis.import_names import Operation, dotted
from rung.recovery.doctor.analysis.inference import source_text
from rung.recovery.doctor.analysis.script import Script, is_literal
from rung.recovery.doctor.job_draft.path_parts import UNREAD, Part, Parts, PathReader
from rung.recovery.doctor.job_draft.settings import Setting, value_of
from rung.recovery.doctor.resume_code import DEEPEST, Settings, conditions, defaults, options_in

LIGHTNING = ("lightning", "pytorch_lightning")
MOST = 50
ONCE = "{} in line {} is in no loop, so it saves only once"
MOVES = ("replace", "rename", "move", "renames")
# Files that are no state to go on from, as far as their names tell.
FINAL = re.compile(r"best|final|export|ema|embedding|feature|onnx|predict|output|vocab", re.IGNORECASE)
STATE = re.compile(r"optim|sched|scaler|step|epoch|iter|state")


@dataclass(frozen=True)
class Save:
    """One place where a checkpoint is written."""

    line: int
    what: str
    folder: Parts
    pattern: str
    # How many checkpoints the script keeps; None: all, or not known.
    keeps: int | None = None
    # Why there is no pattern, or why the folder cannot be told, in words.
    why: str = ""
    # Whether it goes to the job's own folder without a setting.
    is_given: bool = False
    # Whether it holds more than weights, as far as is seen.
    is_whole: bool = True


def find_saves(script: Script, paths: PathReader, argv: Sequence[str]) -> list[Save]:
    """Return the places where the script saves when it runs with this command, the one to resume from first."""
    roots = {module.partition(".")[0] for module in script.names.modules}
    found: list[Save] = []
    if "transformers" in roots or "trl" in roots:
        found += _trainer(script, paths)
    if roots & set(LIGHTNING):
        found += _lightning(script, paths)
    return [*found, *_files(script, paths, argv)]


def _trainer(script: Script, paths: PathReader) -> Iterator[Save]:
    """Yield what transformers' Trainer saves, by its arguments."""
    parsed = any(script.called("HfArgumentParser"))
    for node, op in script.calls:
        if not op.name.endswith(("TrainingArguments", "Config")) or op.home not in ("other", "method"):
            continue
        folder = op.keywords.get("output_dir") or (op.subject if op.name.endswith("Arguments") else None)
        if folder is None:
            continue
        if is_text(op.keywords.get("save_strategy"), "no"):
            yield Save(node.lineno, op.name, UNREAD, "", why="save_strategy is 'no', so the Trainer saves nothing")
            return
        limit = op.keywords.get("save_total_limit")
        keeps = limit.value if isinstance(limit, ast.Constant) and isinstance(limit.value, int) else None
        yield Save(
            node.lineno, f"{op.name}(output_dir={source_text(folder)})", paths.read(folder), "checkpoint-*", keeps
        )
        return
    setting = paths.settings.get("output_dir")
    if parsed and setting is not None:
        yield Save(setting.line, "HfArgumentParser takes --output_dir", (setting,), "checkpoint-*")


def _lightning(script: Script, paths: PathReader) -> Iterator[Save]:
    """Yield what Lightning's Trainer saves: by a ModelCheckpoint, or by default."""
    keeps: int | None = 1
    for node, op in script.called("ModelCheckpoint"):
        folder, top = op.keywords.get("dirpath") or op.subject, op.keywords.get("save_top_k", ast.Constant(1))
        keeps = top.value if isinstance(top, ast.Constant) and isinstance(top.value, int) else None
        if keeps == 0:
            yield Save(node.lineno, op.name, UNREAD, "", why="save_top_k is 0, so Lightning saves nothing")
            return
        if folder is not None and not is_literal(folder, None):
            what = f"ModelCheckpoint(dirpath={source_text(folder)})"
            yield Save(node.lineno, what, paths.read(folder), "*.ckpt", keeps)
            return
    for node, op in islice(script.called("Trainer", "LightningCLI"), 1):
        if is_literal(op.keywords.get("enable_checkpointing"), False):
            yield Save(
                node.lineno, op.name, UNREAD, "", why="enable_checkpointing is False, so Lightning saves nothing"
            )
        else:
            # Without a folder of the script's, zero-edit gives Lightning the job's own.
            yield Save(node.lineno, f"{op.name}() of Lightning", (), "*.ckpt", keeps, is_given=True)


def _files(script: Script, paths: PathReader, argv: Sequence[str]) -> list[Save]:
    """Return the files and folders that the script writes by itself, the likeliest one to resume from first."""
    ranked: list[tuple[int, int, Save]] = []
    for node, op in islice(script.called("save", "save_file", "save_state"), MOST):
        target = _target(op)
        if target is None or (op.name == "save" and op.home != "torch"):
            continue
        path, what = _opened(script, target) or target, f"{source_text(node.func)}()"
        folder, pattern = _split(paths.read(_renamed(script, path) or path), argv) or (UNREAD, "")
        why = _why_never(script, node, argv) or ("" if is_repeated(script, node) else ONCE.format(what, node.lineno))
        save = Save(node.lineno, what, folder, "" if why else pattern, why=why, is_whole=_is_whole(script, op))
        ranked.append((-4 * save.is_whole + 3 * bool(FINAL.search(pattern)), node.lineno, save))
    return [save for _, _, save in sorted(ranked, key=lambda each: each[:2])]


def _target(op: Operation) -> ast.expr | None:
    """Return the path that is written: the second argument, or the first of accelerator.save_state."""
    if op.name == "save_state":
        return op.argument(0, "output_dir") if op.home == "method" else None
    return op.argument(0, "f") or op.keywords.get("filename")


def _opened(script: Script, target: ast.expr) -> ast.expr | None:
    """Return the path of a file that is written through `with open(path, "wb") as file`."""
    for outer in script.scopes.around(target, ast.With, ast.AsyncWith):
        assert isinstance(outer, (ast.With, ast.AsyncWith))
        for item in outer.items:
            call, name = item.context_expr, item.optional_vars
            if isinstance(call, ast.Call) and isinstance(name, ast.Name) and ast.dump(target) == ast.dump(_load(name)):
                owner = call.func.value if isinstance(call.func, ast.Attribute) else None
                return (
                    owner if owner is not None and dotted(call.func).endswith(".open") else next(iter(call.args), None)
                )
    return None


def _load(name: ast.Name) -> ast.Name:
    return ast.Name(name.id, ast.Load())


def _renamed(script: Script, target: ast.expr) -> ast.expr | None:
    """Return the name that a file gets after it was written: os.replace(temporary, path)."""
    written = ast.dump(target)
    for _, op in islice(script.called(*MOVES), MOST):
        old, new = (op.subject, op.argument(0, "dst")) if op.subject is not None else (None, None)
        if old is not None and new is not None and ast.dump(old) == written:
            return new
    return None


def _why_never(script: Script, node: ast.Call, argv: Sequence[str]) -> str:
    """Return why this command never reaches a save; empty: it may."""
    known = Settings(script, options_in(argv), defaults(script))
    unmet = next((test for test in conditions(script, node) if known.holds(test) is False), None)
    what = f"{source_text(node.func)}() in line {node.lineno}"
    return f"{what} is called only if {source_text(unmet)}, which this command does not make true" if unmet else ""


def is_repeated(script: Script, node: ast.AST) -> bool:
    """Return whether a call is in a loop, or in a function that is called in one, or by somebody who is not seen."""
    for _ in range(DEEPEST):
        if script.in_loop(node) is not None:
            return True
        function = script.scopes.function(node)
        if function is script.tree:
            return False
        calls = [call for call, op in script.called(getattr(function, "name", "")) if op.home in ("other", "method")]
        if not calls or any(script.in_loop(call) is not None for call in calls):
            return True
        node = calls[0]
    return True


def _is_whole(script: Script, op: Operation) -> bool:
    """Return whether what is saved holds more than weights: an optimizer, a step."""
    saved = op.subject
    if isinstance(saved, ast.Name):
        saved = script.scopes.value(saved) or saved
    if isinstance(saved, (ast.Dict, ast.Call)):
        return op.name == "save_state" or len(set(STATE.findall(source_of(saved).lower()))) > 1
    return op.name == "save_state" or saved is None or isinstance(saved, ast.Name)


def source_of(node: ast.expr) -> str:
    """Return the source text of an expression, uncut; empty where it cannot be written."""
    try:
        return ast.unparse(node)
    except (ValueError, RecursionError):
        return ""


def _split(parts: Parts, argv: Sequence[str]) -> tuple[Parts, str] | None:
    """Return the folder and the pattern of a path; None where its name is not known."""
    folder: list[Part] = []
    name: list[Part] = list(parts)
    for index in range(len(parts) - 1, -1, -1):
        part = parts[index]
        if isinstance(part, str) and "/" in part:
            before, _, after = part.rpartition("/")
            folder = [*parts[:index], *([before] if before or not index else [])]
            name = [*([after] if after else []), *parts[index + 1 :]]
            break
    if len(name) == 1 and isinstance(name[0], Setting) and not folder:
        return tuple(name), ""  # a whole path in one setting: its name is in the value
    texts = [_text(part, argv) for part in name]
    return (tuple(folder), pattern_of(texts)) if any(texts) else None


def _text(part: Part, argv: Sequence[str]) -> str | None:
    value = value_of(part, argv) if isinstance(part, Setting) else part
    return str(value) if isinstance(value, (str, int)) and "/" not in str(value) else None


def pattern_of(texts: list[str | None]) -> str:
    """Return the pattern of a name with one * for all that is not fixed text."""
    if None not in texts:
        return "".join(filter(None, texts))
    last = len(texts) - 1 - texts[::-1].index(None)
    return "".join(filter(None, texts[: texts.index(None)])) + "*" + "".join(filter(None, texts[last + 1 :]))


def is_text(node: ast.expr | None, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text
