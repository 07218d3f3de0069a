"""Tests that many lines are read as columns exactly as each of them is read, or not at all."""

from __future__ import annotations

import pytest

from rung.recovery.logs.line_reader import read
from rung.recovery.logs.reading import Readings
from rung.recovery.shapes.plan import printed
from rung.recovery.shapes.recall import KnownLines, ShapeStore

RECORD = "rung| step step={n} loss={loss:.6g} kd_loss=0.5 lr=0.0001 grad_norm={loss:.5g} scale=1024.0 skipped=0"
KINDS = (
    "step {n} loss {loss:.4f} lr 1e-4",
    RECORD,
    "12:00:01 epoch 3 iter {n}: loss {loss:.6g}, time {loss:.2f}ms, mfu 3.10%",
    "{{'loss': {loss:.4f}, 'grad_norm': {loss:.3f}, 'learning_rate': 0.0, 'step': {n}}}",
)


def taught(texts: list[str]) -> Readings | None:
    """Return what is read of lines at once, after each was read alone."""
    known = KnownLines(ShapeStore())
    for text in [*texts, *texts, *texts]:
        known.read(text)
    assert set(known.templates("\n".join(texts).encode())) != {""}
    return known.read_alike(texts)


def lines(kind: str, count: int = 40, first: int = 995) -> list[str]:
    return [kind.format(n=n, loss=2 + n % 17 / 13) for n in range(first, first + count)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_columns_are_those_of_the_lines(kind: str) -> None:
    texts = lines(kind)
    found, wanted = taught(texts), [read(text) for text in texts]
    assert found is not None
    assert [printed(found.read(row)) for row in found.rows] == [*map(printed, wanted)]
    assert [*found.steps] == [each and each.step for each in wanted]
    for column, name in ((found.losses, "loss"), (found.lrs, "lr"), (found.norms, "grad_norm")):
        assert [*(column or [None] * len(texts))] == [getattr(each, name) for each in wanted]
    assert (printed(found.first), printed(found.last)) == (printed(wanted[0]), printed(wanted[-1]))
    part = found.up_to(7)
    assert printed(part.last) == printed(wanted[6]) and len(part.steps) == len(part.losses) == len(part.rows) == 7


def test_the_terms_of_a_loss_are_columns_too() -> None:
    found = taught([f"rung| step step={n} loss=2.5 kd_loss=0.{n} lr=0.1" for n in range(11, 20)])
    assert found is not None and [[*term] for term in found.terms] == [[n / 100 for n in range(11, 20)]]


@pytest.mark.parametrize(
    "odd",
    [
        "step 990 loss 2.0000 lr 1e-4",  # it goes back
        "step 1035 loss 0.0000 lr 1e-4",  # a number is 0
    ],
)
def test_lines_of_which_one_is_odd_are_not_read_at_once(odd: str) -> None:
    assert taught([*lines(KINDS[0]), odd]) is None


def test_a_scale_and_an_epoch_that_change_are_not_read_at_once() -> None:
    assert taught([*lines(RECORD), *lines(RECORD.replace("1024.0", "2048.0"), first=1035)]) is None
    assert taught([*lines(KINDS[2]), *lines(KINDS[2].replace("epoch 3", "epoch 4"), first=1035)]) is None


def test_a_line_that_is_not_known_is_not_read_at_once() -> None:
    known = KnownLines(ShapeStore())
    assert known.templates(b"step 1 loss 2.0\nstep 2 loss 1.0") == ["", ""]
    assert known.read_alike(["step 1 loss 2.0"]) is None
