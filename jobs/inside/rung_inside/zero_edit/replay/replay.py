"""Owns the replay: at the first number that is not finite, what of the step is to blame, told in one `replay` record.

Are the weights finite and have they grown, are the inputs finite, does the same forward in FP32 give finite outputs,
and out of which module comes the first bad number. Made when a loss that is not finite is read, after eight updates
skipped in a row, and at an exception that nobody caught. At most eight in a run, at doubling distances.
"""

from __future__ import annotations

import atexit
import weakref
from functools import partial
from typing import Any

import torch

from rung_inside.contract import records
from rung_inside.numerics import finite
from rung_inside.patching import on_exit, patch
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.replay import rerun_forward

MOST = 8
# Updates skipped in a row beside finite losses: more than a scaler needs to find its scale again.
SKIPPED = 8
# Growth of the weights as a whole that is worth a word.
GROWN = 2.0
FINITE, NONFINITE, FAILED, UNKNOWN = "finite", "nonfinite", "failed", "unknown"
# Exceptions that tell of the world outside and not of numbers.
_OUTSIDE = (OSError, ImportError, SyntaxError, NameError, MemoryError, KeyboardInterrupt)


class Call:
    """The latest call of a root module in training: what it was given, and how it computed."""

    __slots__ = ("args", "autocast", "device", "kwargs", "module")

    def __init__(self, module: Any) -> None:
        self.module, self.args, self.kwargs = module, _now.args, _now.kwargs
        first = next(iter(module.parameters()), None)
        self.device = torch.device("cpu") if first is None else first.device
        self.autocast = _now.casts[self.device.type == "cpu"]

    @property
    def is_fp32(self) -> bool:
        """Tell whether the script computes all of it in FP32 by itself."""
        tensors = [*self.module.parameters(), *finite.tensors_in([self.args, self.kwargs])]
        return self.autocast is None and not any(each.dtype in rerun_forward.HALVES for each in tensors)


class _State:
    """What is held between updates; the arguments of one call, and nothing older."""

    def __init__(self) -> None:
        self.module: Any = None
        self.args: Any = ()
        self.kwargs: Any = {}
        # What autocast computed in on CUDA and on the CPU; None: it was off.
        self.casts: tuple[Any, Any] = (None, None)
        self.made = 0
        self.last_step = -1
        self.busy = False
        # From the first bad number on: a script that ends by itself must not take the model away before we looked.
        self.held: Any = None
        self.skipped = 0
        # The norm of each model's weights before its first update, still on its device.
        self.norms: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


_now = _State()


def install(_torch: Any) -> None:
    rerun_forward.install()
    run_state.on("forward", _see_forward)
    on_exit.on_failure(_see_exception)
    atexit.register(patch.quietly, _see_exit)


def _see_forward(module: Any, args: Any, kwargs: Any) -> None:
    if _now.busy or not torch.is_grad_enabled():
        return
    held = _now.module
    if held is None or held() is not module:
        _now.module = weakref.ref(module)
        if module not in _now.norms:
            _now.norms[module] = finite.norm(module.parameters())
    _now.args, _now.kwargs = args, kwargs
    _now.casts = (
        torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None,
        _cpu_dtype() if _on_cpu() else None,
    )


def _of_cpu() -> tuple[Any, Any]:
    """Return how to ask whether autocast is on for the CPU, and in what; torch 2.4 has a word for all devices."""
    try:
        torch.is_autocast_enabled("cpu")
        return partial(torch.is_autocast_enabled, "cpu"), partial(torch.get_autocast_dtype, "cpu")
    except (TypeError, AttributeError):
        return torch.is_autocast_cpu_enabled, torch.get_autocast_cpu_dtype


_on_cpu, _cpu_dtype = _of_cpu()


def bad_number(step: int) -> None:
    """Take a loss that is not finite, read at this update."""
    model = _now.module() if _now.module else None
    _now.held = _now.held or model
    _replay(step)


def see_skipped(step: int, *, skipped: bool) -> None:
    """Take whether an update was skipped; many in a row are gradients that are never finite."""
    _now.skipped = _now.skipped + 1 if skipped else 0
    if _now.skipped == SKIPPED:
        _replay(step, grads=True)


def _see_exception(error: BaseException) -> None:
    text = str(error)
    outside = isinstance(error, _OUTSIDE) or "out of memory" in text or "CUDA error" in text or "NCCL" in text
    if _now.module is not None and not outside and run_state.step() + 1 > _now.last_step + 1:
        _make(run_state.step() + 1)


def _see_exit() -> None:
    """Look once more where a run ends without a word: only what is bad is told."""
    if _now.module is not None and _now.module() is not None and not _now.made:
        _make(run_state.step() + 1, only_bad=True)


def _replay(step: int, *, grads: bool = False) -> None:
    if not _now.made or step >= _now.last_step + 2**_now.made:
        _make(step, grads=grads)


def _make(step: int, *, grads: bool = False, only_bad: bool = False) -> None:
    if _now.busy or _now.made >= MOST:
        return
    _now.made += 1
    _now.last_step = step
    _now.busy = True
    try:
        told = patch.quietly(_look, grads) or {"weights": UNKNOWN, "inputs": UNKNOWN, "fp32": FAILED}
    finally:
        _now.busy = False
    if not only_bad or NONFINITE in told.values():
        records.emit("replay", step=step, **told)


def _word(good: bool) -> str:
    return FINITE if good else NONFINITE


def _look(grads: bool) -> dict[str, str]:
    """Return what the replay tells, in the words of its record."""
    module = _now.held or (_now.module() if _now.module else None)
    if module is None:
        return {"weights": UNKNOWN, "inputs": UNKNOWN, "fp32": UNKNOWN}
    weights = finite.all_finite([*module.parameters(), *module.buffers()])
    call = Call(module)
    told = {
        "weights": _word(weights),
        **_grown(module),
        "inputs": _word(finite.all_finite(finite.tensors_in([call.args, call.kwargs]))),
        "fp32": UNKNOWN,
    }
    if weights:
        # With weights that are not finite every forward is bad, and tells nothing.
        with rerun_forward.untouched(call.device):
            told.update(_rerun(call, grads))
    return told


def _grown(module: Any) -> dict[str, str]:
    """Return by what the weights have grown as a whole since the first update, where that says something."""
    before, now = _now.norms.get(module), finite.norm(module.parameters())
    ratio = float(now) / float(before) if before is not None and now is not None and float(before) > 0 else 0.0
    return {"grown": f"{ratio:.3g}"} if GROWN <= ratio < float("inf") else {}


def _rerun(call: Call, grads: bool) -> dict[str, str]:
    told: dict[str, str] = {}
    told["fp32"], where = _outputs(call, wide=True)
    if not call.is_fp32:
        _, own = _outputs(call, wide=False)
        where = own or where
    elif told["fp32"] == FINITE and not grads and _now.held is not None:
        # The script computes in FP32 already, and its model is well: the bad number came after it.
        told["fp32"] = NONFINITE
    if grads:
        told["grads"] = _gradients(call)
    elif not where and told["fp32"] in (FINITE, NONFINITE) and _now.held is not None:
        where = "loss"
    return {**told, "where": where} if where else told


def _outputs(call: Call, *, wide: bool) -> tuple[str, str]:
    try:
        good, where = rerun_forward.first_bad(call, wide=wide)
    except rerun_forward.CannotRun:
        return UNKNOWN, ""
    except Exception:
        return FAILED, ""
    return _word(good), where


def _gradients(call: Call) -> str:
    try:
        return _word(rerun_forward.gradients_finite(call))
    except rerun_forward.CannotRun:
        return UNKNOWN
    except Exception:
        return FAILED
