"""Rules on FP16 parameters: under a loss scaler, or under Adam."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import islice

from rung.recovery.doctor.analysis.import_names import Operation, dotted
from rung.recovery.doctor.analysis.script import Script, is_literal
from rung.recovery.doctor.rules.rule import Hit, Rule, Severity

HALF_WITH_SCALER = Rule(
    "half-model-with-scaler",
    "an FP16 model trained under a loss scaler",
    "the scaler refuses FP16 gradients: `ValueError: Attempting to unscale FP16 gradients.` at the first step",
    "keep the parameters in FP32 and leave FP16 to autocast, or train in FP16 without a scaler (fp16=False)",
    Severity.ERROR,
    Severity.ERROR,
)
HALF_WITH_ADAM = Rule(
    "half-model-with-adam",
    "an FP16 model trained by Adam with an eps that FP16 rounds to 0",
    "the optimizer's state is FP16 too: eps 1e-8 is 0 there, and the first step divides 0 by 0",
    "keep the parameters in FP32 under autocast, or give Adam eps=1e-4",
    Severity.ERROR,
    Severity.ERROR,
)
RULES = (HALF_WITH_SCALER, HALF_WITH_ADAM)
HALF = ("torch.float16", "torch.half")
ADAMS = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax")
TRAINERS = ("fit", "prepare", "Trainer", "SFTTrainer", "Seq2SeqTrainer", "setup")
# So many of a kind are looked at in one file: each is held against all of the file, and no script has more.
MOST = 50


def check(script: Script) -> Iterator[Hit]:
    """Yield FP16 models that a scaler would refuse, or Adam spoil."""
    yield from _half_models(script)


def _half_models(script: Script) -> Iterator[Hit]:
    scaler = next((node for node, op in script.calls if _scales(op)), None)
    for node, name in islice(_made_half(script), MOST):
        # The base of adapters: what is trained on it may be FP16 like it, or not.
        wrapped = not _trained(script, name) and any(_trained(script, around) for around in _around(script, name))
        if not wrapped and not _trained(script, name):
            continue
        if scaler is not None:
            what = f"{name} is FP16 and line {scaler.lineno} makes a loss scaler"
            spared = wrapped or _adapters_are_fp32(script) or not _meet(script, node, scaler)
            yield Hit(HALF_WITH_SCALER, node, what, softer=spared)
        else:
            adam = next((node for node, op in script.called(*ADAMS) if _divides_by_nought(script, op, name)), None)
            if adam is not None and not any(True for _ in script.called("autocast")):
                yield Hit(HALF_WITH_ADAM, node, f"{name} is FP16 and line {adam.lineno} trains it by Adam")


def _meet(script: Script, one: ast.AST, other: ast.AST) -> bool:
    """Tell whether two things run together: in one function or class, or in functions that one place calls."""
    here, there = (
        next(script.scopes.around(node, ast.ClassDef), script.scopes.function(node)) for node in (one, other)
    )
    if here is there or script.tree in (here, there):
        return True
    return bool(({here} | _callers(script, here)) & ({there} | _callers(script, there)))


def _callers(script: Script, function: ast.AST) -> set[ast.AST]:
    name = getattr(function, "name", "")
    return {script.scopes.function(call) for call, _ in script.called(name)} if name else set()


def _around(script: Script, name: str) -> Iterator[str]:
    """Yield the names of what is built around a model: `model = Adapted(base)`."""
    for node, _ in script.calls:
        holder = script.parent(node)
        if isinstance(holder, ast.Assign) and name in {dotted(part) for each in node.args for part in ast.walk(each)}:
            yield dotted(holder.targets[0])


def _adapters_are_fp32(script: Script) -> bool:
    """Tell whether PEFT makes what is trained FP32, as it does unless it is told not to."""
    calls = [op for _, op in script.called("get_peft_model", "prepare_model_for_kbit_training")]
    return bool(calls) and not any(is_literal(op.keywords.get("autocast_adapter_dtype"), False) for op in calls)


def _scales(op: Operation) -> bool:
    """Tell whether a call makes a loss scaler, by itself or in a framework."""
    if op.name in ("GradScaler", "ShardedGradScaler"):
        return not is_literal(op.keywords.get("enabled"), False)
    if op.name.endswith("TrainingArguments") or op.name.endswith("Config"):
        return is_literal(op.keywords.get("fp16"), True)
    if op.name == "Accelerator":
        return _is_text(op.keywords.get("mixed_precision"), "fp16")
    precision = op.subject if op.name in ("MixedPrecision", "MixedPrecisionPlugin") else op.keywords.get("precision")
    framework = op.name in ("Trainer", "Fabric", "MixedPrecision", "MixedPrecisionPlugin")
    return framework and (
        _is_text(precision, "16-mixed") or (isinstance(precision, ast.Constant) and precision.value == 16)
    )


def _is_text(node: ast.expr | None, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


def _made_half(script: Script) -> Iterator[tuple[ast.Call, str]]:
    """Yield each call that makes a model FP16 for good, with the model's name."""
    for node, op in script.calls:
        if op.name == "from_pretrained":
            kind = op.keywords.get("torch_dtype", op.keywords.get("dtype"))
            if kind is None or not _means_half(script, kind):
                continue
        elif not _is_half(script, op):
            continue
        name = _kept_as(script, node)
        if name:
            yield node, name


def _is_half(script: Script, op: Operation) -> bool:
    if op.home != "method":
        return False
    if op.name == "half":
        return not op.rest
    kinds = [*op.rest, *(op.keywords[name] for name in ("dtype",) if name in op.keywords)]
    return op.name == "to" and any(_means_half(script, kind) for kind in kinds)


def _means_half(script: Script, kind: ast.expr) -> bool:
    """Tell whether a dtype is FP16, also as one arm of a choice between two dtypes that is made above."""
    made = script.judge.followed(kind)
    arms = [made.body, made.orelse] if isinstance(made, ast.IfExp) else [made]
    return any(arm is not None and script.names.full(arm) in HALF for arm in arms)


def _kept_as(script: Script, node: ast.Call) -> str:
    """Return the name under which the result stays: `model.half()` alone, or `model = Net().half().cuda()`."""
    outer: ast.AST = node
    while isinstance(above := script.parent(outer), (ast.Attribute, ast.Call)) and outer is not None:
        if isinstance(above, ast.Call) and above.func is not outer:
            return ""
        outer = above
    if isinstance(above, ast.Assign):
        return dotted(above.targets[0])
    if isinstance(above, ast.Expr) and isinstance(node.func, ast.Attribute):
        return dotted(node.func.value)
    return ""


def _trained(script: Script, name: str) -> bool:
    """Tell whether a model's parameters go to an optimizer, or the model to a framework's trainer."""
    if name == "self":
        return any(True for _ in script.called("configure_optimizers")) or _defines(script, "configure_optimizers")
    # `model.body.half()` makes a part of model FP16.
    owner = name.rpartition(".")[0] if not name.startswith("self.") else name
    for node, op in script.calls:
        if op.name == "parameters" and op.subject is not None and dotted(op.subject) in (name, owner):
            if _goes_to_optimizer(script, node):
                return True
        elif op.name in TRAINERS and {name, owner} & set(
            map(dotted, [*node.args, *(word.value for word in node.keywords)])
        ):
            return True
    return False


def _defines(script: Script, name: str) -> bool:
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in script.nodes)


def _goes_to_optimizer(script: Script, node: ast.AST) -> bool:
    for outer in script.scopes.around(node, ast.Call, ast.stmt):
        if isinstance(outer, ast.stmt):
            # Through a list of parameters, as `parameters = [p for p in model.parameters() if p.requires_grad]`.
            return isinstance(outer, ast.Assign) and "param" in dotted(outer.targets[0]).lower()
        assert isinstance(outer, ast.Call)
        called = dotted(outer.func)
        if (
            called.rpartition(".")[2] in (*ADAMS, "SGD", "RMSprop", "Adagrad", "Adafactor", "Lion")
            or "optim" in called.lower()
        ):
            return True
    return False


def _divides_by_nought(script: Script, op: Operation, name: str) -> bool:
    eps = script.judge.extent(op.keywords.get("eps"))
    given = op.keywords.get("eps") is not None
    names = {dotted(node) for node in ast.walk(op.subject)} if op.subject is not None else set()
    return name in names and (not given or 0.0 <= eps.high < 6e-8)
