"""Tests that a state comes back from its text as it was, that windows of numbers are read as a whole, and no other."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import pytest

from rung.jobs.model.fault import FaultKind
from rung.recovery.series.point import Extremes
from rung.runner.log_reading import state_codec
from rung.runner.log_reading.state_codec import StateError, decode, encode

ROWS = [(step, step / 7, None) for step in range(1000)]


@pytest.mark.parametrize(
    "value",
    [
        (),
        [],
        deque(maxlen=5),
        [1, 2.5, "x", None, True, -math.inf],
        deque(ROWS, maxlen=2000),
        [(), (1,), (1, "two")],
        ["tuple", "rows", ["x"]],
        [(1, (2, 3)), (4, 5)],
        [(1, 2), [3, 4]],
        [(1, FaultKind.NAN_LOSS)],
        deque([Extremes(1, 2.0, 3, 4.0)]),
        ({"a": (1, 2)}, frozenset({"b"}), b"\x00\xff"),
    ],
)
def test_a_state_comes_back_as_it_was(value: Any) -> None:
    found = decode(encode(value, {}), {})
    assert repr(found) == repr(value) and type(found) is type(value)


def test_what_two_share_is_shared_again_and_what_is_outside_stays_there() -> None:
    shared, rules = [(1, 2)], ("rule",)
    first, second, outside = decode(encode((shared, shared, rules), {"rules": rules}), {"rules": rules})
    assert first is second and outside is rules


def test_pairs_of_numbers_are_read_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    text, count, read = encode((deque(ROWS), [0.5] * 1000), {}), list[object](), state_codec._Decoder.read
    monkeypatch.setattr(state_codec._Decoder, "read", lambda self, value: (count.append(value), read(self, value))[1])
    decode(text, {})
    assert len(count) == 3, "one for each sequence"


@pytest.mark.parametrize(
    "text",
    [
        '["tuple","rows",[1,[2]]]',
        '["tuple","rows",{"a":1}]',
        '["tuple","rows","ab"]',
        '["list","values",["same",0]]',
        '["list","values",{}]',
        '["list","other",1]',
        '["list",1,2]',
        '["list"]',
        '["deque",3]',
    ],
)
def test_a_text_that_is_no_state_is_refused(text: str) -> None:
    with pytest.raises(StateError):
        decode(text, {})
