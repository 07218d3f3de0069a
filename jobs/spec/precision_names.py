"""The names of each precision in each framework, and the switches that stand for one precision each.

A name in the job file (`knobs.precision_text`) comes before a framework's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rung.jobs.model.knobs import Precision

# In a config file a precision may be a switch or a number, and keeps that type.
ScriptValue = bool | int | float | str

AMP, NATIVE, BF16, FP32 = Precision.AMP_FP16, Precision.NATIVE_FP16, Precision.BF16, Precision.FP32

# A framework cannot do a precision that is not here. "": the option is left out.
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

# Switches of transformers, DeepSpeed and fairseq: each is on for one precision, and in FP32 all are off.
SWITCHES: Mapping[str, Precision] = MappingProxyType({"fp16": AMP, "bf16": BF16})


def script_value_for(
    precision: Precision, script_names: Mapping[Precision, ScriptValue], framework: str | None
) -> ScriptValue | None:
    """Return what the script calls a precision, or None if it has no name for it."""
    if precision in script_names:
        return script_names[precision]
    if framework is not None:
        return FRAMEWORKS[framework].get(precision)
    # A script that takes yes and no does not understand Rung's name of a third precision. fp32 and bf16 are words that
    # scripts have in common; native_fp16 is Rung's own, which a script with words of its own does not know.
    own_words = any(not isinstance(value, str) for value in script_names.values())
    return None if own_words or (script_names and precision is NATIVE) else precision.value


def script_value_text(value: ScriptValue) -> str:
    """Return a value as text for a command line or a variable."""
    return str(value).lower() if isinstance(value, bool) else str(value)
