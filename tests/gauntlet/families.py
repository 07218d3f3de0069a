"""The families of the gauntlet: one script each, with everything about a case in its name.

`gpt_adam_lr100_cosine_flags_every10` is the small GPT with Adam, an lr a hundred times too high and a cosine schedule;
Rung reaches it by flags, and it logs every tenth step. A case of a fault is listed only if its held-out loss without
help is not finite, or at least a quarter above the healthy run's. How Rung treats a case has no say in that.
"""

from __future__ import annotations

import re
from typing import Any

from tests.gauntlet.case import CONFIG, Case
from tests.gauntlet.cases.tuned import LR

STEPS = 2000
FRAMEWORKS: dict[str, dict[str, Any]] = {
    "hf": {"framework": "HF Trainer", "pattern": "checkpoint-*", "runs": "family_hf"},
    "lightning": {"framework": "Lightning", "pattern": "step=*.ckpt", "runs": "family_lightning"},
    "accelerate": {"framework": "Accelerate", "pattern": "step_*", "runs": "family_accelerate"},
}
OPTIMIZERS = {"sgd": "SGD", "momentum": "SGD with momentum", "adam": "Adam"}
EXTRAS = {
    "warmup": ("warm-up", "--warmup"),
    "cosine": ("cosine", "--schedule cosine"),
    "clip": ("clipped", "--clip 1.0"),
    "amp": ("in FP16", "--precision float16"),
}
FAULTS = {
    "outliers": "one batch in fifty weighs a million times too much",
    "burst": "ten batches of garbage after a long healthy stretch",
    "noise": "nothing: four labels in ten are wrong, as in every run of it",
}
KINDS = {
    "kfold": "five folds, each with a new model",
    "finetune": "pretraining, then another language with a new head",
    "reinforce": "a policy gradient, whose loss has no level",
    "curriculum": "the data becomes harder half-way",
    "backoff": "clipped FP16 whose scaler backs off now and then",
    "words": 'the log says "nan loss skipped=0"',
}
WATCHED = {"mode": "flags", "watch": "inside"}
CHANNELS = {"zero": "zero-edit", "flags": "flags", "config": "config file", "attach": "attach"}
NAME = re.compile(
    rf"((?P<framework>{'|'.join(FRAMEWORKS)})_)?(?P<model>{'|'.join(LR)})_(?P<optimizer>{'|'.join(OPTIMIZERS)})"
    rf"_(?P<fault>{'|'.join(FAULTS)}|(lr|late)(?P<times>\d+))(?P<extras>(_({'|'.join(EXTRAS)}))*)"
    rf"_(?P<channel>{'|'.join(CHANNELS)})_(?P<log>every1|every10|epoch|silent)"
)
HEALTHY = re.compile(rf"healthy_(?P<kind>{'|'.join(KINDS)})_(?P<channel>zero|flags)_(?P<log>\w+)")


def case_of(name: str) -> Case:
    """Return the case that a name describes."""
    if found := HEALTHY.fullmatch(name):
        return _healthy(name, found)
    found = NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"{name} is no name of a case")
    extras = [each for each in (found["extras"] or "").split("_") if each]
    parts = {"family": found["framework"] or found["model"], "runs": "family", "steps": STEPS}
    return Case(
        name,
        _wrong(found, extras),
        half="amp" in extras,
        lr=found["fault"].startswith(("lr", "late")),
        healthy=found["fault"] in ("noise", "lr1"),
        flags=_flags(found, extras),
        **parts | FRAMEWORKS.get(found["framework"], {}) | _channel(found, extras),
    )


def _wrong(found: re.Match[str], extras: list[str]) -> str:
    how = [OPTIMIZERS[found["optimizer"]], *(EXTRAS[each][0] for each in extras)]
    how += [CHANNELS[found["channel"]], f"log: {found['log']}"]
    fault = FAULTS.get(found["fault"], f"lr {found['times']} times too high")
    if found["fault"].startswith("late"):
        fault = f"a restart of the schedule {found['times']} times too high"
    if found["fault"] == "lr1":
        fault = "nothing"
    return f"{fault}; {', '.join(how)}"


def _flags(found: re.Match[str], extras: list[str]) -> str:
    fault = f"--fault {found['fault']}"
    if found["fault"].startswith("lr"):
        fault = f"--lr-times {found['times']}"
    elif found["fault"].startswith("late"):
        fault = f"--schedule restart --late-times {found['times']}"
    words = [f"--model {found['model']} --optimizer {found['optimizer']} {fault} --log {found['log']}"]
    words += [EXTRAS[each][1] for each in extras]
    return " ".join([*words, f"--config {CONFIG}"] if found["channel"] == "config" else words)


def _channel(found: re.Match[str], extras: list[str]) -> dict[str, Any]:
    """Return how Rung reaches the script: what it adds to the command, the knobs, and the script's config file."""
    times = int(found["times"]) if found["fault"].startswith("lr") else 1
    lr = float(f"{LR[found['model']][found['optimizer']] * times:.6g}")
    amp = "amp" in extras
    own = {"lr": lr, **({"clip": 1.0} if "clip" in extras else {}), "precision": "amp_fp16" if amp else "fp32"}
    if found["channel"] == "flags":
        words = "--lr {lr} --clip {clip} --precision {precision}" if amp else "--lr {lr} --clip {clip}"
        return {"arguments": words, "knobs": {**WATCHED, "framework": "torch", **own}}
    if found["channel"] == "config":
        files = {CONFIG: {"lr": "lr", "clip": "clip"}}
        config = {"lr": lr, "clip": 1.0 if "clip" in extras else None}
        return {"config": config, "knobs": {**WATCHED, "precision": own["precision"], "files": files}}
    if found["channel"] == "attach":
        return {"runs": "family_attached", "knobs": {"mode": "inside", **own}}
    return {}


def _healthy(name: str, found: re.Match[str]) -> Case:
    amp = found["kind"] == "backoff"
    own = {"lr": 0.005, **({"clip": 1.0} if amp else {}), "precision": "amp_fp16" if amp else "fp32"}
    flags: dict[str, Any] = {"arguments": "--lr {lr} --clip {clip}", "knobs": {**WATCHED, **own}}
    return Case(
        name,
        f"nothing: {KINDS[found['kind']]}; {CHANNELS[found['channel']]}, log: {found['log']}",
        family="healthy",
        steps=STEPS,
        half=amp,
        healthy=True,
        runs="healthy",
        flags=f"--kind {found['kind']} --log {found['log']}",
        **flags if found["channel"] == "flags" else {},
    )


# Left out because they do not fail (less than a quarter worse): Adam with an lr ten times too high, except for the GPT;
# the CNN with Adam and thirty times. Left out because they may have no cure within the share: the recurrent net with
# outliers, which ends 3 % worse even if it is clipped at 1 from the start; the GPT with SGD and an lr thirty times too
# high, since three times the tuned lr ends in NaN, or 15 % worse with momentum. Only the recommender has FP16 cases:
# convolutions and attention in FP16 take five to ten times as long on a CPU.
NAMES = """
gpt_adam_lr10_zero_every10
gpt_adam_lr30_cosine_zero_silent
gpt_adam_lr30_cosine_config_every10
gpt_adam_lr100_cosine_flags_every10
gpt_adam_lr100_warmup_zero_every1
gpt_adam_lr1000_attach_every10
gpt_adam_lr1000_warmup_cosine_zero_epoch
gpt_momentum_lr10_zero_every10
gpt_momentum_lr10_cosine_config_epoch
gpt_momentum_lr100_flags_every10
gpt_sgd_lr10_zero_epoch
gpt_sgd_lr100_clip_attach_every1
gpt_sgd_lr1000_zero_every10
gpt_adam_late100_zero_every10
gpt_adam_outliers_zero_every10
gpt_adam_burst_zero_every10
gpt_adam_noise_zero_every1
gpt_adam_lr1_warmup_cosine_flags_every10

cnn_adam_lr100_zero_every10
cnn_adam_lr100_cosine_flags_epoch
cnn_adam_lr1000_clip_attach_every1
cnn_momentum_lr10_zero_every1
cnn_momentum_lr30_zero_silent
cnn_momentum_lr30_warmup_config_every10
cnn_momentum_lr100_cosine_flags_every10
cnn_momentum_lr1000_zero_epoch
cnn_sgd_lr10_zero_every10
cnn_sgd_lr10_config_every1
cnn_sgd_lr30_flags_epoch
cnn_sgd_lr100_cosine_zero_silent
cnn_sgd_lr1000_attach_every10
cnn_momentum_late100_zero_every1
cnn_momentum_late30_flags_every10
cnn_momentum_outliers_zero_every10
cnn_adam_burst_flags_every10
cnn_sgd_noise_zero_epoch

recommender_adam_lr30_zero_every10
recommender_adam_lr100_flags_every10
recommender_adam_lr100_amp_zero_every10
recommender_adam_lr1000_config_epoch
recommender_momentum_lr10_zero_every1
recommender_momentum_lr10_amp_flags_every10
recommender_momentum_lr30_warmup_zero_silent
recommender_momentum_lr100_attach_every10
recommender_sgd_lr10_zero_every10
recommender_sgd_lr10_cosine_flags_every1
recommender_sgd_lr30_config_every10
recommender_sgd_lr1000_amp_attach_every10
recommender_momentum_late100_zero_silent
recommender_momentum_late100_config_every10
recommender_adam_outliers_amp_zero_every1
recommender_adam_outliers_amp_flags_every10
recommender_momentum_outliers_amp_zero_silent
recommender_momentum_outliers_amp_attach_every10
recommender_momentum_burst_zero_epoch
recommender_adam_noise_flags_every10

rnn_adam_lr30_zero_every10
rnn_adam_lr30_flags_every1
rnn_adam_lr100_warmup_zero_every1
rnn_adam_lr100_attach_epoch
rnn_adam_lr1000_clip_zero_every10
rnn_momentum_lr30_config_every10
rnn_momentum_lr100_zero_epoch
rnn_momentum_lr100_cosine_flags_every10
rnn_momentum_lr1000_attach_every1
rnn_sgd_lr10_zero_silent
rnn_sgd_lr10_warmup_flags_every10
rnn_sgd_lr100_zero_every10
rnn_sgd_lr1000_config_epoch
rnn_momentum_late100_zero_every10
rnn_momentum_late100_attach_every1
rnn_momentum_burst_flags_every10
rnn_adam_noise_zero_silent

hf_gpt_adam_lr100_cosine_zero_every10
hf_recommender_momentum_lr10_zero_silent
hf_rnn_sgd_lr10_zero_every1
hf_recommender_adam_lr1_zero_every10
lightning_gpt_adam_lr100_zero_silent
lightning_cnn_sgd_lr10_zero_silent
lightning_recommender_momentum_late100_zero_silent
lightning_recommender_adam_lr1_zero_silent
accelerate_gpt_momentum_lr10_zero_every10
accelerate_cnn_momentum_lr100_cosine_flags_every10
accelerate_rnn_sgd_lr10_zero_epoch
accelerate_recommender_adam_noise_flags_every10

healthy_kfold_zero_every1
healthy_kfold_zero_silent
healthy_kfold_flags_every10
healthy_finetune_zero_every10
healthy_finetune_zero_silent
healthy_finetune_flags_epoch
healthy_reinforce_zero_every1
healthy_reinforce_flags_every10
healthy_curriculum_zero_every10
healthy_curriculum_zero_silent
healthy_curriculum_flags_every1
healthy_backoff_zero_every10
healthy_backoff_zero_silent
healthy_backoff_flags_every10
healthy_words_zero_every1
healthy_words_flags_every10
"""
FAMILIES: tuple[Case, ...] = tuple(map(case_of, NAMES.split()))
