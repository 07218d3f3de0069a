"""Tests that a fault names the source line that a traceback shows above its message."""

from __future__ import annotations

import pytest

from rung.jobs.model.fault import FaultKind
from rung.recovery.detect.detector import Detector
from rung.recovery.logs.lines import Line

MESSAGE = "RuntimeError: value cannot be converted to type c10::Half without overflow"
TRACE = """Traceback (most recent call last):
  File "/w/train.py", line 88, in <module>
    main()
  File "/w/model.py", line 31, in forward
    scores = scores.masked_fill(mask, -1e9)
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
"""
TORCH = """  File "/v/lib/python3.11/site-packages/torch/nn/functional.py", line 7, in softmax
    ret = input.softmax(dim)
"""
OURS = """  File "/r/jobs/inside/rung_inside/patching/patch.py", line 73, in wrapped
    result = original(*args, **kwargs)
"""


def source(text: str) -> str:
    detector = Detector()
    for number, line in enumerate(text.splitlines(), 1):
        detector.feed(Line(number, line))
    fault = detector.first_fault(ended=True)
    assert fault is not None and fault.kind is FaultKind.FP16_OVERFLOW
    return fault.source


@pytest.mark.parametrize(
    "text",
    [
        TRACE + MESSAGE,
        TRACE + TORCH + MESSAGE,
        TRACE + OURS + TORCH + MESSAGE,
        "".join(f"[rank0]: {line}\n" for line in (TRACE + MESSAGE).splitlines()),
        TRACE.replace("scores = scores.masked_fill(mask, -1e9)", "raise ValueError(1)")
        + "ValueError: 1\n\nDuring handling of the above exception, another exception occurred:\n\n"
        + TRACE
        + MESSAGE,
    ],
)
def test_the_source_is_the_innermost_line_outside_torch_and_rung(text: str) -> None:
    assert source(text) == "model.py:31: scores = scores.masked_fill(mask, -1e9)"


@pytest.mark.parametrize(
    "text",
    [
        MESSAGE,
        TRACE + "KeyError: 'x'\nstep 3 loss 2.5\n" + MESSAGE,
        'Traceback (most recent call last):\n  File "/w/a.py", line 1, in <module>\n' + MESSAGE,
    ],
)
def test_a_message_without_its_own_traceback_has_no_source(text: str) -> None:
    assert source(text) == ""


def test_a_long_source_line_is_cut() -> None:
    assert len(source(TRACE.replace("mask, -1e9", "x" * 5000) + MESSAGE)) == 300
