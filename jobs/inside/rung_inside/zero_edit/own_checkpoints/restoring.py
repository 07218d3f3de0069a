"""Brings a run back to the checkpoint that Rung itself has saved, as soon as the script has made its objects.

All of them are loaded, or none: when the pass over a DataLoader is reached that the checkpoint lies in, or else when
the model is first called for training. Passes behind the checkpoint are rehearsed: the script gets one batch, computes
with the weights of the checkpoint, and nothing is updated, counted or reported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from rung_inside.contract import records
from rung_inside.patching import on_exit
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.own_checkpoints import data_place, files, live_state, random_state
from rung_inside.zero_edit.resume import resume_step

AGAIN = "weights, optimizer, schedule and random numbers were restored, but not the place in the data: "
NO_LOADER = "no DataLoader feeds this script, so its loop begins again at its first step"
NOT_ASKED = "the DataLoader that fed it was not asked for a batch"
NOT_CALLED = "the model was not called before the first backward pass"
ENDED = "the script ended while it went through the passes that lie behind the checkpoint"
REST_FAILED = "the weights were restored, but not all of the rest: "
OTHER_RANKS = "the random numbers of the first rank were restored, but not those of the others"


class _Restore:
    """What has to be brought back. `path` is empty when nothing has to be, or all is done."""

    def __init__(self) -> None:
        self.path = ""
        self.state: Any = None
        self.has_weights = False
        self.has_arrived = False
        # Why the place in the data is not that of the checkpoint; empty: it is.
        self.why = ""
        # The modules of the checkpoint that the script has not called yet, and those that it has, with their tensors.
        self.uncalled: list[Mapping[str, Any]] = []
        self.called: list[tuple[Any, Mapping[str, Any]]] = []


_restore = _Restore()


def install(_torch: Any) -> None:
    _restore.path = os.environ.get("RUNG_CHECKPOINT", "")
    if not _restore.path:
        return
    run_state.subscribe("forward", _on_forward, in_rehearsals=True)
    run_state.subscribe("backward", _on_first_update)
    run_state.subscribe("before_update", _on_first_update)
    on_exit.on_end(_on_end)


def is_pending() -> bool:
    """Return whether the run is not yet what the checkpoint holds."""
    return bool(_restore.path)


def _loaded() -> Any:
    """Return the content of the checkpoint, read when it is first needed; None: nothing has to be brought back."""
    if _restore.path and _restore.state is None:
        try:
            _restore.state = files.load(_restore.path)
        except Exception as error:
            _give_up(f"{type(error).__name__}: {error}"[:200])
            return None
        _restore.uncalled = list(_restore.state["modules"])
    return _restore.state


# The place in the data


def on_pass(place: data_place.Place) -> Mapping[str, Any] | None:
    """Make a pass that lies behind the checkpoint a rehearsal; return the state of the place if it is in this pass."""
    state = _loaded()
    if state is None or _restore.has_arrived or state["data"]["feeding"] is None:
        return None
    # Before anything is left out: a run from scratch needs all of its data.
    if live_state.missing(state) is None and not (_restore.has_weights or _load_weights(state)):
        return None
    saved = dict(enumerate(state["data"]["loaders"])).get(place.number)
    if saved is None or place.passes > saved["passes"]:
        return None
    # The next checkpoint must know it too, where a rehearsal makes no update.
    place.is_trained_on = saved["trained"]
    if place.passes == saved["passes"] and saved["active"]:
        return dict(saved)
    if saved["trained"]:
        place.is_token = True
        run_state.rehearse(True)
    return None


def on_arrival(place: data_place.Place, why: str) -> None:
    """End the rehearsal: the next batch is the one after the checkpoint."""
    state = _loaded()
    if state is None or place.number != state["data"]["feeding"]:
        return
    if run_state.is_rehearsing():
        run_state.rehearse(False)
        live_state.drop_gradients()
    _restore.has_arrived, _restore.why = True, why
    random_state.restore(state["random"])
    # Where the objects are not made yet, they are loaded at the first call of the model.
    if live_state.missing(state) is None and _load_weights(state):
        _finish(state)


# The objects


def _on_forward(module: Any, *_: Any) -> None:
    state = _loaded()
    if state is None or not torch.is_grad_enabled():
        _fill(module)
        return
    if live_state.missing(state) is not None or not (_restore.has_weights or _load_weights(state)):
        return
    _fill(module)
    if state["data"]["feeding"] is None:
        _restore.why = NO_LOADER
        random_state.restore(state["random"])
        _finish(state)
    elif _restore.has_arrived:
        _finish(state)


def _on_first_update(*_: Any) -> None:
    """Go on without the place in the data, or from scratch: the first update comes, and the run is not restored."""
    state = _loaded()
    if state is None:
        return
    if not _restore.has_weights:
        _give_up(live_state.missing(state) or NOT_CALLED)
        return
    _restore.why = NOT_ASKED
    random_state.restore(state["random"])
    _finish(state)


def _load_weights(state: Mapping[str, Any]) -> bool:
    """Load the trained parameters; if anything of the checkpoint does not fit, begin from scratch."""
    why = live_state.mismatch(state)
    if why is not None:
        _give_up(why)
        return False
    live_state.load_weights(state)
    _restore.has_weights = True
    return True


def _fill(module: Any) -> None:
    """Load the other tensors of a module at its first call."""
    if not _restore.has_weights or not _restore.uncalled:
        return
    saved = next((each for each in _restore.uncalled if live_state.load_module(module, each)), None)
    if saved is not None:
        _restore.uncalled = [each for each in _restore.uncalled if each is not saved]
        _restore.called.append((module, saved))


def _finish(state: Mapping[str, Any]) -> None:
    """Load the rest, and say where the run goes on."""
    try:
        live_state.load_rest(state)
    except Exception as error:
        _restore.why = f"{REST_FAILED}{type(error).__name__}: {error}"[:200]
    # A rehearsal has changed them since.
    for module, saved in _restore.called:
        live_state.load_module(module, saved)
    if _restore.why:
        rest_failed = _restore.why.startswith(REST_FAILED)
        records.emit("not_whole", why=_restore.why if rest_failed else AGAIN + _restore.why)
    elif _ranks() > 1:
        records.emit("not_whole", why=OTHER_RANKS)
    name = os.path.basename(_restore.path)
    _restore.path, _restore.state, _restore.called = "", None, []
    resume_step.report_start(state["step"], name)


def _give_up(why: str) -> None:
    """Begin from scratch: a run that is restored in part would be neither the old nor a new one."""
    run_state.rehearse(False)
    data_place.end_tokens()
    name = os.path.basename(_restore.path)
    _restore.path, _restore.state, _restore.uncalled = "", None, []
    records.emit("not_whole", why=f"{name} was not restored: {why}")
    resume_step.report_start(0, "none")


def _ranks() -> int:
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def _on_end() -> None:
    if _restore.path and run_state.is_rehearsing():
        run_state.rehearse(False)
        records.emit("not_whole", why=ENDED)
