"""Tests properties of the detector for any log: it raises nothing, chunks change nothing, findings come in order."""

import io

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rung.jobs.model.fault import FaultKind
from rung.recovery.detect.detector import Detector
from rung.recovery.detect.log_tail import MAX_EVIDENCE
from rung.recovery.logs.lines import Line, LineSplitter
from rung.recovery.signatures.search import is_first_hand, search
from rung.runner.session.explain import explain
from tests.support.message_lines import BACKOFF_SAMPLES, CUT_SAMPLES, QUOTED, SAMPLES, SHOWN

# Without those that count only after the first steps: what they mean depends on the lines before them.
MESSAGES = [
    line
    for lines in SAMPLES.values()
    for line in lines
    if (match := search(text := f"RuntimeError: {line}", text.lower())) is None or not match.signature.after_steps
]
NUMBERS = [
    "rung| step step=1 loss=nan",
    "rung| step step=2 loss=2.0 grad_norm=nan scale=0.5 skipped=1",
    "step 2 loss 2.0",
    "loss: nan",
    "{'loss': 0.0, 'grad_norm': nan, 'epoch': 0.1}",
    "{'loss': 1.5, 'grad_norm': inf, 'epoch': 0.1}",
    "{'loss': 1.5, 'grad_norm': 0.4, 'epoch': 0.1}",
    "# output: loss: nan",
    "scale=0 step=3",
    "val_loss=inf",
    "OVERFLOW! Skipping step. Attempted loss scale: 1, reducing to 1",
    "KeyError: 'label'",
    '  File "x.py", line 3',
    "    indented",
    "Traceback (most recent call last):",
]
PREFIXES = ["", "", "[rank3]: ", "0: ", "[1,3]<stderr>:", "(pid=9, ip=10.0.0.3) ", "    ", "# ", "\x1b[31m"]
KNOWN = [*MESSAGES, *NUMBERS, *NUMBERS, *QUOTED, *SHOWN, *BACKOFF_SAMPLES.values(), *CUT_SAMPLES.values()]
lines = st.tuples(st.sampled_from(PREFIXES), st.sampled_from(KNOWN)).map(lambda parts: f"{''.join(parts)}\n".encode())
logs = st.lists(st.one_of(st.binary(max_size=30), lines, st.sampled_from([b"\n", b"\r", b"\r9/9 ["])), max_size=40).map(
    b"".join
)


def watch(data, size=None):
    detector, splitter = Detector(), LineSplitter()
    chunks = [data[at : at + size] for at in range(0, len(data), size)] if size else [data]
    found = []
    for chunk in chunks:
        for line in splitter.feed(chunk):
            found += detector.feed(line)
    for line in splitter.flush():
        found += detector.feed(line)
    return detector, found + detector.finish()


@given(logs, st.integers(1, 64))
@settings(max_examples=150)
def test_any_bytes_in_any_chunks_give_the_same_findings(data, size):
    whole, listed = watch(data)
    cut, found = watch(data, size)
    assert found == listed
    for ended, well in ((False, False), (True, False), (True, True)):
        assert cut.first_fault(ended=ended, clean_exit=well) == whole.first_fault(ended=ended, clean_exit=well)
    # The loss may be NaN, which is not equal to itself, so compare the text.
    assert repr(cut.progress) == repr(whole.progress)


@given(logs)
@settings(max_examples=150)
def test_a_fault_that_is_acted_on_is_still_the_fault_at_the_end(data):
    detector, _ = watch(data)
    acted_on = detector.first_fault(ended=False)
    assert acted_on is None or detector.first_fault(ended=True) == acted_on


# An empty line ends a traceback; the line after it is no source code.
@example(b'File " ", line 0\n\n    node7:4411:4502 [2] NCCL INFO transport/net_ib.cc:921 -> 6\n')
@given(logs)
@settings(max_examples=150)
def test_explain_lists_in_the_order_of_the_lines_and_marks_at_most_one_first_cause(data):
    rows = explain(io.BytesIO(data), lambda _: None).faults
    places = [row["line"] for row in rows]
    assert places == sorted(places)
    assert all(1 <= place <= data.count(b"\n") + 1 for place in places)
    marked = [row for row in rows if row["first_cause"]]
    detector, _ = watch(data)
    cause = detector.first_fault(ended=True)
    assert len(marked) == (1 if cause else 0)
    assert not cause or (marked[0]["fault"], marked[0]["line"]) == (cause.kind, cause.line)


@given(st.lists(st.sampled_from(MESSAGES), min_size=1, max_size=12))
def test_the_first_of_several_causes_is_acted_on(messages):
    detector, _ = watch("".join(f"RuntimeError: {text}\n" for text in messages).encode())
    now = detector.first_fault(ended=False)
    first = next((n for n, text in enumerate(messages, 1) if _acts_now(f"RuntimeError: {text}")), None)
    if now is None:
        assert first is None
    else:
        assert now.line <= first
        assert all(not _acts_now(f"RuntimeError: {text}") for text in messages[: now.line - 1])


def _acts_now(text):
    return watch(f"{text}\n".encode())[0].first_fault(ended=False) is not None


@given(st.text(max_size=400))
def test_any_line_is_read_without_an_exception(text):
    for fault in Detector().feed(Line(1, text)):
        assert fault.line == 1 and len(fault.evidence) <= MAX_EVIDENCE
        assert FaultKind(fault.kind) is fault.kind


FILLERS = ["a ", "nan ", "loss ", "[", "(", "'", "# ", "1: ", "raise X('", "\u2502", "CUDA ", "NCCL WARN ", "9"]


@given(st.sampled_from(KNOWN), st.sampled_from(FILLERS))
@settings(max_examples=30, deadline=None)
def test_a_line_of_any_length_is_read_in_short_time(text, filler):
    """A pattern that backtracks over the line would take very long."""
    line = (filler * 65536)[:60_000] + text
    found = search(line, line.lower())
    assert found is None or found.start < len(line)
    assert is_first_hand(line) in (True, False)
