"""A training run with the knobs set on its live objects, at each step and after a resume."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import torch

from rung_inside.attach import checkpoint, native_fp16
from rung_inside.attach.base_lr import base_lr, set_base_lr
from rung_inside.contract import asked_knobs, records
from rung_inside.numerics import grad_norm, precision, tf32
from rung_inside.places import fp16_places, fp32_calls

# The updates of all runs of this process.
_updates = [0]


@atexit.register
def _report_end() -> None:
    fp16_places.report()
    if _updates[0] or records.has_reported_hands():
        records.emit("end", updates=_updates[0])


class Run:
    """Holds model, optimizer, scheduler and scaler of one training, and keeps the knobs set on them."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        scheduler: Any,
        device: Any,
        defaults: Mapping[str, Any],
    ) -> None:
        if not asked_knobs.may_change():
            # It was only to be watched, and has asked for more.
            import_module("rung_inside.zero_edit.run_state").step_aside()
            os.environ["RUNG_MODE"] = "inside"
        self.model, self.optimizer, self.scheduler = model, optimizer, scheduler
        self.device_type = torch.device(device).type
        self.extra: dict[str, Any] = {}
        self._wanted = asked_knobs.wanted(defaults)
        self._eps = asked_knobs.script_eps(optimizer)
        self._set_precision()
        self.clip: float | None = self._wanted.get("clip")
        self._keep_knobs_after_loads()
        is_native = self._precision == "native_fp16"
        self._native = native_fp16.NativeFp16(model, optimizer) if is_native else None
        self._apply()
        with self.autocast():
            pass
        records.report_hands(torch)
        self._report_knobs()

    def _set_precision(self) -> None:
        """Cast the model and make the scaler for the precision wanted."""
        self._precision = self._wanted.get("precision")
        tf32.start(self._wanted.get("matmul"))
        fp16_places.start(self._wanted.get("constants"), self._wanted.get("fp32_modules"))
        fp16_places.attach(self.model)
        # A model whose own code computes in FP32 takes its inputs as they are.
        halve_inputs = not fp16_places.is_place(self.model)
        precision.cast_parameters(self.model, self._precision, halve_inputs=halve_inputs)
        self.scaler = precision.make_scaler(self.device_type, self._precision, self._wanted)
        self._autocast_seen: torch.dtype | None = None
        # Read in the forward of the model, where autocast matters, whoever turned it on.
        self.model.register_forward_pre_hook(self._see_autocast)

    def _see_autocast(self, *_: Any) -> None:
        self._autocast_seen = fp32_calls.script_autocast(self.device_type)

    def _keep_knobs_after_loads(self) -> None:
        asked_knobs.after_load(self.optimizer, self._apply)
        asked_knobs.after_load(self.scaler, self._apply, before=asked_knobs.usable_scaler_state)
        if self.scheduler is not None:
            asked_knobs.after_load(self.scheduler, self._apply)

    def _apply(self) -> None:
        """Set lr, eps and growth_interval on the live objects, whatever was just loaded."""
        if self._wanted.get("lr") is not None:
            set_base_lr(self.optimizer, self.scheduler, float(self._wanted["lr"]))
        asked_knobs.restore_eps(self.optimizer, self._eps)
        if self._wanted.get("growth_interval") is not None and self.scaler.is_enabled():
            self.scaler.set_growth_interval(int(self._wanted["growth_interval"]))

    def effective(self) -> dict[str, Any]:
        """Return the knobs as the live objects have them."""
        return {
            "lr": base_lr(self.optimizer, self.scheduler),
            "clip": "off" if self.clip is None else float(self.clip),
            "growth_interval": self.scaler.get_growth_interval() if self.scaler.is_enabled() else None,
            "precision": self._live_precision(),
            **fp16_places.effective(),
            **tf32.effective(),
        }

    def _live_precision(self) -> str:
        parameters = [each for each in self.model.parameters() if each.is_floating_point()]
        trainable = {each.dtype for each in parameters if each.requires_grad}
        dtypes = {each.dtype for each in parameters}
        return precision.name_precision(dtypes, trainable, self._autocast_seen, self.scaler.is_enabled())

    def _report_knobs(self) -> None:
        records.report_knobs(self.effective())

    @contextlib.contextmanager
    def autocast(self) -> Iterator[None]:
        """Compute the forward pass and the loss in the precision wanted."""
        tf32.hold()
        with precision.autocast(self.device_type, self._precision):
            self._see_autocast()
            yield

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of a loss; `step` does this itself, so call it only for further micro-batches."""
        self.scaler.scale(loss).backward()

    def step(self, loss: torch.Tensor, step: int) -> None:
        """Do everything after the loss: backward, unscale, clip, update, schedule; report step + 1."""
        last = asked_knobs.last_step()
        if last is not None and step >= last:
            sys.exit(0)  # a trial is over
        self.backward(loss)
        fp16_places.end_update()
        self._report_knobs()
        lr = records.short(float(self.optimizer.param_groups[0]["lr"]))
        scale = self.scaler.get_scale() if self.scaler.is_enabled() else None
        norm = self._clip()
        skipped = self._update(norm)
        _updates[0] += 1
        value, size = records.short(float(loss.detach())), records.short(norm)
        records.emit("step", step=step + 1, loss=value, lr=lr, grad_norm=size, scale=scale, skipped=skipped)

    def _clip(self) -> float:
        """Return the norm of the unscaled gradients before clipping, and clip them if that is on."""
        if self._native:
            self._native.shadows.enter()
        self.scaler.unscale_(self.optimizer)
        parameters = (each for group in self.optimizer.param_groups for each in group["params"])
        held = [parameter.grad for parameter in parameters if parameter.grad is not None]
        norm = grad_norm.norm_of(held)
        if self.clip is not None:
            grad_norm.clip(held, norm, self.clip)
        return norm

    def _update(self, norm: float) -> bool:
        """Step the optimizer and the schedule; return whether a non-finite gradient skipped the step."""
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        skips = self.scaler.is_enabled() or self._native is not None
        skipped = skips and not math.isfinite(norm)
        # A plateau schedule needs a metric that only the script has.
        if self.scheduler is not None and not skipped and not hasattr(self.scheduler, "num_bad_epochs"):
            self.scheduler.step()
        return skipped

    def due(self, step: int, every: int | None = None) -> bool:
        """Return whether a checkpoint is due at this step; `every` is the default if nothing is asked."""
        asked = checkpoint.interval(every)
        return asked is not None and step > 0 and step % asked == 0

    def save(self, step: int, **extra: Any) -> str:
        """Write the state after `step` steps, in FP32 for every precision, and return the path."""
        return checkpoint.save(step, {**extra, **self.state(step)})

    def state(self, step: int) -> dict[str, Any]:
        """Return everything that a resume needs, in any precision."""
        random = {"cpu": torch.get_rng_state()}
        if self.device_type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state()
        return {
            "step": step,
            "model": native_fp16.master_state(self.model),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "scheduler": self.scheduler.state_dict() if self.scheduler is not None else {},
            "rng": random,
        }

    def resume(self) -> int:
        """Load RUNG_CHECKPOINT if it is set, re-apply the knobs, and return the step to go on from."""
        path = os.environ.get("RUNG_CHECKPOINT", "")
        step = self._load(path) if path else 0
        self._report_knobs()
        records.emit("resumed", step=step, file=os.path.basename(path) or "none")
        return step

    def _load(self, path: str) -> int:
        state = checkpoint.load(path)
        self.model.load_state_dict(state.pop("model"))
        # The knobs are set again after each of these loads.
        self.optimizer.load_state_dict(state.pop("optimizer"))
        self.scaler.load_state_dict(state.pop("scaler", {}))
        if self.scheduler is not None and state.get("scheduler"):
            self.scheduler.load_state_dict(state["scheduler"])
        random = state.pop("rng", {})
        if "cpu" in random:
            torch.set_rng_state(random["cpu"])
        if "cuda" in random and self.device_type == "cuda":
            torch.cuda.set_rng_state(random["cuda"])
        step = int(state.pop("step"))
        self.extra = {name: value for name, value in state.items() if name != "scheduler"}
        return step

    def metric(self, step: int, **values: Any) -> None:
        """Report any named values, such as val_loss, at a step."""
        records.metric(step, **values)
