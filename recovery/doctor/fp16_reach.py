"""Decides whether a file runs in FP16: because it mentions FP16, or because such a file imports it."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from rung.recovery.doctor.analysis.script import Script

_IDENTIFIER = re.compile(
    r"^(GradScaler|HalfTensor|float16|.*(?:^|_)fp16(?:_.*|$)|use_amp|use_half|mixed_precision|autocast)$", re.IGNORECASE
)
_TEXT = re.compile(r"^(?:fp16|float16|16-mixed|16-true|--(?:fp16|amp|use[-_]amp|half|mixed[-_]precision|precision))$")


def says_fp16(script: Script) -> bool:
    """Return whether the script itself mentions FP16; bfloat16 alone does not count."""
    return any(_mentions_fp16(script, node) for node in script.nodes)


def _mentions_fp16(script: Script, node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and _TEXT.match(node.value) is not None
    if isinstance(node, ast.keyword):
        wide = node.arg == "precision" and isinstance(node.value, ast.Constant) and node.value.value == 16
        return wide or (node.arg is not None and _IDENTIFIER.match(node.arg) is not None)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "half":
        return not node.args
    if isinstance(node, ast.Attribute):
        return script.names.full(node) == "torch.half" or _is_identifier(script, node, node.attr)
    return isinstance(node, ast.Name) and _is_identifier(script, node, node.id)


def _is_identifier(script: Script, node: ast.AST, name: str) -> bool:
    if not _IDENTIFIER.match(name):
        return False
    call = script.parent(node)
    if name != "autocast" or not isinstance(call, ast.Call):
        return True
    return not any("bfloat16" in ast.dump(word.value) for word in call.keywords if word.arg == "dtype")


def reached(imports: Mapping[str, frozenset[str]], start: frozenset[str]) -> frozenset[str]:
    """Return the files that run in FP16: those in `start`, and all that they import, directly or indirectly."""
    by_last_name: dict[str, list[str]] = {}
    for path in imports:
        by_last_name.setdefault(_module(path).rpartition(".")[2], []).append(path)
    found, pending = set(start), list(start)
    while pending:
        for module in imports[pending.pop()]:
            for path in _files(module, by_last_name):
                if path not in found:
                    found.add(path)
                    pending.append(path)
    return frozenset(found)


def _files(module: str, by_last_name: Mapping[str, list[str]]) -> list[str]:
    """Return the files that a dotted name can mean: that module, or the module that contains the name."""
    parts = [part for part in module.split(".") if part]
    for wanted in (parts, parts[:-1]):
        if wanted:
            suffix = ".".join(wanted)
            hits = [path for path in by_last_name.get(wanted[-1], ()) if f".{_module(path)}".endswith(f".{suffix}")]
            if hits:
                return hits
    return []


def _module(path: str) -> str:
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts and parts[-1] == "__init__" else parts)
