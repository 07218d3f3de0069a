"""Lists the trainings to run: healthy ones of many kinds, and ones with a fault.

Thresholds were chosen on TUNED_TASKS with TUNING_SEED alone. What is reported comes from other seeds of those tasks,
and from tasks that were never looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.bench.lab import HEALTHY_PART, MISTAKES, Plan
from tests.bench.tasks import Setting


@dataclass(frozen=True)
class Rates:
    """Learning rates at which a task is learned well: by Adam, and by SGD with momentum 0.9."""

    adam: float
    sgd: float
    batch: int = 32
    # How much too large a poisoned batch is, and how close to the end of FP16 the activations are.
    poison: float = 30.0
    gain: float = 30.0


RATES = {
    "clusters": Rates(3e-3, 0.03),
    "teacher": Rates(3e-3, 0.01),
    "language": Rates(4e-3, 0.1, batch=8),
    "ranking": Rates(1e-2, 1.0, batch=64, poison=3.0, gain=4.0),
    "waves": Rates(3e-3, 0.03, batch=8),
    "adding": Rates(1e-3, 1e-3),
    "density": Rates(1e-3, 1e-3),
    "bandit": Rates(3e-3, 0.01),
}
TUNED_TASKS = ("clusters", "teacher", "language", "ranking")
OTHER_TASKS = ("waves", "adding", "density", "bandit")
TUNING_SEED, REPORTED_SEED = 100, 50_000
MOMENTUM = {"momentum": 0.9}
SLOW = ("language", "adding", "waves")
# Convolutions in FP16 are ten times as slow on a CPU as all else here.
NO_AMP = ("waves",)


def healthy(task: str) -> list[Plan]:
    """Return the ways in which a task is trained well."""
    rates = RATES[task]
    plain = Plan("", task, lr=rates.adam, steps=600, seeds=6, setting=Setting(batch=rates.batch))
    if task in SLOW:
        plain = replace(plain, steps=400, seeds=4)
    sgd = replace(plain, optimizer="sgd", lr=rates.sgd, options=MOMENTUM, clip=5.0)

    def named(name: str, plan: Plan, **setting: float) -> Plan:
        return replace(plan, name=f"{task} {name}", setting=replace(plan.setting, **setting))

    plans = [
        named("small batches", replace(plain, lr=rates.adam / 2), batch=max(2, rates.batch // 8)),
        named("heavy tails", replace(plain, schedule="warm_up", clip=1.0), tail=1.5, label_noise=0.1),
        named("restarts", replace(plain, optimizer="adam", schedule="restarts"), batch=rates.batch // 2),
        named("high restarts", replace(plain, lr=3 * rates.adam, schedule="restarts", clip=1.0)),
        named("bad batches", replace(plain, clip=1.0, schedule="linear"), bad_every=170, bad_size=20.0),
        named("spikes", replace(plain, options={"betas": (0.9, 0.95)}), bad_every=130, bad_size=8.0),
        named("one cycle", replace(sgd, schedule="one_cycle", accumulation=2), batch=rates.batch // 2),
        named("label noise", replace(sgd, schedule="decay"), label_noise=0.3, tail=4.0),
        named("long", replace(plain, steps=2 * plain.steps, seeds=3, optimizer="adam"), tail=3.0),
    ]
    if task not in NO_AMP:
        plans.append(named("half", replace(plain, amp=True, seeds=1, schedule="warm_up"), gain=4.0))
        plans.append(named("half sgd", replace(sgd, amp=True, seeds=1), tail=2.0))
    return plans


def ruined(task: str) -> list[Plan]:
    """Return the ways in which a task is ruined after it has been learned for a while, or from the start."""
    rates = RATES[task]
    adam = Plan("", task, lr=rates.adam, steps=1000, seeds=4, setting=Setting(batch=rates.batch))
    if task in SLOW:
        adam = replace(adam, steps=700, seeds=2)
    sgd = replace(adam, optimizer="sgd", lr=rates.sgd, options=MOMENTUM)

    def named(fault: str, plan: Plan, **setting: float) -> Plan:
        return replace(plan, name=f"{task} {fault}", fault=fault, setting=replace(plan.setting, **setting))

    plans = [
        named("sgd, lr ramps up", replace(sgd, schedule="ramp")),
        named("sgd, lr ramps up slowly", replace(sgd, schedule="slow_ramp"), tail=3.0),
        named("sgd, lr raised at once", replace(sgd, schedule="small_jump")),
        named("adam, lr ramps up", replace(adam, schedule="ramp")),
        named("adam, lr ramps up slowly", replace(adam, schedule="slow_ramp"), label_noise=0.1),
        named("adam, lr raised at once", replace(adam, schedule="jump")),
        named("adam, short memory", replace(adam, schedule="ramp", options={"betas": (0.9, 0.6), "eps": 1e-12})),
        named("lr too high", replace(sgd, lr=8 * rates.sgd, schedule="slow_warm_up")),
        named("poisoned batches, sgd", replace(sgd, lr=rates.sgd / 2), bad_every=150, bad_size=rates.poison),
        named("poisoned batches, adam", adam, bad_every=25, bad_size=50 * rates.poison),
    ]
    if task not in NO_AMP:
        seeds = adam.seeds // 2
        plans += [
            named("half, lr ramps up", replace(adam, amp=True, seeds=seeds, schedule="ramp"), gain=rates.gain),
            named("half, sgd, lr ramps up", replace(sgd, amp=True, seeds=seeds, schedule="ramp"), gain=rates.gain / 4),
        ]
    return plans


def sick_from(plan: Plan) -> int:
    """Return the step before which a run of this plan is as healthy as any."""
    return int(HEALTHY_PART * plan.steps) if plan.schedule in MISTAKES else 0


def plans(tasks: tuple[str, ...]) -> list[Plan]:
    return [plan for task in tasks for plan in (*healthy(task), *ruined(task))]
