"""Measures where the time of a watched update goes: what each hook of zero-edit takes within a training.

python -m tests.bench.hooks gpu [STEP]     STEP: seconds a step, 0.003 if none is given
python -m tests.bench.hooks cpu [STEP]     on two cores, 0.01 if none is given

A hook's own time does not contain what it replaces. A clock is read four times for each hook, so the sum is a little
more than zero-edit takes; and that of `clip_grad_norm_` contains the list of the parameters, which torch makes without
Rung. RUNG_BENCH_INSIDE names the `jobs/inside` of another version. Only torch and the standard library are needed.
"""

from __future__ import annotations

import functools
import sys
from collections import defaultdict
from collections.abc import Callable
from statistics import median
from time import perf_counter_ns
from typing import Any

from tests.bench import versions
from tests.bench.switching import records_in_a_file, start

UPDATES = 400
DEFAULT = {"gpu": 0.003, "cpu": 0.010}
ROOT_CALL = "call of the model"

# Nanoseconds of this update, by hook.
_spent: dict[str, int] = defaultdict(int)
# How long the replaced functions took that were called so far.
_replaced = [0]


def main() -> None:
    device = sys.argv[1]
    step_time = float(sys.argv[2]) if sys.argv[2:] else DEFAULT[device]
    case = next(each for each in versions.CASES if (each.device, each.step) == (device, step_time))
    told = sys.stdout
    _time_hooks()
    with records_in_a_file() as lines:
        step, model, where = (versions.on_gpu if device == "gpu" else versions.on_cpu)(case)
        _time_call(model)
        for _ in range(versions.WARM_UP):
            step()
        print(f"about {1000 * step_time:g} ms a step, on {where}: microseconds of an update", file=told)
        for course in case.courses:
            versions.go_to(versions.COURSES[course])
            print("\n".join(_rows(course, _measured(step))), file=told, flush=True)
        found = {kind: [line for line in lines() if line.startswith(f"rung| {kind}")] for kind in ("step", "note")}
    if not found["step"] or found["note"]:
        sys.exit(f"rung: nothing was reported, or the code inside has failed: {found['note']}")


def _measured(step: Callable[[], None]) -> list[dict[str, int]]:
    found = []
    for _ in range(UPDATES):
        _spent.clear()
        step()
        found.append(dict(_spent))
    return found


def _rows(course: str, updates: list[dict[str, int]]) -> list[str]:
    names = {name for each in updates for name in each}
    of_each = {name: [each.get(name, 0) / 1000 for each in updates] for name in names}
    rows = [(median(taken), sum(taken) / len(taken), name) for name, taken in of_each.items()]
    rows.sort(reverse=True)
    rows.append((sum(row[0] for row in rows), sum(row[1] for row in rows), "all of them"))
    return [f"  {course}"] + [f"    {name:<44} median {one:6.1f}, mean {mean:6.1f}" for one, mean, name in rows]


def _time_hooks() -> None:
    """Enter this process, and measure each function that is replaced from here on."""
    start()
    from rung_inside.patching import patch

    own = patch.replace

    def timed(owner: Any, name: str, hook: Any, make: Callable[[Any], Callable[..., Any]]) -> bool:
        def make_timed(original: Callable[..., Any]) -> Callable[..., Any]:
            return _timed(make(_inside(original)), f"{getattr(owner, '__name__', owner)}.{name}")

        return own(owner, name, hook, make_timed)

    patch.replace = timed


def _time_call(model: Any) -> None:
    """Give the model a class of its own, whose call is replaced and measured as all else."""
    import torch
    from rung_inside.zero_edit.hooks import forward

    own = type(model)
    model.__class__ = type(own.__name__, (own,), {"__call__": _inside(torch.nn.Module.__call__)})
    forward._patch_class(type(model))
    type(model).__call__ = _timed(type(model).__call__, ROOT_CALL)


def _inside(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        before, began = _replaced[0], perf_counter_ns()
        try:
            return original(*args, **kwargs)
        finally:
            # With the hooks that were called within it, which have counted themselves.
            _replaced[0] = before + perf_counter_ns() - began

    return replaced


def _timed(hook: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(hook)
    def timed(*args: Any, **kwargs: Any) -> Any:
        before, began = _replaced[0], perf_counter_ns()
        try:
            return hook(*args, **kwargs)
        finally:
            _spent[name] += perf_counter_ns() - began - (_replaced[0] - before)

    return timed


if __name__ == "__main__":
    main()
