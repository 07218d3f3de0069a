"""The single scripts of the gauntlet: each is a training with a fault of its own."""

from __future__ import annotations

from typing import Any

from tests.gauntlet.case import Case

HF: dict[str, Any] = {"framework": "HF Trainer", "steps": 300, "pattern": "checkpoint-*"}
LIGHTNING: dict[str, Any] = {"framework": "Lightning", "steps": 300, "pattern": "step=*.ckpt"}
ACCELERATE: dict[str, Any] = {"framework": "Accelerate", "steps": 300, "pattern": "step_*"}
# The reason of a job whose bug has nothing to do with precision, lr or gradients.
BUG = ("a bug in the model",)

SINGLE: tuple[Case, ...] = (
    Case("mask_constant", "masks with -1e9, which FP16 cannot hold"),
    Case("mask_constant_late", "the same, met only after 170 steps"),
    Case("mask_finfo_input", "masks with the lowest number of another tensor's type"),
    Case("mask_finfo_named", "masks with FP32's lowest number by name"),
    Case("masked_softmax", "softmax over words by hand: exp overflows"),
    Case("softmax_by_hand_exits", "softmax by hand; the script ends itself on NaN"),
    Case("log_softmax_by_hand", "log(softmax(...)): small chances become zero"),
    Case("bce_by_hand", "log(1 - p) by hand: p becomes 1"),
    Case("variance_overflow", "squares beyond FP16: the variance is infinity less infinity"),
    Case("layernorm_by_hand", "a sum over 4096 features beyond FP16; a guard raises"),
    Case("large_logits", "raw logits beyond FP16"),
    Case("forward_overflow_silent", "inputs never normalised; prints no loss"),
    Case("scale_collapse", "a penalty overflows on every batch; prints only the scale"),
    Case("exploding_lr_sgd", "lr ten times too high, SGD with momentum", lr=True),
    Case("exploding_lr_adam", "lr ten times too high, Adam: never NaN, never learns", lr=True, half=False),
    Case("warmup_to_high_lr", "warm-up to too high an lr; the scheduler's state restores it", lr=True, half=False),
    Case("onecycle_too_high", "OneCycleLR with too high a peak", lr=True, steps=500),
    Case("poisoned_newest_checkpoint", "saves NaN weights, resumes from the newest", half=False, pattern="model_*.pt"),
    Case("gradient_spikes", "one batch in fifty weighs a million times too much", half=False),
    Case("gradient_spikes_amp", "one batch in fifty has labels in the wrong unit"),
    Case("rnn_without_clip", "a recurrent net without clipping", half=False),
    Case("growth_thrash", "growth_interval 1: every other step is skipped"),
    Case("half_params_with_scaler", "FP16 parameters and a scaler"),
    Case("double_unscale", "unscales twice"),
    Case("no_inf_checks", "an optimizer without gradients goes through the scaler"),
    Case("lora_on_half_base", "adapters in the type of their FP16 base, and a scaler"),
    Case("native_half_adam", "all in FP16, Adam with its usual eps"),
    Case(
        "out_of_memory",
        "a batch too large for the memory",
        steps=8,
        half=False,
        arguments="--batch {batch} --accumulate {accumulation}",
        knobs={"batch": 24576, "accumulation": 1},
        memory="1g",
    ),
    Case("hf_half_model", "FP16 model and fp16=True", **HF),
    Case("hf_mask_constant", "fp16=True and a mask of -1e9", **HF),
    Case("hf_exploding_lr", "lr ten times too high; the log hides NaN", lr=True, half=False, **HF),
    Case("lightning_half_model", "FP16 model in 16-mixed", **LIGHTNING),
    Case("lightning_sum_overflow", "a sum beyond FP16 in 16-mixed; runs to its end", **LIGHTNING),
    Case("lightning_exploding_lr", "lr ten times too high; prints nothing", lr=True, half=False, **LIGHTNING),
    Case("accelerate_half_adam", "all in FP16, AdamW with its usual eps", **ACCELERATE),
    Case("accelerate_exploding_lr", "lr ten times too high, cosine schedule", lr=True, half=False, **ACCELERATE),
    Case("data_with_nan", "NaN in the data", half=False, diagnosis=("the data is at fault",)),
    Case("sqrt_at_zero", "the gradient of sqrt at zero", half=False, diagnosis=BUG),
    Case("empty_class", "zero divided by zero", half=False, diagnosis=BUG),
    Case("log_of_negative", "log of a negative number", half=False, diagnosis=BUG),
    Case("wrong_label", "a label beyond the last class", diagnosis=("out of bounds",)),
)
