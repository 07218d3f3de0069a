"""Owns the run: one training loop's live objects with the knobs made true on them, step by step, across a resume."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from rung_inside.attach import checkpoint
from rung_inside.attach.base_lr import base_lr, set_base_lr
from rung_inside.contract import asked_knobs, records
from rung_inside.numerics import grad_norm, native_fp16, precision


class Run:
    """Holds model, optimizer, scheduler and scaler of one training, and keeps the knobs true on them."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        scheduler: Any,
        device: Any,
        defaults: Mapping[str, Any],
    ) -> None:
        self.model, self.optimizer, self.scheduler = model, optimizer, scheduler
        self.device_type = torch.device(device).type
        self.extra: dict[str, Any] = {}
        self._wanted = asked_knobs.wanted(defaults)
        self._eps = asked_knobs.own_eps(optimizer)
        self._make_precise()
        self.clip: float | None = self._wanted.get("clip")
        self._keep_knobs()
        self._apply()
        with self.autocast():
            pass
        self._say_knobs()

    def _make_precise(self) -> None:
        """Put the model, the scaler and, in native FP16, the optimizer into the precision wanted."""
        self._precision = self._wanted.get("precision")
        precision.cast_parameters(self.model, self._precision)
        self.scaler = precision.make_scaler(self.device_type, self._precision, self._wanted)
        self._compensated = native_fp16.Compensated(self.optimizer) if self._precision == "native_fp16" else None
        if self._compensated:
            native_fp16.follow_loads(self.model, self._compensated)
        self._autocast_seen: torch.dtype | None = None
        # What autocast does is read where it matters, whoever has switched it on: in the model's forward.
        self.model.register_forward_pre_hook(self._see_autocast)

    def _see_autocast(self, *_: Any) -> None:
        self._autocast_seen = precision.live_autocast(self.device_type)

    def _keep_knobs(self) -> None:
        asked_knobs.after_load(self.optimizer, self._apply)
        asked_knobs.after_load(self.scaler, self._apply, before=asked_knobs.usable_scaler_state)
        if self.scheduler is not None:
            asked_knobs.after_load(self.scheduler, self._apply)

    def _apply(self) -> None:
        """Make lr, eps and growth_interval true on the live objects, whatever was just loaded."""
        if self._wanted.get("lr") is not None:
            set_base_lr(self.optimizer, self.scheduler, float(self._wanted["lr"]))
        asked_knobs.restore_eps(self.optimizer, self._eps)
        if self._wanted.get("growth_interval") is not None and self.scaler.is_enabled():
            self.scaler.set_growth_interval(int(self._wanted["growth_interval"]))

    def effective(self) -> dict[str, Any]:
        """Return the knobs as the live objects have them, not as they were asked."""
        return {
            "lr": base_lr(self.optimizer, self.scheduler),
            "clip": "off" if self.clip is None else float(self.clip),
            "growth_interval": self.scaler.get_growth_interval() if self.scaler.is_enabled() else None,
            "precision": precision.read_precision(self.model, self._autocast_seen, self.scaler),
        }

    def _say_knobs(self) -> None:
        records.say_knobs(self.effective())

    @contextlib.contextmanager
    def autocast(self) -> Iterator[None]:
        """Compute the forward pass and the loss in the precision wanted."""
        with precision.autocast(self.device_type, self._precision):
            self._see_autocast()
            yield

    def backward(self, loss: torch.Tensor) -> None:
        """Add a loss's gradients; `step` does this itself, further micro-batches go through here."""
        self.scaler.scale(loss).backward()

    def step(self, loss: torch.Tensor, step: int) -> None:
        """Do everything after the loss: backward, unscale, clip, update, schedule; and report step + 1 steps done."""
        self.backward(loss)
        self._say_knobs()
        lr = records.short(float(self.optimizer.param_groups[0]["lr"]))
        scale = self.scaler.get_scale() if self.scaler.is_enabled() else None
        norm = self._clip()
        skipped = self._update(norm)
        value, size = records.short(float(loss.detach())), records.short(norm)
        records.emit("step", step=step + 1, loss=value, lr=lr, grad_norm=size, scale=scale, skipped=skipped)

    def _clip(self) -> float:
        """Return the norm of the true gradients before clipping, and clip them where that is on."""
        if self._compensated:
            self._compensated.gather()
        self.scaler.unscale_(self.optimizer)
        parameters = (each for group in self.optimizer.param_groups for each in group["params"])
        held = [parameter.grad for parameter in parameters if parameter.grad is not None]
        norm = grad_norm.norm_of(held)
        if self.clip is not None:
            grad_norm.clip(held, norm, self.clip)
        return norm

    def _update(self, norm: float) -> bool:
        """Step the optimizer and the schedule, and tell whether the step was skipped for a non-finite gradient."""
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        skips = self.scaler.is_enabled() or self._compensated is not None
        skipped = skips and not math.isfinite(norm)
        # A plateau schedule wants a metric that only the script has.
        if self.scheduler is not None and not skipped and not hasattr(self.scheduler, "num_bad_epochs"):
            self.scheduler.step()
        return skipped

    def due(self, step: int, every: int | None = None) -> bool:
        """Tell whether a checkpoint is due at this step; `every` is the script's own wish where none is asked."""
        asked = checkpoint.interval(every)
        return asked is not None and step > 0 and step % asked == 0

    def save(self, step: int, **extra: Any) -> str:
        """Write the state after `step` steps, in FP32 whatever the run computes in, and return the path."""
        return checkpoint.save(step, {**extra, **self.state(step)})

    def state(self, step: int) -> dict[str, Any]:
        """Return everything a resume needs; any precision can go on from it."""
        random = {"cpu": torch.get_rng_state()}
        if self.device_type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state()
        return {
            "step": step,
            "model": native_fp16.master_state(self.model, self._compensated),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "scheduler": self.scheduler.state_dict() if self.scheduler is not None else {},
            "rng": random,
        }

    def resume(self) -> int:
        """Load RUNG_CHECKPOINT where there is one, re-apply the knobs, and return the step to go on from."""
        path = os.environ.get("RUNG_CHECKPOINT", "")
        step = self._load(path) if path else 0
        self._say_knobs()
        records.emit("resumed", step=step, file=os.path.basename(path) or "none")
        return step

    def _load(self, path: str) -> int:
        state = checkpoint.load(path)
        self.model.load_state_dict(state.pop("model"))
        # Each of these loads is followed by the knobs.
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
