"""The list of the gauntlet's trainings: what is wrong with each, whether it can be cured, and its job file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CASES = Path(__file__).parent / "cases"
# The cases import this file; Python finds it in the folder of the script.
SHARED = CASES / "case.py"


@dataclass(frozen=True)
class Case:
    """A script that does not know Rung. `--fixed` runs it without its fault, in FP32."""

    name: str
    wrong: str
    framework: str = "torch"
    steps: int = 400
    # Whether the script itself computes in 16 bit.
    half: bool = True
    # Empty: a rung can cure the fault. Otherwise none can, and the final reason must contain one of these texts.
    diagnosis: tuple[str, ...] = ()
    pattern: str = "step_*.pt"
    arguments: str = ""
    knobs: Mapping[str, Any] = field(default_factory=dict)
    memory: str | None = None

    @property
    def curable(self) -> bool:
        return not self.diagnosis

    @property
    def script(self) -> Path:
        return CASES / f"{self.name}.py"

    def job(self, times: int, ladder: str | None = None) -> dict[str, Any]:
        """Return the job file: only the command of the script and the pattern of its checkpoints."""
        arguments = f" {self.arguments}" if self.arguments else ""
        command = f"python {self.script} --steps {self.steps * times} --out {{checkpoint_dir}}{arguments}"
        return {
            "name": self.name,
            "run": f"{command} --resume {{checkpoint}}",
            "resources": {"memory": self.memory} if self.memory else {},
            "envs": {"OMP_NUM_THREADS": "1"},
            "knobs": {"mode": "zero-edit", **self.knobs},
            "checkpoint": {"pattern": self.pattern},
            "recovery": {"ladder": ladder} if ladder else {},
        }


HF: dict[str, Any] = {"framework": "HF Trainer", "steps": 300, "pattern": "checkpoint-*"}
LIGHTNING: dict[str, Any] = {"framework": "Lightning", "steps": 300, "pattern": "step=*.ckpt"}
ACCELERATE: dict[str, Any] = {"framework": "Accelerate", "steps": 300, "pattern": "step_*"}
# The reason of a job whose bug has nothing to do with precision, lr or gradients.
BUG = ("a bug in the model",)

CATALOG: tuple[Case, ...] = (
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
    Case("exploding_lr_sgd", "lr ten times too high, SGD with momentum"),
    Case("exploding_lr_adam", "lr ten times too high, Adam: never NaN, never learns", half=False),
    Case("warmup_to_high_lr", "warm-up to too high an lr; the scheduler's state restores it", half=False),
    Case("onecycle_too_high", "OneCycleLR with too high a peak", steps=500),
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
    Case("hf_exploding_lr", "lr ten times too high; the log hides NaN", half=False, **HF),
    Case("lightning_half_model", "FP16 model in 16-mixed", **LIGHTNING),
    Case("lightning_sum_overflow", "a sum beyond FP16 in 16-mixed; runs to its end", **LIGHTNING),
    Case("lightning_exploding_lr", "lr ten times too high; prints nothing", half=False, **LIGHTNING),
    Case("accelerate_half_adam", "all in FP16, AdamW with its usual eps", **ACCELERATE),
    Case("accelerate_exploding_lr", "lr ten times too high, cosine schedule", half=False, **ACCELERATE),
    Case("data_with_nan", "NaN in the data", half=False, diagnosis=("the data is at fault",)),
    Case("sqrt_at_zero", "the gradient of sqrt at zero", half=False, diagnosis=BUG),
    Case("empty_class", "zero divided by zero", half=False, diagnosis=BUG),
    Case("log_of_negative", "log of a negative number", half=False, diagnosis=BUG),
    Case("wrong_label", "a label beyond the last class", diagnosis=("out of bounds",)),
)


def chosen(names: tuple[str, ...]) -> tuple[Case, ...]:
    """Return the named cases, or all; raise KeyError for an unknown name."""
    known = {case.name: case for case in CATALOG}
    return tuple(known[name] for name in names) if names else CATALOG
