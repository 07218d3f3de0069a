"""Judges a precision: compares a run with its FP32 baseline of the same seed and data.

The difference is the change of the metric in per cent of the baseline's, without its sign. A better metric is never a
FAIL. Runs that cannot be compared are UNDECIDED, with the reason, because a wrong PASS costs more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Precision
from rung.jobs.spec.job_spec import JobSpec, Success
from rung.recovery.decide.treatments import TREATMENTS, Budget
from rung.recovery.validation.run_figures import Figures

# Two runs with this many different losses and no difference between them did the same computation.
MIN_SAME_LOSSES = 20


class Verdict(StrEnum):
    PASS = "PASS"  # noqa: S105
    MARGINAL = "MARGINAL"
    FAIL = "FAIL"
    UNDECIDED = "UNDECIDED"


@dataclass(frozen=True)
class Rule:
    """The metric to compare, with bounds in per cent."""

    metric: str
    # "lower", "higher", or None when the job file does not define which is better.
    better: str | None = None
    pass_below: float = 1.0
    marginal_below: float = 2.0
    success: Success | None = None


@dataclass(frozen=True)
class Run:
    """One of the two runs, after its end."""

    job_id: str
    # The requested precision, or "" for the script's own.
    precision: str
    # It ended by itself, whatever its metric.
    finished: bool
    ended: str
    fault: Fault | None = None
    figures: Figures = field(default_factory=Figures)
    host: str = ""
    gpu: str = ""
    # The step that it reported to resume from; it must be 0, which is from scratch.
    began: int = 0
    seconds: float | None = None

    @property
    def name(self) -> str:
        return str(self.figures.progress.effective.get("precision") or self.precision or "the script's own precision")

    def value(self, metric: str) -> float | None:
        return self.figures.progress.values.get(metric)


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict
    because: str
    # In per cent of the baseline's metric; positive when the candidate's is higher.
    difference: float | None = None


def rule_of(spec: JobSpec, metric: str | None = None) -> Rule | None:
    """Return the rule for a job; None when no metric is named."""
    name = metric or spec.validated_metric
    if name is None:
        return None
    success = spec.success if spec.success and spec.success.metric == name else None
    better = spec.validation.better
    if better is None and success is not None:
        better = "lower" if success.below is not None else "higher"
    return Rule(name, better, spec.validation.pass_below, spec.validation.marginal_below, success)


def judge(baseline: Run, candidate: Run | None, rule: Rule) -> Judgement:
    """Return the verdict on the candidate, which is None when it did not run for lack of a baseline."""
    problem = _baseline_problem(baseline, rule)
    if problem:
        return Judgement(Verdict.UNDECIDED, problem)
    if candidate is None:
        return Judgement(Verdict.UNDECIDED, "the run as asked was never made")
    found = _unfinished(candidate, rule) or _not_comparable(baseline, candidate)
    return found or _compare(baseline, candidate, rule)


def _baseline_problem(run: Run, rule: Rule) -> str | None:
    """Return why the baseline is not valid; None when it is."""
    effective = run.figures.progress.effective.get("precision")
    if not run.finished:
        if run.fault is not None and not _is_infra_fault(run.fault):
            return f"the FP32 baseline fails too ({_how_it_ended(run)}): FP16 is not the cause; see its history"
        return f"the FP32 baseline did not come to its end ({_how_it_ended(run)})"
    if effective not in (None, Precision.FP32):
        return f"the baseline was asked for fp32 and computed in {effective}: the knob does not reach the script"
    value = run.value(rule.metric)
    if value is None:
        return f"the FP32 baseline never reported {rule.metric}{_reported_names(run)}"
    return None if math.isfinite(value) else f"the FP32 baseline's {rule.metric} is {value}"


def _reported_names(run: Run) -> str:
    names = [name for name, value in run.figures.progress.values.items() if math.isfinite(value)]
    return f"; it did report {', '.join(names[-8:])}" if names else ""


def _unfinished(run: Run, rule: Rule) -> Judgement | None:
    """Judge a candidate that did not finish or has no finite metric; None when it can be compared."""
    if not run.finished:
        if run.fault is None or _is_infra_fault(run.fault):
            return Judgement(Verdict.UNDECIDED, f"the run in {run.name} did not come to its end ({_how_it_ended(run)})")
        return Judgement(Verdict.FAIL, f"{run.name} ends with {_how_it_ended(run)}, FP32 does not")
    value = run.value(rule.metric)
    if value is None:
        return Judgement(Verdict.FAIL, f"{run.name} never reported {rule.metric}, FP32 did")
    if not math.isfinite(value):
        return Judgement(Verdict.FAIL, f"{rule.metric} is {value} in {run.name}, and finite in FP32")
    return None


def _is_infra_fault(fault: Fault) -> bool:
    return TREATMENTS[fault.kind].budget is Budget.INFRA or fault.kind is FaultKind.RULE_STOP


def _how_it_ended(run: Run) -> str:
    if run.fault is None:
        return run.ended
    where = f" at step {run.fault.step}" if run.fault.step is not None else ""
    return f"{run.fault.kind}{where}: {run.fault.evidence[:160]}"


def _not_comparable(baseline: Run, candidate: Run) -> Judgement | None:
    """Return UNDECIDED when two finished runs are not a valid comparison; None when they are."""
    if candidate.figures.progress.effective.get("precision") == Precision.FP32:
        why = "the run as asked computed in fp32 as well: there is no lower precision to validate"
        return Judgement(Verdict.UNDECIDED, why)
    begun = max(baseline.began, candidate.began)
    if begun:
        why = f"a run went on from step {begun} instead of beginning anew: the checkpoints of another lie in its way"
        return Judgement(Verdict.UNDECIDED, why)
    if _same_losses(baseline, candidate):
        why = "both runs show exactly the same losses: the precision does not reach the script"
        return Judgement(Verdict.UNDECIDED, why)
    return None


def _same_losses(one: Run, other: Run) -> bool:
    losses = [point.loss for point in one.figures.points]
    return len(set(losses)) >= MIN_SAME_LOSSES and losses == [point.loss for point in other.figures.points]


def _compare(baseline: Run, candidate: Run, rule: Rule) -> Judgement:
    fp32, value = baseline.value(rule.metric), candidate.value(rule.metric)
    assert fp32 is not None and value is not None, "both were looked at before"
    if fp32 == 0.0 and value != 0.0:
        why = f"{rule.metric} is 0 in FP32, so no percentage can be computed; print it with more digits"
        return Judgement(Verdict.UNDECIDED, why)
    signed = (value - fp32) / abs(fp32) * 100 if fp32 else 0.0
    apart = abs(signed)
    pair = f"{rule.metric} {value:.6g} in {candidate.name}, {fp32:.6g} in fp32: {apart:.2f} % apart"
    missed_bound = _missed_bound(rule.success, fp32, value)
    if missed_bound:
        return Judgement(Verdict.FAIL, f"{pair}, and success asks for {missed_bound}, which FP32 reaches", signed)
    if apart >= rule.marginal_below and not _is_better(signed, rule):
        return Judgement(Verdict.FAIL, f"{pair} (FAIL from {rule.marginal_below:g} % on)", signed)
    if apart >= rule.pass_below:
        better = "; for the better, yet more than precision alone should change" if _is_better(signed, rule) else ""
        return Judgement(Verdict.MARGINAL, f"{pair} (PASS below {rule.pass_below:g} %){better}", signed)
    bad = candidate.figures.bad_losses
    if bad and not baseline.figures.bad_losses:
        why = f"{pair}, but {bad} of its {candidate.figures.losses} losses were not finite"
        return Judgement(Verdict.MARGINAL, why, signed)
    return Judgement(Verdict.PASS, f"{pair} (PASS below {rule.pass_below:g} %)", signed)


def _is_better(signed: float, rule: Rule) -> bool:
    return (rule.better == "lower" and signed < 0) or (rule.better == "higher" and signed > 0)


def _missed_bound(success: Success | None, fp32: float, value: float) -> str | None:
    """Return the bound of success that FP32 meets and the candidate does not."""
    if success is None:
        return None
    if success.below is not None:
        return f"below {success.below:g}" if fp32 < success.below <= value else None
    assert success.above is not None, "a success has one bound"
    return f"above {success.above:g}" if fp32 > success.above >= value else None
