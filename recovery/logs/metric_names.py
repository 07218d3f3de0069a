"""Decides what a name printed beside a number stands for."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache


class Role(StrEnum):
    LOSS = "loss"  # the whole training loss
    NAMED_TERM = "part"  # one term of it, such as loss_cls
    UNNAMED_TERM = "term"  # one term of it without `loss` in its name, such as kd
    FUNCTION = "function"  # the name of a loss function that can be a score too, such as rmse
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
    "scaler": Role.SCALE,
    "scaler_scale": Role.SCALE,
    "amp_scale": Role.SCALE,
    # Megatron prints these two on every line; they are above zero only when something happened.
    "nan_iterations": Role.NAN_ITERATIONS,
    "skipped_iterations": Role.SKIPPED_ITERATIONS,
}
# Terms that people print without the word `loss`. Only names that are never a score.
_TERMS = frozenset({"kd", "ce", "bce", "kl", "kld", "nll", "xent", "ctc", "mlm", "recon", "distill", "distillation"})
# A loss function in one word.
_TERMS |= {"crossentropy", "focal", "smoothl1"}
# Names of loss functions under which scripts print the whole loss, and which can be a score as well.
_FUNCTIONS = frozenset({"mse", "rmse", "l1", "mae", "huber", "logloss", "sse", "hinge", "cost"})
# The terms that can be the whole loss too. The others come beside one, and some of them rise by design.
_WHOLE_TERMS = frozenset({"ce", "bce", "nll", "xent", "crossentropy", "ctc", "mlm"})
# Names of a step, the best first: a global step is better than a batch number that restarts every epoch.
# Not `steps`: that is the setting for the length of the run, and is in every printed configuration.
STEP_NAMES = (
    "global_step",
    "step",
    "iteration",
    "iter",
    "num_updates",
    "it",
    "update",
    "batch",
    "upd",
    "itr",
    "minibatch",
)
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
# Words in the name of a loss that still mean the whole loss.
_WHOLE_WORDS = frozenset(
    {
        "train",
        "training",
        "tr",
        "t",
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
        "minibatch",
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
# Words in the name of a loss that mean a setting or a derived value: healthy runs begin with `best_loss=inf`.
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
# The last word of a name that is a setting: eval_interval, val_split, eval_batch_size.
_SETTING_WORDS = frozenset(
    {
        "accumulation",
        "batches",
        "delay",
        "delta",
        "epochs",
        "every",
        "frac",
        "fraction",
        "freq",
        "frequency",
        "goal",
        "interval",
        "iterations",
        "iters",
        "length",
        "limit",
        "num",
        "only",
        "patience",
        "percent",
        "ratio",
        "samples",
        "seed",
        "size",
        "split",
        "start",
        "steps",
        "target",
        "threshold",
        "workers",
    }
)
_OF_TRAINING = frozenset({"train", "training"})
# Words that mean an average; the loss of the step itself is preferred.
_AVERAGED = frozenset({"avg", "average", "mean", "running", "smooth", "smoothed", "ema", "moving", "epoch"})
_BREAKS = re.compile(r"[^A-Za-z0-9]+")
# Where a name without breaks has its words: lossD, RPNLogLoss, loss2.
_INNER_BREAKS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[lL]oss)(?=\d)")
_CAMEL = re.compile(r"^(train|training|total|avg|mean|batch|epoch|val|valid|eval|test)Loss$", re.IGNORECASE)


@lru_cache(maxsize=4096)
def role(name: str) -> Role:
    """Return what a name such as `train/loss` or `Learning Rate` stands for."""
    camel = _CAMEL.match(name)
    words = [camel[1].lower(), "loss"] if camel else _words(name)
    plain = "_".join(words[1:] if words[0] in _OF_TRAINING and len(words) > 1 else words)
    if plain in _EXACT:
        return _EXACT[plain]
    if plain in STEP_NAMES:
        return Role.STEP
    # The norm of one of several networks (actor/grad_norm); a bound such as max_grad_norm is a setting.
    if words[-2:] == ["grad", "norm"] and not {"max", "min", "clip"} & set(words):
        return Role.GRAD_NORM
    if "loss" not in words and "losses" not in words:
        return _unnamed_role(set(words) - _OF_TRAINING - {"step", "epoch"})
    return _loss_role(set(words) - {"loss", "losses"})


def _words(name: str) -> list[str]:
    words = _BREAKS.sub("_", name).strip("_").lower().split("_")
    if "loss" in name.lower() and "loss" not in words and "losses" not in words:
        inner = _BREAKS.sub("_", _INNER_BREAKS.sub("_", name)).strip("_").lower().split("_")
        return inner if "loss" in inner else words
    if "entropy" in words and words[words.index("entropy") - 1] == "cross":
        words = [word for word in words if word != "cross"]
        words[words.index("entropy")] = "xent"
    return words


def _unnamed_role(own_words: set[str]) -> Role:
    if len(own_words) != 1:
        return Role.OTHER
    return Role.UNNAMED_TERM if own_words <= _TERMS else Role.FUNCTION if own_words <= _FUNCTIONS else Role.OTHER


def _loss_role(other_words: set[str]) -> Role:
    if other_words & _NOT_A_LOSS:
        return Role.OTHER
    if other_words & HELD_OUT_WORDS:
        return Role.HELD_OUT
    return Role.LOSS if other_words <= _WHOLE_WORDS else Role.NAMED_TERM


@lru_cache(maxsize=256)
def is_whole_term(name: str) -> bool:
    """Return whether a term without `loss` in its name can be the whole loss: xent, nll."""
    return bool(_WHOLE_TERMS & set(_words(name)))


@lru_cache(maxsize=1024)
def is_held_out(name: str) -> bool:
    """Return whether a name is that of a value on held-out data: val_acc, test/accuracy."""
    return _BREAKS.sub("_", name).strip("_").lower().split("_")[0] in HELD_OUT_WORDS


@lru_cache(maxsize=1024)
def is_setting(name: str) -> bool:
    """Return whether a name is that of a setting and not of a measurement."""
    return _BREAKS.sub("_", name).strip("_").lower().split("_")[-1] in _SETTING_WORDS


@lru_cache(maxsize=256)
def step_rank(name: str) -> int:
    """Return the rank of a step's name among those on one line; the lowest is used."""
    words = _BREAKS.sub("_", name).strip("_").lower().split("_")
    plain = "_".join(words[1:] if words[0] in _OF_TRAINING and len(words) > 1 else words)
    return STEP_NAMES.index(plain)


@lru_cache(maxsize=256)
def is_average(name: str) -> bool:
    """Return whether a loss with this name is an average over more than the current step."""
    return bool(_AVERAGED & set(_BREAKS.sub("_", name).lower().split("_")))
