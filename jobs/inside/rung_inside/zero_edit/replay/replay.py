"""Replays a step after the first number that is not finite, and reports its cause in one `replay` record.

Are the weights finite and have they grown? Are the inputs finite? Does the same forward in FP32 give finite outputs?
Which module returns the first bad number? Runs after a loss that is not finite, after eight skipped updates in a row,
after calls in training that no backward pass follows, and at an uncaught exception. At most eight times in a run, at
doubling distances.
"""

from __future__ import annotations

import atexit
import weakref
from typing import Any

import torch

from rung_inside.contract import asked_knobs, records
from rung_inside.numerics import finite, grad_norm
from rung_inside.numerics.nested_tensors import tensors_in
from rung_inside.patching import on_exit, patch
from rung_inside.places.find import LOSS
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.knobs import autocast
from rung_inside.zero_edit.replay import cure, memory, rerun_forward
from rung_inside.zero_edit.replay.batch import Batch

MOST_REPLAYS = 8
# Skipped updates in a row with finite losses: more than a scaler needs to find its scale.
SKIPPED = 8
# Calls in training without a backward pass, as a multiple of the most before one: the script leaves out bad batches.
UNANSWERED = 4
# Smallest growth of the norm of the weights that is reported.
GROWN = 2.0
FINITE, NONFINITE, FAILED, UNKNOWN, OOM = "finite", "nonfinite", "failed", "unknown", "oom"
# Exceptions that are not about numbers.
_OUTSIDE = (OSError, ImportError, SyntaxError, NameError, MemoryError, KeyboardInterrupt)
# Words of errors that are not about numbers either; the last ones mean that another rank has ended, which knows why.
_OUTSIDE_WORDS = ("out of memory", "CUDA error", "NCCL", "gloo", "Connection closed by", "Connection reset by")


class Call:
    """The latest call of a root module in training: its arguments, device and autocast."""

    __slots__ = ("args", "autocast", "device", "kwargs", "module")

    def __init__(self, module: Any) -> None:
        self.module = module
        self.args, self.kwargs, casts = _now.given
        first = next(iter(module.parameters()), None)
        self.device = torch.device("cpu") if first is None else first.device
        self.autocast = casts[self.device.type == "cpu"]

    @property
    def is_fp32(self) -> bool:
        """Return whether the script itself computes all of it in FP32."""
        tensors = [*self.module.parameters(), *tensors_in([self.args, self.kwargs])]
        return self.autocast is None and not any(each.dtype in rerun_forward.HALVES for each in tensors)


class _State:
    """What is kept between updates: the arguments of the latest call, and nothing older."""

    def __init__(self) -> None:
        self.module: Any = None
        # The arguments, by place and by name, and the dtypes of autocast on CUDA and on the CPU; None: off.
        self.given: tuple[Any, dict[str, Any], tuple[Any, Any]] = ((), {}, (None, None))
        self.is_installed = False
        self.made = 0
        self.last_step = -1
        self.busy = False
        # Kept alive from the first bad number on, so that a script that ends cannot free the model first.
        self.held: Any = None
        self.skipped = 0
        self.batch = Batch()
        # The memory before the first forward that was run again, whose peak was that of the run alone; None: no GPU.
        self.memory: memory.Memory | None = None
        # Whether FP32 fits it, once that is measured.
        self.fp32_memory: dict[str, str] = {}
        # The norm of each model's weights before its first update, as a tensor on its device.
        self.norms: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


_now = _State()
_calls = run_state.model_calls
_live_autocast = autocast.live
_is_grad_enabled = torch.is_grad_enabled


def install(_torch: Any) -> None:
    if not asked_knobs.may_change():
        # A script that is only watched has an FP32 of its own, by its flags, which may compute something else.
        return
    _now.is_installed = True
    run_state.subscribe("forward", _on_forward)
    on_exit.on_failure(_on_exception)
    atexit.register(patch.quietly, _on_exit)


def _on_forward(module: Any, args: Any, kwargs: Any) -> None:
    if not _is_grad_enabled() or _now.busy:
        return
    unanswered = _calls.unanswered
    if unanswered == UNANSWERED * _calls.most_answered:
        run_state.publish("unanswered")
        # The arguments are still those of the call before, whose loss the script has not used.
        _replay(run_state.step() + 1, only_bad=True)
    _calls.unanswered = unanswered + 1
    held, batch = _now.module, _now.batch
    given = _now.given = args, kwargs, _live_autocast[0]
    if held is None or held() is not module:
        _now.module = weakref.ref(module)
        if module not in _now.norms:
            _now.norms[module] = grad_norm.norm(module.parameters())
        batch.add_call(module, args, kwargs, is_first=not unanswered)
    elif unanswered or batch.has_others:
        batch.add_call(module, args, kwargs, is_first=not unanswered)
    else:
        # As in most scripts: the only root, called once for each backward pass.
        batch.given = given


def on_nonfinite_loss(step: int) -> None:
    """Replay for a loss that is not finite, read at this update."""
    model = _now.module() if _now.module else None
    _now.held = _now.held or model
    _replay(step)


def on_update(step: int, *, skipped: bool) -> None:
    """Count skipped updates, and replay after many in a row."""
    _now.skipped = _now.skipped + 1 if skipped else 0
    if _now.skipped == SKIPPED:
        _replay(step, grads=True)


def _on_exception(error: BaseException) -> None:
    text = str(error)
    outside = isinstance(error, _OUTSIDE) or any(words in text for words in _OUTSIDE_WORDS)
    if _now.module is not None and not outside and run_state.step() + 1 > _now.last_step + 1:
        _run_replay(run_state.step() + 1)


def _on_exit() -> None:
    """Replay at the end of a run that had none, and report only bad results."""
    if _now.module is not None and _now.module() is not None and not _now.made:
        _run_replay(run_state.step() + 1, only_bad=True)


def _replay(step: int, *, grads: bool = False, only_bad: bool = False) -> None:
    if not _now.made or step >= _now.last_step + 2**_now.made:
        _run_replay(step, grads=grads, only_bad=only_bad)


def _run_replay(step: int, *, grads: bool = False, only_bad: bool = False) -> None:
    if not _now.is_installed or _now.busy or _now.made >= MOST_REPLAYS:
        return
    _now.made += 1
    _now.last_step = step
    _now.busy = True
    try:
        result = patch.quietly(_examine, grads) or {"weights": UNKNOWN, "inputs": UNKNOWN, "fp32": FAILED}
    finally:
        _now.busy = False
    if not only_bad or NONFINITE in result.values() or "where" in result:
        records.emit_from_any_rank("replay", step=step, **result)


def _label(good: bool | None) -> str:
    return UNKNOWN if good is None else FINITE if good else NONFINITE


def _examine(grads: bool) -> dict[str, str]:
    """Return the values of the replay record."""
    module = _now.held or (_now.module() if _now.module else None)
    if module is None:
        return {"weights": UNKNOWN, "inputs": UNKNOWN, "fp32": UNKNOWN}
    weights = finite.all_finite([*module.parameters(), *module.buffers(), *_trained()])
    call = Call(module)
    result = {
        "weights": _label(weights),
        **_growth(module),
        "inputs": _label(_now.batch.is_finite(call.args, call.kwargs)),
        "fp32": UNKNOWN,
    }
    if weights:
        # With weights that are not finite every forward is bad and shows nothing.
        _now.memory = _now.memory or patch.quietly(memory.read, call)
        with rerun_forward.preserved_state(call.device):
            again = _rerun(call, grads)
        # Bad numbers that others computed give bad numbers again, which shows nothing.
        result.update(again if result["inputs"] != UNKNOWN or again["fp32"] == FINITE else {})
        if result["fp32"] == FINITE and not call.is_fp32:
            result.update(_fp32_memory(call))
    return result


def _trained() -> list[Any]:
    """Return what the optimizers train; a script may keep some of it in plain tensors, which no module lists."""
    groups = (group for optimizer in run_state.optimizers for group in optimizer.param_groups)
    return [each for group in groups for each in group["params"]]


def _fp32_memory(call: Call) -> dict[str, str]:
    """Return whether a training in FP32 fits the memory, as far as it is known; measured once."""
    if _now.memory is not None and not _now.fp32_memory:
        _now.fp32_memory = patch.quietly(memory.of_fp32, call, _now.memory) or {}
    return _now.fp32_memory


def _growth(module: Any) -> dict[str, str]:
    """Return the growth of the norm of the weights since the first update, if it is large."""
    before, now = _now.norms.get(module), grad_norm.norm(module.parameters())
    ratio = float(now) / float(before) if before is not None and now is not None and float(before) > 0 else 0.0
    return {"grown": f"{ratio:.3g}"} if GROWN <= ratio < float("inf") else {}


def _rerun(call: Call, grads: bool) -> dict[str, str]:
    result: dict[str, str] = {}
    result["fp32"], where = _outputs(call, wide=True)
    if not call.is_fp32:
        _, where_in_script = _outputs(call, wide=False)
        where = where_in_script or where
    elif result["fp32"] == FINITE and not grads and _now.held is not None:
        # The script computes in FP32, and its model gives finite outputs: the bad number came after it.
        result["fp32"] = NONFINITE
    if grads:
        result["grads"] = _gradients(call)
    elif not where and result["fp32"] in (FINITE, NONFINITE) and _now.held is not None:
        where = LOSS
    found = {**result, "where": where} if where else result
    return {**found, **_cure(call, where)} if result["fp32"] == FINITE else found


def _cure(call: Call, where: str) -> dict[str, str]:
    """Return the smallest change that cures the step in FP16, where there is one."""
    if call.is_fp32:
        return {}
    found = patch.quietly(cure.find_cure, call)
    # A model that is well shows nothing of the code after it, unless its loss was seen to be bad.
    if found is None or (found.places == (LOSS,) and where != LOSS):
        return {}
    return dict(found.fields())


def _outputs(call: Call, *, wide: bool) -> tuple[str, str]:
    try:
        good, where = rerun_forward.first_bad(call, wide=wide)
    except rerun_forward.CannotRun:
        return UNKNOWN, ""
    except Exception as error:
        if not memory.ran_out(error):
            return FAILED, ""
    else:
        return _label(good), where
    # Here the exception is gone, and with it what its frames held.
    memory.give_back(call.device)
    return OOM, ""


def _gradients(call: Call) -> str:
    try:
        return _label(rerun_forward.gradients_finite(call))
    except rerun_forward.CannotRun:
        return UNKNOWN
    except Exception:
        return FAILED
