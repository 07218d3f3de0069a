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
# Most calls of a kind that are examined in one file: each is compared with the whole file.
MOST = 50


def check(script: Script) -> Iterator[Hit]:
    """Yield FP16 models that a scaler would refuse, or that Adam would make NaN."""
    yield from _half_models(script)


def _half_models(script: Script) -> Iterator[Hit]:
    scaler = next((node for node, op in script.calls if _creates_scaler(op)), None)
    for node, name in islice(_converted_to_half(script), MOST):
        # The base model of adapters: the trained adapters can be FP16 or FP32.
        wrapped = not _is_trained(script, name) and any(_is_trained(script, each) for each in _wrappers(script, name))
        if not wrapped and not _is_trained(script, name):
            continue
        if scaler is not None:
            what = f"{name} is FP16 and line {scaler.lineno} makes a loss scaler"
            uncertain = wrapped or _adapters_are_fp32(script) or not _run_together(script, node, scaler)
            yield Hit(HALF_WITH_SCALER, node, what, softer=uncertain)
        else:
            adam = next((node for node, op in script.called(*ADAMS) if _eps_is_zero(script, op, name)), None)
            if adam is not None and not any(True for _ in script.called("autocast")):
                yield Hit(HALF_WITH_ADAM, node, f"{name} is FP16 and line {adam.lineno} trains it by Adam")


def _run_together(script: Script, one: ast.AST, other: ast.AST) -> bool:
    """Return whether two nodes run together: in one function or class, or in functions with a common caller."""
    here, there = (
        next(script.scopes.around(node, ast.ClassDef), script.scopes.function(node)) for node in (one, other)
    )
    if here is there or script.tree in (here, there):
        return True
    return bool(({here} | _callers(script, here)) & ({there} | _callers(script, there)))


def _callers(script: Script, function: ast.AST) -> set[ast.AST]:
    name = getattr(function, "name", "")
    return {script.scopes.function(call) for call, _ in script.called(name)} if name else set()


def _wrappers(script: Script, name: str) -> Iterator[str]:
    """Yield the names of objects that wrap a model: `model = Adapted(base)`."""
    for node, _ in script.calls:
        holder = script.parent(node)
        if isinstance(holder, ast.Assign) and name in {dotted(part) for each in node.args for part in ast.walk(each)}:
            yield dotted(holder.targets[0])


def _adapters_are_fp32(script: Script) -> bool:
    """Return whether PEFT keeps the adapters in FP32, as it does by default."""
    calls = [op for _, op in script.called("get_peft_model", "prepare_model_for_kbit_training")]
    return bool(calls) and not any(is_literal(op.keywords.get("autocast_adapter_dtype"), False) for op in calls)


def _creates_scaler(op: Operation) -> bool:
    """Return whether a call creates a loss scaler, directly or through a framework."""
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


def _converted_to_half(script: Script) -> Iterator[tuple[ast.Call, str]]:
    """Yield each call that converts a model to FP16, with the name of the model."""
    for node, op in script.calls:
        if op.name == "from_pretrained":
            kind = op.keywords.get("torch_dtype", op.keywords.get("dtype"))
            if kind is None or not _means_half(script, kind):
                continue
        elif not _is_half(script, op):
            continue
        name = _assigned_name(script, node)
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
    """Return whether a dtype is FP16, also as one branch of a conditional expression."""
    made = script.ranges.follow(kind)
    branches = [made.body, made.orelse] if isinstance(made, ast.IfExp) else [made]
    return any(branch is not None and script.names.full(branch) in HALF for branch in branches)


def _assigned_name(script: Script, node: ast.Call) -> str:
    """Return the name of the result: model, for `model.half()` and for `model = Net().half().cuda()`."""
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


def _is_trained(script: Script, name: str) -> bool:
    """Return whether the parameters go to an optimizer, or the model to the trainer of a framework."""
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
            # A list of parameters, as `parameters = [p for p in model.parameters() if p.requires_grad]`.
            return isinstance(outer, ast.Assign) and "param" in dotted(outer.targets[0]).lower()
        assert isinstance(outer, ast.Call)
        called = dotted(outer.func)
        if (
            called.rpartition(".")[2] in (*ADAMS, "SGD", "RMSprop", "Adagrad", "Adafactor", "Lion")
            or "optim" in called.lower()
        ):
            return True
    return False


def _eps_is_zero(script: Script, op: Operation, name: str) -> bool:
    eps = script.ranges.range_of(op.keywords.get("eps"))
    given = op.keywords.get("eps") is not None
    names = {dotted(node) for node in ast.walk(op.subject)} if op.subject is not None else set()
    return name in names and (not given or 0.0 <= eps.high < 6e-8)
