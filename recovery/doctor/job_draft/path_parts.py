"""Reads which path an expression is: fixed text, settings, and what changes from one save to the next."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rung.recovery.doctor.analysis.import_names import dotted
from rung.recovery.doctor.analysis.script import Script
from rung.recovery.doctor.job_draft.settings import PLAIN, Setting, Style
from rung.recovery.doctor.resume_code import UNKNOWN

# None: a part that is not known, or that is another one at each save.
Part = str | Setting | None
Parts = tuple[Part, ...]
UNREAD: Parts = (None,)
DEEPEST, MOST = 12, 20_000
JOINS = ("join", "joinpath")
# These give the same path in another form.
SAME = ("str", "Path", "PurePath", "abspath", "expanduser", "realpath", "resolve", "absolute", "fspath", "normpath")
LOADERS = ("safe_load", "load", "full_load", "loads")
_FIELD = re.compile(r"%[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]|\{[^{}]*\}")
# Finds a key in a config file of the script: the file and its value.
FindKey = Callable[[str], tuple[str, object] | None]


@dataclass(frozen=True)
class PathReader:
    """Reads paths in one script."""

    script: Script
    settings: Mapping[str, Setting]
    hydra: str = ""
    find_key: FindKey = lambda key: None
    # How many expressions may still be read: names that name each other make a short script endless.
    _left: list[int] = field(default_factory=lambda: [MOST])

    def read(self, node: ast.AST | None, depth: int = 0) -> Parts:
        """Return the parts of a path."""
        self._left[0] -= 1
        if node is None or depth > DEEPEST or self._left[0] < 0:
            return UNREAD
        if isinstance(node, ast.Constant):
            return (str(node.value),) if isinstance(node.value, (str, int)) else UNREAD
        if isinstance(node, ast.JoinedStr):
            return self._all(node.values, depth)
        if isinstance(node, ast.FormattedValue):
            return self.read(node.value, depth + 1)
        if isinstance(node, ast.BinOp):
            return self._operation(node, depth)
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        if isinstance(node, ast.Name):
            return self._name(node, depth)
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            return self._member(node, depth)
        return UNREAD

    def _all(self, nodes: list[ast.expr], depth: int, between: str = "") -> Parts:
        found: list[Part] = []
        for number, each in enumerate(nodes):
            found += [between] if number and between else []
            found += self.read(each, depth + 1)
        return tuple(found)

    def _operation(self, node: ast.BinOp, depth: int) -> Parts:
        if isinstance(node.op, ast.Add):
            sums = any(
                isinstance(each, ast.Constant) and isinstance(each.value, int) for each in (node.left, node.right)
            )
            return UNREAD if sums else self._all([node.left, node.right], depth)
        if isinstance(node.op, ast.Div):
            return self._all([node.left, node.right], depth, "/")
        if not isinstance(node.op, ast.Mod):
            return UNREAD
        values = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
        return self._template(node.left, values, depth)

    def _call(self, node: ast.Call, depth: int) -> Parts:
        op = self.script.names.operation(node)
        if op is None:
            return UNREAD
        if variable := self._variable(node):
            return (variable,)
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if op.name == "format" and owner is not None:
            return self._template(owner, node.args, depth)
        if op.name in JOINS and node.args:
            # "/".join(parts) is another thing than os.path.join(a, b).
            is_path = op.home != "method" or op.name == "joinpath"
            before = [owner] if op.home == "method" and owner is not None else []
            return self._all([*before, *node.args], depth, "/") if is_path else UNREAD
        if op.name in SAME:
            inner = [*node.args] or ([owner] if op.home == "method" and owner is not None else [])
            return self._all(inner, depth, "/") if inner else UNREAD
        return UNREAD

    def _template(self, node: ast.expr, values: list[ast.expr], depth: int) -> Parts:
        """Return the parts of "step_%d.pt" % step and "{}/step_{}.pt".format(folder, step)."""
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            return UNREAD
        fixed = _FIELD.split(node.value)
        known = values if len(values) == len(fixed) - 1 else [None] * (len(fixed) - 1)
        found: list[Part] = [fixed[0]]
        for value, text in zip(known, fixed[1:], strict=True):
            found += [*self.read(value, depth + 1), text]
        return tuple(part for part in found if part != "")

    def _variable(self, node: ast.Call) -> Setting | None:
        """Return the variable that os.environ.get("OUT", "out") or os.getenv reads."""
        if self.script.names.full(node.func) not in ("os.environ.get", "os.getenv") or not node.args:
            return None
        name, default = node.args[0], node.args[1] if len(node.args) > 1 else None
        text = str(name.value) if isinstance(name, ast.Constant) else ""
        value = default.value if isinstance(default, ast.Constant) else UNKNOWN
        return Setting(text, (text,), Style.VARIABLE, node.lineno, value) if PLAIN.fullmatch(text) else None

    def _name(self, node: ast.Name, depth: int) -> Parts:
        setting = self.settings.get(node.id)
        if setting is not None and setting.style is Style.ASSIGNED:
            return (setting,)
        bound = self.script.scopes.value(node)
        if bound is not None:
            return self.read(bound, depth + 1)
        given = self._argument(node)
        if given is not None:
            return self.read(given, depth + 1)
        return (setting,) if setting is not None else UNREAD

    def _argument(self, node: ast.Name) -> ast.expr | None:
        """Return what the first call of the function around a name gives for it as a parameter, or its default."""
        function = self.script.scopes.function(node)
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return None
        names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
        index = names.index(node.id) - (names[:1] == ["self"]) if node.id in names else -1
        owner = next(self.script.scopes.around(function, ast.ClassDef), None)
        # An object of a class is made by the name of the class.
        made = function.name == "__init__" and isinstance(owner, ast.ClassDef)
        calls = self.script.called(getattr(owner, "name", "") if made else function.name)
        # Not torch.save, where the script has a save of its own.
        call = next((call for call, op in calls if op.home in ("other", "method")), None)
        for word in call.keywords if call is not None else []:
            if word.arg == node.id:
                return word.value
        if call is not None and 0 <= index < len(call.args):
            return call.args[index]
        pairs = zip(reversed(names), reversed(function.args.defaults), strict=False)
        return next((value for name, value in pairs if name == node.id), None)

    def _member(self, node: ast.Attribute | ast.Subscript, depth: int) -> Parts:
        keys, root = _keys(node)
        if root == "self" and isinstance(node, ast.Attribute) and len(keys) == 1:
            kept = self.script.scopes.attribute(node)
            if kept is not None:
                return self.read(kept, depth + 1)
        if self.hydra and root == self.hydra and all(map(PLAIN.fullmatch, keys)):
            key = ".".join(keys)
            return (Setting(key, (key, f"+{key}", f"++{key}"), Style.OVERRIDE, node.lineno),)
        option = self.settings.get(keys[-1]) if keys else None
        if option is not None and len(keys) == 1 and isinstance(node, ast.Attribute):
            return (option,)
        key = ".".join(each.replace(".", "\\.") for each in keys)
        found = self.find_key(key) if keys and self._is_loaded(node) else None
        if found is not None:
            return (Setting(key, (key,), Style.FILE, node.lineno, found[1], file=found[0]),)
        # self.args.out, options["out"]
        return (option,) if option is not None and len(keys) == 1 + (root == "self") else UNREAD

    def _is_loaded(self, node: ast.AST) -> bool:
        """Return whether this is a part of what the script has loaded from a config file, as far as is seen."""
        root = next((part for part in ast.walk(node) if isinstance(part, ast.Name)), None)
        bound = self.script.scopes.value(root) if root is not None else None
        op = self.script.names.operation(bound) if isinstance(bound, ast.Call) else None
        # What a function of the script returns, or gets, may be a config, too: the key decides.
        return bound is None or (op is not None and (op.name in LOADERS or op.home == "other"))


def _keys(node: ast.expr) -> tuple[list[str], str]:
    """Return the keys of config["train"]["out"] or config.train.out, and the name that they belong to."""
    keys: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            keys.insert(0, node.attr)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            keys.insert(0, str(node.slice.value))
        else:
            break
        node = node.value
    return (keys, dotted(node)) if isinstance(node, ast.Name) else ([], "")
