"""Tests that the fast scan of a log finds what the detector finds line by line, with chunks of any size."""

import random
import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rung.jobs.model.fault import FaultKind
from rung.jobs.model.terminal_text import clean
from rung.jobs.spec.recovery_spec import Rule
from rung.recovery.detect.detector import Detector
from rung.recovery.detect.prefilter import Prefilter, _shortest
from rung.recovery.detect.scan import HEAD, Scan
from rung.recovery.logs.lines import CONTROLS, HIDDEN_IN_UTF8, MAX_RAW, MAX_TEXT, LineSplitter, bare, count_lines

CORPUS = Path(__file__).parents[2] / "corpus"
LOGS = sorted(CORPUS.glob("*.log"))
WORDS = [
    b"step 1 loss 2.5",
    b"step 2 loss nan",
    b"loss: nan",
    b"{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 1.0}",
    b"RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB",
    b"RuntimeError: value cannot be converted to type c10::Half without overflow",
    b'  File "train.py", line 12, in <module>',
    b"    raise ValueError('loss is nan')",
    b"OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 2, reducing to 1",
    b"ValueError: Attempting to unscale FP16 gradients.",
    b"\x1b[31mRuntimeError: CUDA \x1b[1mout of memory\x1b[0m",
    b"out\x00 of mem\xc2\xadory: CUDA out of memory",
    b"3/9 [00:01<00:09, 1.1it/s, loss=2.5]",
    b"Epoch 1/2 \xe2\x94\x81\xe2\x94\x81 3/9 0:00:00 \xe2\x80\xa2 0:00:01 1.1it/s train_loss:",
    b"                                                  0.25",
    b"\tstep 5\tloss 1.5",
    b"",
    b"\xff\xfe broken",
]


def cut(raw, sizes):
    """Yield the bytes in pieces of these sizes, repeated until the end."""
    at = index = 0
    while at < len(raw):
        size = sizes[index % len(sizes)]
        yield raw[at : at + size]
        at, index = at + size, index + 1


def fast(raw, sizes=(1 << 16,), rules=(), *, quick=False):
    scan = Scan(Detector(rules), quick=quick)
    found = [fault for piece in cut(raw, sizes) for fault in scan.feed(piece)]
    return scan.detector, found + scan.finish()


def slow(raw, rules=()):
    detector, splitter = Detector(rules), LineSplitter()
    rows = [line for line in [*splitter.feed(raw), *splitter.flush()] if line.text]
    return detector, [fault for line in rows for fault in detector.feed(line)] + detector.finish()


def all_of(pair):
    detector, found = pair
    return (
        found,
        str(detector.progress),
        detector.tail,
        detector.first_fault(ended=False),
        detector.first_fault(ended=True),
    )


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_whole_log_gives_the_same_findings_as_line_by_line(path):
    raw = path.read_bytes()
    assert all_of(fast(raw)) == all_of(slow(raw))


@pytest.mark.parametrize("sizes", [(1,), (7, 64), (4096,)], ids=str)
@pytest.mark.parametrize("path", LOGS[::4], ids=lambda path: path.stem)
def test_the_size_of_the_chunks_changes_no_finding(path, sizes):
    raw = path.read_bytes()[:40_000]
    assert all_of(fast(raw, sizes)) == all_of(fast(raw))


@example(
    rows=[
        (b'  File "train.py", line 12, in <module>', b"\n"),
        (b"    raise ValueError('loss is nan')", b"\n"),
        (b"step 1 loss 2.5", b"\n"),
        (b"{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 1.0}", b"\n"),
    ],
    sizes=[1],
)
@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from([b"\n", b"\r", b"\r\n"])), max_size=25),
    st.lists(st.integers(1, 50), min_size=1, max_size=5),
)
def test_any_mix_of_lines_gives_the_same_findings_as_line_by_line(rows, sizes):
    raw = b"".join(word + end for word, end in rows)
    assert all_of(fast(raw, sizes)) == all_of(slow(raw))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400), st.lists(st.integers(1, 50), min_size=1, max_size=5))
def test_any_bytes_give_the_same_findings_as_line_by_line(raw, sizes):
    assert all_of(fast(raw, sizes)) == all_of(slow(raw))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=100))
def test_bare_removes_nothing_that_clean_keeps(raw):
    raw = raw.replace(b"\n", b"").replace(b"\r", b"")
    assert clean(bare(raw).decode("utf-8", "replace")) == clean(raw.decode("utf-8", "replace"))


def test_a_rule_of_the_job_file_is_tried_on_every_line():
    rules = (Rule(name="ours", pattern="the roof is on fire", fault=FaultKind.CUDA_FAULT),)
    _, found = fast(b"step 1 loss 2.5\nstep 2: the roof is on fire\nstep 3 loss 2.5\n", rules=rules)
    assert [(fault.kind, fault.line) for fault in found] == [(FaultKind.CUDA_FAULT, 2)]


@pytest.mark.parametrize("sizes", [(1 << 20,), (1000,)], ids=str)
def test_a_line_of_megabytes_is_cut_and_the_next_line_is_read(sizes):
    raw = b"x" * (3 * MAX_RAW) + b"CUDA out of memory\nRuntimeError: CUDA out of memory\n"
    _, found = fast(raw, sizes)
    assert [(fault.kind, fault.line) for fault in found] == [(FaultKind.OOM, 2)]


def test_a_message_with_escape_codes_is_found_at_its_line():
    _, found = fast(b"fine\n\x1b[1;31mRuntimeError\x1b[0m: \x1b[4mCUDA\x1b[0m out\x08 of memory\n")
    assert [(fault.kind, fault.line) for fault in found] == [(FaultKind.OOM, 2)]


# The quick scan


# So many lines that a quick scan skips most of them.
BEFORE = b"reading the data\n" * (HEAD + 100)
# A quick scan skips the lines that show these faults: a header in the middle of a log, or the history of a scale.
NOT_QUICK = {
    *(
        "fastai_table_with_blanks",
        "lone_scale_falls",
        "rmse_is_all_that_is_printed",
        "plain_csv_collapse",
        "plain_csv_drift",
        "plain_jsonl_thrash",
        "plain_logfmt_nan",
        "plain_parts_nan",
        "skorch_nan",
    ),
}


@pytest.mark.parametrize("path", [path for path in LOGS if path.stem not in NOT_QUICK], ids=lambda path: path.stem)
def test_a_quick_scan_finds_the_fault_that_ended_a_run(path):
    raw = BEFORE + path.read_bytes()
    full, quick = fast(raw)[0].first_fault(ended=True), fast(raw, quick=True)[0].first_fault(ended=True)
    if full is not None and full.kind is not FaultKind.DIVERGENCE:
        assert quick is not None and (quick.kind, quick.line) == (full.kind, full.line)


@pytest.mark.parametrize("name", sorted(NOT_QUICK))
def test_a_quick_scan_finds_every_fault_near_the_head_of_a_log(name):
    raw = (CORPUS / f"{name}.log").read_bytes()
    assert fast(raw, quick=True)[0].first_fault(ended=True) == fast(raw)[0].first_fault(ended=True)


def test_a_quick_scan_of_a_healthy_log_finds_nothing():
    healthy = [path for path in LOGS if fast(path.read_bytes())[1] == []]
    assert len(healthy) > 5
    assert [path.stem for path in healthy if fast(BEFORE + path.read_bytes(), quick=True)[1]] == []


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from([b"\n", b"\r"])), max_size=25),
    st.lists(st.integers(1, 50), min_size=1, max_size=5),
)
def test_the_size_of_the_chunks_changes_no_finding_of_a_quick_scan(rows, sizes):
    raw = b"".join(word + end for word, end in rows)
    assert fast(raw, sizes, quick=True)[1] == fast(raw, (1 << 20,), quick=True)[1]


def test_line_numbers_are_right_across_many_chunks():
    dice = random.Random(4)
    rows = [b"step %d loss 2.5" % index for index in range(20_000)]
    wanted = sorted(dice.sample(range(20_000), 3))
    for index in wanted:
        rows[index] = b"RuntimeError: CUDA out of memory"
    raw = b"\n".join(rows) + b"\n"
    for quick in (False, True):
        assert wanted[0] + 1 == fast(raw, (5000,), quick=quick)[1][0].line


def test_the_first_fault_that_decided_stays_however_much_is_read_at_a_time():
    """A run that was quick enough to get past its blow-up was stopped for another fault, or for none."""
    losses = [2.0] * 40 + [9e4 * 0.97**step for step in range(400)]
    text = "".join(f"step {step} loss {loss:.6g}\n" for step, loss in enumerate(losses, 1)).encode()
    decided = []
    for size in (64, 1000, len(text)):
        scan = Scan(Detector(), latched={FaultKind.DIVERGENCE})
        for at in range(0, len(text), size):
            scan.feed(text[at : at + size])
        decided.append(scan.decided)
    assert decided[0] is not None and decided[0].step is not None and decided[0].step < 60
    assert decided == [decided[0]] * 3
    assert scan.detector.first_fault(ended=False) is None


ODD_BYTES = re.compile(b"[%s]|%s" % (re.escape(CONTROLS), b"|".join(map(re.escape, HIDDEN_IN_UTF8))))
# What may stand in a block beside odd bytes: their first bytes alone, and characters that begin with the same ones.
PLAIN = [
    b"step 1 loss 2.5\n",
    b"\r",
    "é█中”".encode(),
    b"\xe2\x80",
    b"\xc2",
    b"\x80",
    b"\xe3\x80",
    b"\xf3\xa0\x80",
    b"\xff",
]
ODD = [*map(chr, CONTROLS), *"\x85\xa0\xad\u0600\u200b\u2028\u2060\u3000\ufeff\u08e2", "\U000e0001", "\U00013430"]


def test_the_bytes_that_need_cleaning_are_the_same_by_either_search():
    prefilter = Prefilter(values=False)
    for code in range(256):
        for block in (bytes((65, code, 66)), bytes((65, code, 66)) + "é█".encode(), "é█".encode() + bytes((code,))):
            assert prefilter.needs_cleaning(block) is bool(ODD_BYTES.search(block)), code


def test_each_hidden_character_needs_cleaning_and_no_other():
    prefilter = Prefilter(values=False)
    signs = [chr(code) for code in (*range(0xD800), *range(0xE000, 0x110000)) if chr(code) not in "\r\n"]
    removed = {sign for sign in signs if not sign.isprintable() and clean(f"a{sign}b") != f"a{sign}b"}
    kept = "".join(sign for sign in signs if sign not in removed).encode()
    assert len(removed) > 250 and not prefilter.needs_cleaning(kept)
    for sign in removed:
        for text in (f"a{sign}b\n", f"é█ a{sign}b\n"):
            assert prefilter.needs_cleaning(text.encode()), hex(ord(sign))


@given(pieces=st.lists(st.sampled_from(PLAIN) | st.sampled_from([sign.encode() for sign in ODD]), max_size=12))
def test_odd_bytes_are_found_in_any_block(pieces):
    block = b"".join(pieces)
    assert Prefilter(values=False).needs_cleaning(block) is bool(ODD_BYTES.search(block))


@given(st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"x", b"loss 1\n"]), max_size=12))
def test_lines_are_counted_by_their_ends(pieces):
    block = b"".join(pieces)
    assert count_lines(block) == block.count(b"\n")


@given(st.lists(st.text("abc", min_size=2, max_size=5), unique=True, max_size=12))
def test_the_shortest_words_are_those_without_another_one_in_them(words):
    assert _shortest(words) == [word for word in words if not any(other in word for other in words if other != word)]


@pytest.mark.parametrize("width", range(12))
def test_the_number_of_nan_iterations_of_megatron_is_a_value_that_is_not_finite_unless_it_is_zero(width):
    prefilter = Prefilter(values=True)
    for digit in range(10):
        line = b" | number of nan iterations:" + b" " * width + b"%d |\n" % digit
        assert bool(prefilter.find_keywords(line)) is (digit > 0 and width < 9)


@pytest.mark.parametrize("sign", ["x", "\u00e9"])
def test_only_the_beginning_of_a_very_long_line_is_read(sign):
    message = b"RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB\n"
    for size in (MAX_TEXT - len(message), MAX_TEXT + 1):
        raw = b"step 1 loss 2.5\n" + (sign * size).encode() + b" " + message
        assert all_of(fast(raw)) == all_of(slow(raw))
        assert bool(fast(raw)[1]) is (size < MAX_TEXT)
