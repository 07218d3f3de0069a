"""Tests that a fault in one of several ranks is one fault, with the replay of the rank that has it."""

from __future__ import annotations

import pytest

from rung.jobs.model.fault import Fault, FaultKind
from rung.recovery.detect.detector import Detector
from rung.recovery.detect.several_ranks import is_over, outranks
from rung.recovery.logs.lines import Line

CAUSE = {"step": "20", "weights": "finite", "fp32": "finite", "where": "head", "rank": "1"}
RUINED = {"step": "21", "weights": "nonfinite", "inputs": "finite", "fp32": "unknown"}
WELL = {"step": "28", "weights": "finite", "inputs": "finite", "fp32": "finite", "grads": "finite"}
OWN = "rung| replay step=20 weights=finite inputs=finite fp32=finite where=head cure=fp32_modules:head rank=1"
FIRST_RANKS = "rung| replay step=21 weights=nonfinite inputs=finite fp32=unknown"


def detect(lines: list[str], *, ended: bool = False) -> tuple[Fault | None, list[Fault], Detector]:
    detector = Detector()
    listed = [fault for number, text in enumerate(lines, 1) for fault in detector.feed(Line(number, text))]
    return detector.first_fault(ended=ended), listed, detector


def steps(first: int, last: int) -> list[str]:
    return [f"rung| step step={step} loss={1 / step:.4f} lr=0.1" for step in range(first, last + 1)]


@pytest.mark.parametrize(
    ("one", "other", "more"),
    [
        (CAUSE, RUINED, True),
        (CAUSE, WELL, True),
        (RUINED, CAUSE, False),
        (CAUSE, {**RUINED, "step": "60"}, False),
        # The second rank may be ahead of the first; of the first rank the newest counts, as in a run without others.
        (CAUSE, {**RUINED, "rank": "1"}, True),
        ({**WELL, "where": "head"}, RUINED, False),
        ({}, CAUSE, False),
    ],
)
def test_the_rank_whose_own_step_went_wrong_shows_the_most(
    one: dict[str, str], other: dict[str, str], more: bool
) -> None:
    assert outranks(one, other) is more


def test_the_first_rank_gets_past_its_own_replay_at_once_and_past_that_of_another_a_little_later() -> None:
    assert is_over(RUINED, 21) and is_over(RUINED, None)
    assert not is_over(CAUSE, 20) and not is_over(CAUSE, 36) and is_over(CAUSE, 37)


def test_a_loss_that_is_bad_in_the_second_rank_is_one_fault_with_the_replay_of_that_rank() -> None:
    bad = [f"rung| step step={step} loss=nan lr=0.1" for step in range(21, 26)]
    # The first rank finishes its own step 20, which was well, after the replay of the other.
    # Then it may see what is left of the weights later than the other, too.
    late = "rung| replay step=22 weights=nonfinite inputs=finite fp32=unknown rank=1"
    fault, listed, _ = detect([*steps(1, 19), OWN, *steps(20, 20), FIRST_RANKS, late, *bad])
    assert fault is not None and fault.kind is FaultKind.NAN_LOSS and fault.step == 21
    assert fault.replay["rank"] == "1" and fault.replay["cure"] == "fp32_modules:head"
    assert listed == [fault]


def test_a_replay_of_another_rank_that_comes_late_still_replaces_one_that_shows_less() -> None:
    bad = [f"rung| step step={step} loss=nan lr=0.1" for step in range(21, 26)]
    fault, _, _ = detect([*steps(1, 20), FIRST_RANKS, *bad[:2], OWN, *bad[2:]])
    assert fault is not None and fault.replay["rank"] == "1"


def test_a_run_that_got_past_the_bad_step_of_another_rank_has_no_replay_any_more() -> None:
    bad = [f"rung| step step={step} loss=nan lr=0.1" for step in range(60, 66)]
    fault, _, _ = detect([*steps(1, 19), OWN, *steps(20, 59), *bad])
    assert fault is not None and fault.replay == {}


@pytest.mark.parametrize("rank", [0, 1])
def test_an_exception_in_one_rank_is_the_fault_whatever_the_others_say_about_their_partner(rank: int) -> None:
    other = 1 - rank
    own = [
        f"[rank{rank}]: Traceback (most recent call last):",
        f'[rank{rank}]:   File "/w/train.py", line 9, in <module>',
        f"[rank{rank}]:     scores.masked_fill_(mask, -1e9)",
        f"[rank{rank}]: RuntimeError: value cannot be converted to type at::Half without overflow",
    ]
    noise = [
        f"[rank{other}]: Traceback (most recent call last):",
        f'[rank{other}]:   File "/w/train.py", line 12, in <module>',
        f"[rank{other}]:     loss.backward()",
        f"[rank{other}]: RuntimeError: [/b/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1.",
    ]
    summary = [
        "W1 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 8 closing signal SIGTERM",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        f"  exitcode  : 1 (pid: 9)  rank      : {rank} (local_rank: {rank})",
        "  traceback : Signal 15 (SIGTERM) received by PID 8",
    ]
    losses = [f"[rank{each}]: step={step} loss={1 / step:.4f}" for step in range(1, 9) for each in (0, 1)]
    for lines in ([*losses, *own, *noise, *summary], [*losses, *noise, *own, *summary]):
        fault, listed, _ = detect(lines, ended=True)
        assert fault is not None and fault.kind is FaultKind.FP16_OVERFLOW and f"[rank{rank}]" in fault.evidence
        assert [each.kind for each in listed] == [FaultKind.FP16_OVERFLOW]


@pytest.mark.parametrize("prefix", ["[rank{}]: ", "[default{}]:", "rank {}: "])
def test_the_curve_is_that_of_the_lowest_rank_and_a_bad_loss_counts_in_every_rank(prefix: str) -> None:
    seen: list[tuple[int, float]] = []
    detector = Detector(on_numbers=lambda step, reading: reading.loss and seen.append((step, reading.loss)))
    # The second rank may be the first to print.
    lines = [f"{prefix.format(rank)}step={step} loss={rank + 0.5}" for step in range(1, 30) for rank in (1, 0)]
    for number, text in enumerate(lines, 1):
        detector.feed(Line(number, text))
    assert seen == [(1, 1.5), *((step, 0.5) for step in range(1, 30))]
    assert detector.first_fault(ended=True, clean_exit=True) is None
    for step in range(30, 36):
        detector.feed(Line(step + 100, f"{prefix.format(1)}step={step} loss=nan"))
    fault = detector.first_fault(ended=False)
    assert fault is not None and fault.kind is FaultKind.NAN_LOSS


RAISED = [
    "[rank1]: Traceback (most recent call last):",
    '[rank1]:   File "train.py", line 73, in <module>',
    "[rank1]:     shares = shares.masked_fill(shares > 2, -1e9)",
    "[rank1]: RuntimeError: value cannot be converted to type at::Half without overflow",
]
ECHO = [
    "[rank0]: Traceback (most recent call last):",
    '[rank0]:   File "train.py", line 78, in <module>',
    "[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:17566",
]


def printed(first: int, last: int, rank: int = 0) -> list[str]:
    return [f"[rank{rank}]: step={step} loss={1 / step:.4f}" for step in range(first, last + 1)]


def test_a_late_loss_of_the_first_rank_does_not_hide_the_exception_of_another() -> None:
    fault, _, _ = detect([*printed(1, 11), *RAISED, *printed(12, 12), *ECHO], ended=True)
    assert fault is not None and fault.kind is FaultKind.FP16_OVERFLOW
    # Rank 1 has caught it: the first one would not have come so far without it.
    fault, _, _ = detect([*printed(1, 11), *RAISED, *printed(12, 60)], ended=True)
    assert fault is None


def test_a_loss_of_the_first_rank_after_its_own_exception_shows_that_it_goes_on() -> None:
    raised = [line.replace("[rank1]", "[rank0]") for line in RAISED]
    fault, _, _ = detect([*printed(1, 11), *raised, *printed(12, 12)], ended=True)
    assert fault is None


UNKNOWN = [*RAISED[:3], "[rank1]: LabelError: a sample without a label"]


@pytest.mark.parametrize("before", [printed(1, 11), []], ids=["at a known step", "before any step"])
def test_a_late_loss_of_the_first_rank_does_not_hide_an_unknown_exception_of_another(before: list[str]) -> None:
    first = len(before) + 1
    fault, _, detector = detect([*before, *UNKNOWN, *printed(first, first), *ECHO], ended=True)
    assert fault is None and detector.tail[-1] == UNKNOWN[-1]
    # Rank 1 has caught it: the first one would not have come so far without it.
    fault, _, detector = detect([*before, *UNKNOWN, *printed(first, first + 40), *ECHO], ended=True)
    assert fault is not None and fault.kind is FaultKind.COMM_FAULT and detector.tail[-1] != UNKNOWN[-1]


def test_a_loss_of_the_first_rank_after_its_own_unknown_exception_shows_that_it_goes_on() -> None:
    own = [line.replace("[rank1]", "[rank0]") for line in UNKNOWN]
    fault, _, _ = detect([*printed(1, 11), *own, *printed(12, 12), *ECHO], ended=True)
    assert fault is not None and fault.kind is FaultKind.COMM_FAULT
