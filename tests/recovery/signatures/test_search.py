"""Tests the signatures: which messages show a fault, which only quote one, and which only contain its words."""

from re._constants import BRANCH, MAX_REPEAT, MAXREPEAT, MIN_REPEAT, SUBPATTERN
from re._parser import parse

import pytest

from rung.recovery.monitors.loss_scale import read_backoff
from rung.recovery.signatures import ANCHORS, BACKOFFS, GUARDS, SIGNATURES, Role
from rung.recovery.signatures.quoted_text import bare
from rung.recovery.signatures.search import (
    SHORT_LINE,
    anchors_in,
    is_first_hand,
    is_raised,
    is_teardown,
    search,
    search_frame,
)
from tests.support.message_lines import BACKOFF_SAMPLES, CUT_SAMPLES, QUOTED, SAMPLES, SHOWN

ROWS = {row.name: row for row in (*SIGNATURES, *BACKOFFS)}
LINES = [(name, text) for name, texts in SAMPLES.items() for text in texts]


def find(text):
    return search(text, text.lower())


@pytest.mark.parametrize(("name", "text"), LINES)
def test_a_message_matches_its_row(name, text):
    match = find(text)
    assert match is not None and match.signature.name == name
    assert not match.quoted


@pytest.mark.parametrize(("name", "text"), LINES)
def test_a_message_matches_no_row_of_another_fault_before_its_own(name, text):
    others = {row.fault for row in SIGNATURES if row.role is not Role.CUT and row.pattern.search(text)}
    first = next(row for row in SIGNATURES if row.role is not Role.CUT and row.pattern.search(text))
    assert first.fault is ROWS[name].fault, others


def test_every_row_has_a_sample_line_and_a_unique_name():
    assert len(ROWS) == len(SIGNATURES) + len(BACKOFFS)
    assert {*SAMPLES, *BACKOFF_SAMPLES, *CUT_SAMPLES} == set(ROWS)


@pytest.mark.parametrize(("name", "text"), BACKOFF_SAMPLES.items())
def test_a_back_off_is_read_and_is_no_fault(name, text):
    assert read_backoff(text, text.lower()) is not None
    assert [row.name for row in BACKOFFS if row.pattern.search(text)] == [name]
    assert find(text) is None


@pytest.mark.parametrize(("name", "text"), CUT_SAMPLES.items())
def test_the_frame_of_a_cut_traceback_is_recognized(name, text):
    assert search_frame(text).name == name
    assert search_frame(text.replace("_unscale_grads_", "step")) is None


@pytest.mark.parametrize("text", QUOTED)
def test_a_quoted_message_is_recognized_as_quoted(text):
    match = find(text)
    assert match is not None and match.quoted and not match.raised


@pytest.mark.parametrize("text", SHOWN)
def test_the_words_of_a_message_in_other_text_are_no_fault(text):
    assert find(text) is None


def test_anchors_are_long_and_absent_from_healthy_lines():
    healthy = "\n".join(SHOWN[-8:]).lower()
    for anchor in ANCHORS:
        assert anchor == anchor.lower() and len(anchor.encode()) >= 6, anchor
        assert anchor not in healthy, anchor


def unbounded(parts, inside=False):
    """Yield for each unbounded repetition in a pattern whether it is inside another one."""
    for operation, value in parts:
        if operation in (MAX_REPEAT, MIN_REPEAT):
            _, most, body = value
            yield inside and most == MAXREPEAT
            yield from unbounded(body, inside=True)
        elif operation is SUBPATTERN:
            yield from unbounded(value[-1], inside)
        elif operation is BRANCH:
            for branch in value[1]:
                yield from unbounded(branch, inside)


@pytest.mark.parametrize("row", [*SIGNATURES, *BACKOFFS, *GUARDS], ids=lambda row: row.name)
def test_no_pattern_repeats_a_repetition_without_a_bound(row):
    assert not any(unbounded(parse(row.pattern.pattern)))
    assert ".*" not in row.pattern.pattern and ".+" not in row.pattern.pattern


def test_a_line_with_source_and_exception_counts_for_its_exception():
    message = "Attempting to unscale FP16 gradients."
    text = f'in _unscale_grads_ raise ValueError("{message}") ValueError: {message}'
    assert find(text).start > text.index(") ValueError")


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[rank3]: ",
        "[rank3]:",
        "rank 3: ",
        "0: ",
        " 12: ",
        "[1,3]<stderr>:",
        "(pid=123, ip=10.0.0.2) ",
        "(RayTrainWorker pid=9) ",
        "worker-0: ",
        "trainer-1  | ",
        "[default7]:",
        "2025-03-01T10:00:00.123Z ",
        "worker-0: [rank3]: ",
    ],
)
def test_an_exception_is_recognized_with_any_prefix(prefix):
    text = f"{prefix}RuntimeError: CUDA error: an illegal memory access was encountered"
    assert is_raised(text) and find(text).raised
    assert bare(f"{prefix}Killed") == "Killed" and find(f"{prefix}Killed").signature.name == "killed"


def test_an_uncaught_exception_is_distinguished_from_a_logged_one():
    assert is_raised("torch.OutOfMemoryError: CUDA out of memory.")
    assert is_raised("Exception: x")
    assert is_raised("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 3.1 GiB")
    assert not is_raised("2025-01-01 WARNING - batch failed: RuntimeError: CUDA out of memory")
    assert not is_raised("    raise RuntimeError: x")
    assert not is_raised("srun: error: x")


@pytest.mark.parametrize("row", [row for row in GUARDS if row.role is Role.TEARDOWN], ids=lambda row: row.name)
def test_guards_for_messages_of_a_teardown_name_no_fault(row):
    assert row.fault is None and row.window is None and not row.anchors


def test_messages_printed_while_a_run_ends_are_not_its_own_exception():
    for text in (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "KeyError: Caught KeyError in DataLoader worker process 0.",
        "subprocess.CalledProcessError: Command 'x' returned non-zero exit status 1.",
    ):
        assert is_teardown(text) and not is_first_hand(text)
    assert is_first_hand("KeyError: 'label'")


@pytest.mark.parametrize("fill", ["", "x" * SHORT_LINE])
def test_all_anchors_of_a_line_are_found_however_long_it_is(fill):
    for text in [*ANCHORS, *SHOWN, *(text for texts in SAMPLES.values() for text in texts)]:
        lower = fill + text.lower()
        assert set(anchors_in(lower)) == {anchor for row in SIGNATURES for anchor in row.anchors if anchor in lower}
