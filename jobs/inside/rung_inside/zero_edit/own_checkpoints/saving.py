"""Decides when a checkpoint is saved: every so many updates, or when the time is up, at the end of an iteration.

After an update the script still steps its schedule and its scaler. The iteration is over when the script asks its
DataLoader for the next batch; where no loader feeds it, when it calls its model again.
"""

from __future__ import annotations

from typing import Any

import torch

from rung_inside.contract import records
from rung_inside.numerics import finite
from rung_inside.patching import patch
from rung_inside.zero_edit import run_state
from rung_inside.zero_edit.own_checkpoints import data_place, files, live_state, random_state, restoring, time_up
from rung_inside.zero_edit.resume.checkpoint_paths import is_rungs_own


class _Due:
    """The step at which a checkpoint became due, while it is not saved; and the step of the newest one."""

    since: int | None = None
    saved = -1
    # Whether this run cannot be saved at all.
    is_refused = False


def install(torch_module: Any) -> None:
    if not is_rungs_own() or not files.every():
        return
    time_up.install()
    restoring.install(torch_module)
    data_place.install(_on_request, restoring.on_pass, restoring.on_arrival)
    run_state.subscribe("updated", _on_updated)
    run_state.subscribe("forward", _on_forward)
    schedulers = torch_module.optim.lr_scheduler
    base = getattr(schedulers, "LRScheduler", None) or schedulers._LRScheduler
    # ReduceLROnPlateau is none of these before torch 2.2.
    for cls in (base, schedulers.ReduceLROnPlateau):
        patch.after(cls, "__init__", _made_scheduler)


def refuse_trainer(framework: str) -> None:
    """Save nothing of a run that a Trainer drives, and say so: it could not be brought back to its place."""
    if not is_rungs_own() or _Due.is_refused:
        return
    _Due.is_refused = True
    records.emit(
        "not_whole",
        why=f"Rung saves no checkpoints of this run: the Trainer of {framework} fetches its batches ahead, so its "
        "place in the data is not known. Let the Trainer save, and leave checkpoint.by out of the job file",
    )


def _made_scheduler(_result: Any, scheduler: Any, *_: Any, **__: Any) -> None:
    run_state.schedulers.add(scheduler)


def _on_updated(*_: Any) -> None:
    step = run_state.step()
    is_due = step % files.every() == 0 or time_up.is_told()
    if is_due and not _Due.is_refused and _Due.since is None and step != _Due.saved:
        _Due.since = step


def _on_request(place: data_place.Place) -> None:
    if _Due.since is not None and place is data_place.feeding():
        _save(place.number)


def _on_forward(*_: Any) -> None:
    """Save where no loader feeds the training; a validation in between calls the model without gradients."""
    if _Due.since is not None and torch.is_grad_enabled() and data_place.feeding() is None:
        _save(None)


def _save(loader: int | None) -> None:
    """Save the run as it is now; `loader`: the number of the one that feeds it."""
    step, _Due.since = run_state.step(), None
    _Due.saved = step
    if restoring.is_pending() or not records.is_first_rank():
        return
    ends = time_up.take()
    why = live_state.why_not_saved()
    if why is not None:
        patch.note(f"Rung cannot save this run: {why}")
        return
    trained = (each for optimizer in run_state.optimizers for each in live_state.trained_by(optimizer))
    if not finite.all_finite(trained):
        patch.note("the weights are not finite: Rung saves no checkpoint from now on")
        return
    place = {"feeding": loader, "loaders": data_place.states()}
    state = {**live_state.collect(), "data": place, "random": random_state.capture(gpus=True)}
    try:
        name = files.save(step, state)
    except OSError as error:
        patch.note(f"Rung could not save a checkpoint: {error.strerror}")
        return
    records.emit("saved", step=step, file=name)
    if ends:
        time_up.end(step)
