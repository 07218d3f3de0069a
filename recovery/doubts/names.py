"""Says what a named number may be, more generously than recovery/logs: nothing is acted on because of it."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

from rung.recovery.logs.metric_names import HELD_OUT_WORDS, Role, is_setting, role


class Column(StrEnum):
    LOSS = "loss"
    HELD_OUT = "held-out loss"
    RIVAL = "loss that may rise by design"
    NORM = "gradient norm"
    SCALE = "loss scale"
    PERPLEXITY = "perplexity"
    LR = "learning rate"
    SKIPS = "skipped steps"
    STEP = "step"
    SCORE = "score"
    UNKNOWN = "unknown"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BREAKS = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z])(?=[A-Z])")
# Not the phoneme error rate.
_PER_UNIT = re.compile(r"\bper (?:sample|token|tok|word|char|byte|batch|step|example|frame|item|pixel|dim)s?\b")
# What people call the number that is minimized.
_OBJECTIVES = _words(
    """
    bce bits bpb bpc bpd bpr ce chamfer chi2 contrastive cost criterion crossentropy ctc deviance dice elbo
    energy entropyloss err error focal hinge huber infonce j kd kl kld l1 l2 logloss loss losses mae mlm mmd mse
    msle nce nelbo nll nlls ntxent obj objective penalty rec recon reconstruction residual risk rmse sq sse
    triplet trn tv xent
    """
)
_PERPLEXITY = frozenset({"ppl", "perplexity"})
_NORMS = frozenset({"gnorm", "gradnorm", "g", "norm", "grad", "gn", "gradient", "gradients"})
_NO_NORMS = frozenset({"clip", "max", "accumulation", "checkpointing", "clipping"})
_SKIPS = frozenset({"skipped", "skips", "overflow", "overflows"})
_LR = frozenset({"lr", "rate", "eta"})
_STEPS = _words(
    """
    batch batches count data duration e elapsed env envs ep episode epoch epochs eta examples fps frame frames gpu i id
    index it iter itr iteration iterations iters line mem memory minibatch ms n num parameters params rank samples sec
    seconds secs seed size speed step steps t time timesteps tok tokens total upd update updates ups version wall width
    wps
    """
)
# Numbers that may be missing, or may rise, in a healthy run.
_SCORES = _words(
    """
    acc accuracy alpha ap auc auroc best beta bleu cer class clip corr delta dice done entropy explained f1 fid gamma
    h hr improvement iou is kappa lambda last len length likelihood logprob map margin max mean mfu min miou mrr
    ndcg patience pearson per precision prev psnr r2 rate ratio recall ret return returns reward rewards rouge
    score spearman ssim std success tau temp temperature tflops top1 top5 user users utilization value var
    variance weight wer win
    """
)
# What is written in one word with `loss`, but has nothing to do with one.
_GLUED_LOSS = re.compile(r"([a-z0-9]{0,20}?)loss(?:es)?(?!less|y|om|ary)([a-z]{0,10})\d{0,3}")
_CROSS_ENTROPY = re.compile(r"\bcross[ _-]?entropy")
# BasicSR and its like: l_pix, l_g_percep. Not the left of two: l_hip.
_TERM_OF_L = re.compile(
    r"(?:^|[\s/])l_(?:g_|d_|)(?:adv|all|ce|cls|codebook|content|con|cyc|depth|edge|fake|feat|fft|flow|freq|gan|id|kl|l1|l2"
    r"|main|mask|mse|nce|percep\w*|pix\w*|photo|real|rec\w*|reg|seg|smooth|ssim|style|sum|total|tv)(?![a-z])",
    re.IGNORECASE,
)
_ERROR_OF = re.compile(r"err([dg])")
# The losses of several players, or of a policy and its critic, may grow while the run learns.
_RIVALS = _words(
    """
    actor adv adversarial critic d dis disc discriminator g gen generator pg policy q qf td value vf
    """
)


@lru_cache(maxsize=4096)
def column(name: str) -> Column:
    """Return what a column may hold."""
    words = _words_of(name)
    known = role(name.replace(" ", "_"))
    if words & _PERPLEXITY:
        return Column.PERPLEXITY
    if words & _SKIPS and not words & {"batches", "samples", "seconds", "s"}:
        return Column.SKIPS
    if known is Role.GRAD_NORM or (words & _NORMS and not words & (_OBJECTIVES | _NO_NORMS)):
        return Column.NORM
    if known is Role.SCALE or ("scale" in words and words & {"loss", "grad", "scaler", "amp"}):
        return Column.SCALE
    if known is Role.LR or words & _LR or words >= {"step", "size"}:
        return Column.LR
    if is_setting(name):
        return Column.STEP
    if words & _OBJECTIVES and not (
        words & (_SCORES - {"value", "entropy", "mean", "weight", *({"dice"} if "loss" in words else ())})
        or (words & {"entropy"} and "loss" in words)
    ):
        if words & HELD_OUT_WORDS:
            return Column.HELD_OUT
        return Column.RIVAL if words & _RIVALS else Column.LOSS
    if words & _STEPS:
        return Column.STEP
    return Column.SCORE if words & (_SCORES | HELD_OUT_WORDS) or not words else Column.UNKNOWN


def _words_of(name: str) -> set[str]:
    """Return the words of a name; one that is written together with `loss` is taken apart."""
    spaced = _CROSS_ENTROPY.sub("crossentropy", _BREAKS.sub(" ", name).lower())
    words = set(_PER_UNIT.sub(" ", spaced).split())
    for word in list(words):
        if "loss" in word and (match := _GLUED_LOSS.fullmatch(word)):
            words |= {"loss", match[1], match[2]} - {""}
        elif match := _ERROR_OF.fullmatch(word):
            words |= {"err", match[1]}
    return words | {"loss"} if _TERM_OF_L.search(name) else words


def names_a_loss(name: str) -> bool:
    """Return whether a name itself says that it is a loss: RPNLogLoss, l_pix."""
    return "loss" in name or bool(_TERM_OF_L.search(name))


@lru_cache(maxsize=4096)
def is_on_held_out_data(name: str) -> bool:
    """Return whether a name says that its value was measured on held-out data."""
    return not HELD_OUT_WORDS.isdisjoint(_BREAKS.sub(" ", name).lower().split())
