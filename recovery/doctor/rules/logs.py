"""Rules on logarithms: of a sigmoid, of a softmax, of anything that can be 0."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rung.recovery.doctor.analysis.import_names import Operation
from rung.recovery.doctor.analysis.inference import source_text
from rung.recovery.doctor.analysis.script import Script
from rung.recovery.doctor.rules.rule import Hit, Rule, Severity

LOG_OF_SIGMOID = Rule(
    "log-of-sigmoid",
    "log of a sigmoid, written by hand",
    "in FP16 a sigmoid is exactly 0 below -17.3 and exactly 1 above 8.3: one sure prediction makes the log -inf",
    "use F.logsigmoid(x) (F.logsigmoid(-x) for log(1 - sigmoid(x))), or binary_cross_entropy_with_logits",
    Severity.ERROR,
    Severity.WARNING,
)
LOG_OF_SOFTMAX = Rule(
    "log-of-softmax",
    "log of a softmax, written by hand",
    "in FP16 a probability below 3e-8 is exactly 0 and its log -inf; only CUDA's autocast computes both in FP32",
    "use torch.nn.functional.log_softmax(x, dim), or cross_entropy on the logits",
    Severity.WARNING,
    Severity.NOTE,
)
LOG_WITHOUT_EPS = Rule(
    "log-without-eps",
    "log of a value that can be 0",
    "log(0) is -inf, and FP16 rounds everything below 3e-8 to 0; the gradient is inf or NaN",
    "clamp first: torch.log(x.clamp(min=1e-6)), or add an eps that FP16 holds (1e-6 or more)",
    Severity.WARNING,
    Severity.NOTE,
)
RULES = (LOG_OF_SIGMOID, LOG_OF_SOFTMAX, LOG_WITHOUT_EPS)
LOGS = ("log", "log2", "log10", "log_")


def check(script: Script) -> Iterator[Hit]:
    """Yield the logarithms of values that can be zero."""
    for node, op in script.called(*LOGS):
        if op.home not in ("torch", "method") or op.subject is None or (op.home == "method" and op.rest):
            continue
        if script.is_untrained(node):
            continue
        hit = _hit(script, node, op.subject)
        if hit is not None:
            yield hit


def _hit(script: Script, node: ast.Call, subject: ast.expr) -> Hit | None:
    values = script.ranges.range_of(subject)
    if not values.can_be_zero or values.origin.startswith("rand"):
        return None
    what, in_fp32 = source_text(node), script.in_fp32(node)
    made = _source_operation(script, subject)
    if made is not None and made.name == "sigmoid":
        return Hit(LOG_OF_SIGMOID, node, f"{what}: the log of a sigmoid", in_fp32)
    if made is not None and made.name == "softmax":
        return Hit(LOG_OF_SOFTMAX, node, f"{what}: the log of a softmax", in_fp32)
    return Hit(LOG_WITHOUT_EPS, node, f"{what}: the log of a value that can be 0 ({values.origin})", in_fp32)


def _source_operation(script: Script, subject: ast.expr) -> Operation | None:
    """Return the sigmoid or softmax that a value comes from, through indexing, other operations and `1 -`."""
    for _ in range(8):
        resolved = script.ranges.follow(subject)
        if isinstance(resolved, ast.Subscript):
            subject = resolved.value
        elif isinstance(resolved, ast.BinOp) and isinstance(resolved.op, ast.Sub):
            subject = resolved.right
        else:
            made = script.ranges.operation(resolved)
            if made is None or made.subject is None or made.name in ("sigmoid", "softmax"):
                return made
            subject = made.subject
    return None
