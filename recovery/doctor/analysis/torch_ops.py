"""Lists the ranges of operations and names: of a sigmoid, a mean, an eps."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from rung.recovery.doctor.analysis.import_names import Operation
from rung.recovery.doctor.analysis.value_range import INF, NUMBER, UNKNOWN, ValueRange, constant, exponential

COMPARISONS = ("eq", "ne", "gt", "lt", "ge", "le", "isnan", "isfinite", "logical_not", "logical_and", "logical_or")
# The range of operations whatever their input is.
RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("sigmoid", "softmax", "hardsigmoid", "bernoulli", "rand", "rand_like", "one_hot"), (0.0, 1.0)),
    **dict.fromkeys(
        ("eq", "ne", "gt", "lt", "ge", "le", "isnan", "isfinite", "logical_not", "logical_and"), (0.0, 1.0)
    ),
    **dict.fromkeys(("relu", "norm", "std", "var", "abs", "square", "cdist", "softplus", "vector_norm"), (0.0, INF)),
    **dict.fromkeys(("tanh", "sin", "cos", "erf", "normalize", "cosine_similarity", "softsign", "sign"), (-1.0, 1.0)),
    **dict.fromkeys(("log_softmax", "logsigmoid"), (-INF, 0.0)),
    "relu6": (0.0, 6.0),
    "elu": (-1.0, INF),
    "gelu": (-0.2, INF),
    "silu": (-0.3, INF),
    "ones": (1.0, 1.0),
    "ones_like": (1.0, 1.0),
}
# Layers that do the same as the function with this name.
LAYERS = {"Sigmoid", "Softmax", "ReLU", "ReLU6", "Tanh", "Softplus", "LogSoftmax", "LogSigmoid", "GELU", "SiLU", "ELU"}
# These return some of their input values, or means of them.
KEEPS = frozenset(
    {
        *(
            "view",
            "reshape",
            "squeeze",
            "unsqueeze",
            "transpose",
            "permute",
            "contiguous",
            "detach",
            "clone",
            "to",
            "float",
            "half",
        ),
        *("double", "cuda", "cpu", "type", "expand", "repeat", "flatten", "mean", "max", "min", "amax", "amin"),
        *(
            "gather",
            "index_select",
            "type_as",
            "expand_as",
            "requires_grad_",
            "t",
            "movedim",
            "narrow",
            "chunk",
            "split",
            "dropout",
        ),
        *(
            "view_as",
            "unbind",
            "flip",
            "roll",
            "masked_select",
            "median",
            "quantile",
            "as_tensor",
            "tile",
            "repeat_interleave",
        ),
    }
)
# These return a value of the same sign.
SIGNED = frozenset({"sum", "cumsum", "nansum", "prod", "logcumsumexp"})
# These return Python values, or tensors made from them.
PLAIN = frozenset({"arange", "linspace", "logspace", "item", "tolist", "tensor", "meshgrid"})
MAXIMA = frozenset({"max", "amax", "maximum", "cummax", "logsumexp"})
COUNTS = frozenset({"size", "numel", "dim", "nelement", "ndimension", "len", "world_size", "get_world_size"})
CLAMPS = frozenset({"clamp", "clip", "clamp_min", "clamp_max"})
EPS = re.compile(r"eps|tiny|smooth|small|delta", re.IGNORECASE)
PROBABILITY = re.compile(r"^(p|q|prob|probs|proba|probas|probability|probabilities|(\w+_)?probs?)$")
LOG_PROBABILITY = re.compile(
    r"log_?p|logprob|log_prob|lprob|logq|log_q|lse|log_softmax|logsumexp|log_alpha_bar", re.IGNORECASE
)
MASK = re.compile(r"^(\w+_)?masks?$")


def range_by_name(name: str) -> ValueRange:
    """Return the range that a name implies: an eps, a probability, the log of one, a mask."""
    if EPS.search(name):
        return ValueRange(1e-6, 1e-3, "number", "eps")
    if LOG_PROBABILITY.search(name):
        return ValueRange(-INF, 0.0, "unknown", "log of a probability")
    if PROBABILITY.match(name):
        return ValueRange(0.0, 1.0, "unknown", f"{name}, a probability by its name")
    if MASK.match(name):
        return ValueRange(0.0, 1.0, "unknown", "mask")
    return UNKNOWN


def range_of_operation(op: Operation, subject: ValueRange) -> ValueRange:
    """Return the range of an operation's result, from the range of its input."""
    bare = op.name.rstrip("_")
    kind = "tensor" if op.home == "torch" else subject.kind
    if kind == "number" and op.home == "method":
        return NUMBER
    if bare in ("exp", "expm1"):
        return replace(exponential(subject), kind=kind)
    if bare in RANGES:
        return ValueRange(*RANGES[bare], kind, "comparison" if bare in COMPARISONS else bare)
    if bare in ("pow",) and op.rest and isinstance(op.rest[0], ast.Constant):
        power = constant(op.rest[0].value)
        return subject.to_the(power.low) if power.origin else UNKNOWN
    if bare in ("sqrt", "rsqrt"):
        return ValueRange(max(0.0, subject.low) ** 0.5 if bare == "sqrt" else 0.0, INF, kind, subject.origin)
    if bare == "mean" and subject.origin == "square":
        return ValueRange(subject.low, subject.high, kind, "mean of square")
    if bare in KEEPS:
        return ValueRange(subject.low, subject.high, kind, subject.origin)
    if op.home == "other" and re.search("clamp|clip", bare):
        return ValueRange(-10.0, 10.0, kind, "clamp")
    if bare in SIGNED and (subject.low >= 0.0 or subject.high <= 0.0):
        low, high = (min(subject.low, 1e30), INF) if subject.low >= 0.0 else (-INF, subject.high)
        return ValueRange(low, high, kind, f"sum of {subject.origin}" if subject.origin else "")
    return ValueRange(kind=kind)
