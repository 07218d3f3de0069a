"""Tests properties of every decision: it ends, repeats nothing without a reason, and resumes before the fault."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rung.jobs.model.fault import FaultKind
from rung.jobs.model.gpu import Gpu
from rung.jobs.model.knobs import RungName
from rung.recovery.decide.checkpoint_choice import HEALTHY
from rung.recovery.decide.decide import Relaunch, Stop, decide
from rung.recovery.decide.incident import incident_after
from rung.recovery.decide.resume_limit import resume_limit
from rung.recovery.decide.treatments import TREATMENTS, Budget
from tests.support.jobs_in_trouble import a_checkpoint, a_fault, a_job, an_attempt, carried_out

LADDER_FAULTS = [kind for kind in FaultKind if TREATMENTS[kind].budget is Budget.LADDER]

# Only a few steps, so that faults and checkpoints often have the same one.
steps = st.sampled_from([0, 1, 5, 9, 10, 11, 20, 60, 300, 9_999, 10_000, 20_000])

faults = st.builds(
    a_fault,
    st.sampled_from(list(FaultKind)),
    st.one_of(st.none(), steps),
    onset=st.one_of(st.none(), steps),
    shape=st.sampled_from([None, "spike", "drift"]),
    source=st.sampled_from(["", "m.py:3: s.masked_fill(mask, -1e9)", "m.py:3: s.fill_(torch.finfo(x.dtype).min)"]),
    replay=st.one_of(
        st.just({}),
        st.fixed_dictionaries(
            {},
            optional={
                name: st.sampled_from(["finite", "nonfinite", "failed", "unknown", "rubbish"])
                for name in ("weights", "inputs", "fp32", "grads", "where")
            },
        ),
    ),
)
checkpoints = st.lists(
    st.builds(
        a_checkpoint,
        steps,
        st.sampled_from([HEALTHY, HEALTHY, "poisoned", "truncated", None]),
        st.floats(0, 2000),
    ),
    max_size=6,
)
ladders = st.lists(st.sampled_from([name.value for name in RungName]), unique=True)
took = st.booleans()
gpus = st.sampled_from([None, Gpu("P100", (6, 0)), Gpu("A100", (8, 0))])


def play(ladder, moves, gpu, max_attempts=8, infra_retries=3):
    """Decide after each of these faults; yield each decision with its arguments."""
    recovery = {"ladder": ladder, "max_attempts": max_attempts, "infra_retries": infra_retries}
    job = a_job(knobs={"batch": 64}, recovery=recovery)
    attempts = []
    decision = None
    for fault, found, took_effect in moves:
        number = len(attempts) + 1
        if decision is None:
            attempts.append(an_attempt(number, job.knobs, fault))
        else:
            effective = None if took_effect else {"lr": 123.0, "clip": 123.0}
            attempts.append(carried_out(number, decision, fault, effective))
        decision = decide(job, attempts, found, gpu)
        yield job, tuple(attempts), found, decision
        if isinstance(decision, Stop):
            return


moves = st.lists(st.tuples(faults, checkpoints, took), min_size=13, max_size=13)


@settings(max_examples=100, deadline=None)
@given(ladders, moves, gpus, st.integers(1, 8), st.integers(0, 4))
def test_deciding_always_ends_within_its_budgets(ladder, course, gpu, max_attempts, infra_retries):
    *_, (_, attempts, _, decision) = play(ladder, course, gpu, max_attempts, infra_retries)
    assert isinstance(decision, Stop)
    infra = sum(TREATMENTS[a.fault.kind].budget is Budget.INFRA for a in attempts)
    assert infra <= infra_retries + 1
    assert len(attempts) - infra <= max_attempts
    assert "What to do:" in decision.diagnosis


@settings(max_examples=100, deadline=None)
@given(ladders, moves, gpus)
def test_a_decision_never_resumes_at_or_after_the_fault_or_from_a_bad_checkpoint(ladder, course, gpu):
    for job, attempts, found, decision in play(ladder, course, gpu):
        if isinstance(decision, Relaunch) and decision.checkpoint is not None:
            assert decision.checkpoint in found and decision.checkpoint.verdict == HEALTHY
            fault = attempts[-1].fault
            if TREATMENTS[fault.kind].budget is Budget.LADDER:
                limit = resume_limit(attempts, job.knobs)
                assert limit is None or decision.checkpoint.step < limit
                if fault.began is not None and fault.kind is not FaultKind.NOT_LEARNING:
                    assert decision.checkpoint.step < fault.began


@settings(max_examples=100, deadline=None)
@given(ladders, moves, gpus)
def test_a_decision_never_repeats_an_attempt_without_a_reason(ladder, course, gpu):
    assert_nothing_is_repeated(ladder, course, gpu)


def test_not_learning_at_a_later_step_does_not_try_rejected_rungs_again():
    kinds = [FaultKind.NOT_LEARNING, *[FaultKind.NAN_LOSS] * 3, FaultKind.CUDA_FAULT, FaultKind.NOT_LEARNING]
    course = [(a_fault(kind, None), [], False) for kind in kinds + [FaultKind.NAN_LOSS] * 7]
    course[5] = (a_fault(FaultKind.NOT_LEARNING, 9), [], False)
    assert_nothing_is_repeated(["raise_clip", "increase_growth_interval", "native_fp16", "lower_lr"], course, None)


def assert_nothing_is_repeated(ladder, course, gpu):
    for job, attempts, _, decision in play(ladder, course, gpu):
        if not isinstance(decision, Relaunch):
            continue
        if decision.rung is None:
            assert TREATMENTS[attempts[-1].fault.kind].budget in (Budget.INFRA, Budget.ONCE)
            continue
        # These knobs have not been tried since the run last made progress.
        since = incident_after(attempts, job.knobs).root_attempt
        assert decision.knobs not in [attempt.asked for attempt in attempts if attempt.number >= since]


@settings(max_examples=100, deadline=None)
@given(ladders, moves, gpus)
def test_every_decision_is_explained(ladder, course, gpu):
    for _, _, _, decision in play(ladder, course, gpu):
        if isinstance(decision, Relaunch):
            assert decision.because and "\n" not in decision.because
            assert all(reason for _, reason in (*decision.skipped, *decision.undone))


@given(st.sampled_from(LADDER_FAULTS), st.integers(0, 5000))
def test_deciding_is_pure(kind, step):
    job = a_job()
    attempts = [an_attempt(1, job.knobs, a_fault(kind, step))]
    assert decide(job, attempts, [], None) == decide(job, attempts, [], None)
