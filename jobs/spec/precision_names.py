"""Owns how a precision is said to a script: each framework's own words, and the switches that name one precision each.

What the job file says itself (`knobs.precision_text`) goes before a framework's words.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rung.jobs.model.knobs import Precision

# A precision in a config file may be a switch or a number there, and stays one.
Word = bool | int | float | str

AMP, NATIVE, BF16, FP32 = Precision.AMP_FP16, Precision.NATIVE_FP16, Precision.BF16, Precision.FP32

# A precision without a word here cannot be asked of that framework. "": by saying nothing, so the option is left out.
FRAMEWORKS: Mapping[str, Mapping[Precision, str]] = MappingProxyType(
    {
        "accelerate": {AMP: "fp16", BF16: "bf16", FP32: "no"},
        "composer": {AMP: "amp_fp16", BF16: "amp_bf16", FP32: "fp32"},
        "deepspeed": {AMP: "fp16", BF16: "bf16", FP32: "fp32"},
        "fairseq": {AMP: "--fp16", NATIVE: "--memory-efficient-fp16", BF16: "--bf16", FP32: ""},
        "keras": {AMP: "mixed_float16", NATIVE: "float16", BF16: "mixed_bfloat16", FP32: "float32"},
        "lightning": {AMP: "16-mixed", NATIVE: "16-true", BF16: "bf16-mixed", FP32: "32-true"},
        "megatron": {AMP: "--fp16", BF16: "--bf16", FP32: ""},
        "torch": {AMP: "float16", BF16: "bfloat16", FP32: "float32"},
        "transformers": {AMP: "fp16", BF16: "bf16", FP32: "no"},
    }
)

# Switches as transformers, DeepSpeed and fairseq have them: each is on for one precision, and FP32 is all of them off.
SWITCHES: Mapping[str, Precision] = MappingProxyType({"fp16": AMP, "bf16": BF16})


def word_for(precision: Precision, own: Mapping[Precision, Word], framework: str | None) -> Word | None:
    """Return the word for a precision, or None where the script has none for it."""
    if precision in own:
        return own[precision]
    if framework is not None:
        return FRAMEWORKS[framework].get(precision)
    # Whose words are yes and no has no use for Rung's name of a third precision.
    return None if any(not isinstance(word, str) for word in own.values()) else precision.value


def word_text(word: Word) -> str:
    """Return a word as a command line or a variable has it."""
    return str(word).lower() if isinstance(word, bool) else str(word)
