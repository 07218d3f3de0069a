"""Sets whether matmuls and convolutions of FP32 tensors compute in TF32, and reads what is in force.

Only GPUs from sm_80 on have TF32. torch 2.9 has new names for these settings (`fp32_precision`), and refuses to read
the old ones (`allow_tf32`) after a new one was set. Setting an old one sets the new one too, so the old ones are set,
and the new ones are read.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from typing import Any

import torch

TF32, STRICT, MIXED = "tf32", "strict", "mixed"
CAPABILITY = (8, 0)
_asked: list[str] = []


def start(asked: Any) -> None:
    """Set what the knob `matmul` asks for; without it nothing is set, now or later."""
    _asked[:] = [asked] if asked in (TF32, STRICT) else []
    hold()


def hold() -> None:
    """Set it again where the script has changed it since."""
    if _asked and _in_force() != _asked[0]:
        # A torch that cannot be set must not end the run; the value that is read back tells it.
        with contextlib.suppress(Exception), warnings.catch_warnings():
            # torch 2.9 warns of the old names.
            warnings.simplefilter("ignore")
            _set(_asked[0] == TF32)


def effective() -> dict[str, str]:
    """Return the knob as it is in force; nothing where it is not asked, or where the GPU has no choice."""
    cuda: Any = torch.cuda
    if not _asked or not cuda.is_initialized() or cuda.get_device_capability() < CAPABILITY:
        return {}
    # The libraries below torch obey this variable, whatever torch says.
    return {"matmul": STRICT if os.environ.get("NVIDIA_TF32_OVERRIDE") == "0" else _in_force()}


def _set(on: bool) -> None:
    if on and not _matmul():
        torch.backends.cuda.matmul.allow_tf32 = True
    elif not on and _matmul():
        # Not by `allow_tf32`: after a script's own "medium" torch would take that for a mix of old and new names.
        torch.set_float32_matmul_precision("highest")
    if _others() != {on}:
        torch.backends.cudnn.allow_tf32 = on


def _in_force() -> str:
    found = {_matmul(), *_others()}
    if len(found) > 1:
        return MIXED
    return TF32 if found == {True} else STRICT


def _matmul() -> bool:
    return _is_tf32(torch.backends.cuda.matmul)


def _others() -> set[bool]:
    """Return whether convolutions and recurrent layers compute in TF32, as torch does by default."""
    cudnn = torch.backends.cudnn
    return {_is_tf32(each) for each in (cudnn.conv, cudnn.rnn)} if hasattr(cudnn, "conv") else {_is_tf32(cudnn)}


def _is_tf32(setting: Any) -> bool:
    if hasattr(setting, "fp32_precision"):
        return bool(setting.fp32_precision == TF32)
    return bool(setting.allow_tf32)
