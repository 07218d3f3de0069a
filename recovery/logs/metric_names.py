"""Decides what a name printed beside a number stands for."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache


class Role(StrEnum):
    LOSS = "loss"  # the training loss as a whole
    NAMED_TERM = "part"  # one term of it, such as loss_cls
    UNNAMED_TERM = "term"  # one term of it whose name does not say so, such as kd: it is one beside a loss
    HELD_OUT = "held_out"  # a loss on validation or test data
    STEP = "step"
    EPOCH = "epoch"
    LR = "lr"
    GRAD_NORM = "grad_norm"
    SCALE = "scale"
    NAN_ITERATIONS = "nan_iterations"
    SKIPPED_ITERATIONS = "skipped_iterations"
    OTHER = "other"


_EXACT = {
    "epoch": Role.EPOCH,
    "lr": Role.LR,
    "learning_rate": Role.LR,
    "base_lr": Role.LR,
    "grad_norm": Role.GRAD_NORM,
    "gradient_norm": Role.GRAD_NORM,
    "grad_norm_total": Role.GRAD_NORM,
    "total_norm": Role.GRAD_NORM,
    "gnorm": Role.GRAD_NORM,
    "norm": Role.GRAD_NORM,
    "scale": Role.SCALE,
    "loss_scale": Role.SCALE,
    "grad_scale": Role.SCALE,
    "scaler_scale": Role.SCALE,
    "amp_scale": Role.SCALE,
    # Megatron prints these two on every line; they are not zero only when something happened.
    "nan_iterations": Role.NAN_ITERATIONS,
    "skipped_iterations": Role.SKIPPED_ITERATIONS,
}
# Terms that people print under their bare names. Only those that are a loss and never a score.
_TERMS = frozenset({"kd", "ce", "bce", "kl", "kld", "nll", "xent", "ctc", "mlm", "recon", "distill", "distillation"})
# Names of a step, the most telling first: a global step beats a batch number that starts again every epoch.
# Not `steps`: how many there are to be is a setting, and stands in every printed configuration.
STEP_NAMES = ("global_step", "step", "iteration", "iter", "num_updates", "it", "update", "batch")
HELD_OUT_WORDS = frozenset(
    {
        "val",
        "valid",
        "validation",
        "eval",
        "evaluation",
        "test",
        "testing",
        "dev",
        "heldout",
        "holdout",
    }
)
# With these beside it, a loss is still the loss as a whole.
_WHOLE_WORDS = frozenset(
    {
        "train",
        "training",
        "tr",
        "total",
        "avg",
        "average",
        "mean",
        "running",
        "smooth",
        "smoothed",
        "ema",
        "moving",
        "batch",
        "epoch",
        "step",
        "iter",
        "global",
        "lm",
        "mse",
        "overall",
        "tok",
        "token",
        "per",
        "reduced",
        "accumulated",
        "current",
        "cur",
        "sum",
        "model",
    }
)
# With these beside it, it is a setting or a bookkeeping value: `best_loss=inf` stands at the head of healthy runs.
_NOT_A_LOSS = frozenset(
    {
        "scale",
        "scaler",
        "scaling",
        "weight",
        "weights",
        "coef",
        "coeff",
        "fn",
        "func",
        "function",
        "type",
        "nan",
        "inf",
        "best",
        "min",
        "max",
        "prev",
        "previous",
        "last",
        "init",
        "initial",
        "target",
        "threshold",
        "stop",
        "lambda",
        "alpha",
        "beta",
        "gamma",
        "ratio",
        "diff",
        "delta",
        "std",
        "var",
        "window",
        "curve",
        "interval",
        "name",
        "factor",
        "improvement",
        "patience",
    }
)
_OF_TRAINING = frozenset({"train", "training"})
# An average says less of this moment than the loss itself.
_AVERAGED = frozenset({"avg", "average", "mean", "running", "smooth", "smoothed", "ema", "moving", "epoch"})
_BREAKS = re.compile(r"[^A-Za-z0-9]+")
_CAMEL = re.compile(r"^(train|training|total|avg|mean|batch|epoch|val|valid|eval|test)Loss$", re.IGNORECASE)


@lru_cache(maxsize=4096)
def role(name: str) -> Role:
    """Say what a name such as `train/loss` or `Learning Rate` stands for."""
    camel = _CAMEL.match(name)
    words = [camel[1].lower(), "loss"] if camel else _BREAKS.sub("_", name).strip("_").lower().split("_")
    plain = "_".join(words[1:] if words[0] in _OF_TRAINING and len(words) > 1 else words)
    if plain in _EXACT:
        return _EXACT[plain]
    if plain in STEP_NAMES:
        return Role.STEP
    # Of one network of several (actor/grad_norm); a bound on it is a setting.
    if words[-2:] == ["grad", "norm"] and not {"max", "min", "clip"} & set(words):
        return Role.GRAD_NORM
    if "loss" not in words and "losses" not in words:
        own = set(words) - _OF_TRAINING - {"step", "epoch"}
        return Role.UNNAMED_TERM if len(own) == 1 and own <= _TERMS else Role.OTHER
    return _loss_role(set(words) - {"loss", "losses"})


def _loss_role(beside: set[str]) -> Role:
    if beside & _NOT_A_LOSS:
        return Role.OTHER
    if beside & HELD_OUT_WORDS:
        return Role.HELD_OUT
    return Role.LOSS if beside <= _WHOLE_WORDS else Role.NAMED_TERM


@lru_cache(maxsize=256)
def step_rank(name: str) -> int:
    """Return how much a step's name is worth against another on the same line; lower is better."""
    words = _BREAKS.sub("_", name).strip("_").lower().split("_")
    plain = "_".join(words[1:] if words[0] in _OF_TRAINING and len(words) > 1 else words)
    return STEP_NAMES.index(plain)


@lru_cache(maxsize=256)
def is_average(name: str) -> bool:
    """Tell whether a loss by this name is an average over more than the present step."""
    return bool(_AVERAGED & set(_BREAKS.sub("_", name).lower().split("_")))
