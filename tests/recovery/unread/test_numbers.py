"""Tests that another fault of the log comes before what only its end shows."""

from rung.jobs.model.fault import FaultKind
from rung.recovery.unread.numbers import UnreadNumbers
from tests.recovery.detect.watched_log import at_end

ROWS = "".join(f"{n} | nan | nan\n" for n in range(5))


def test_a_message_with_a_cause_comes_before_rows_of_nan():
    assert at_end(ROWS) is FaultKind.NAN_LOSS
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    assert at_end(ROWS + oom) is FaultKind.OOM


def test_nothing_is_shown_before_anything_was_read():
    watched = UnreadNumbers()
    assert watched.shown_at_end is None
    for text in ROWS.splitlines():
        watched.add_to(None, text)
    assert watched.shown_at_end is FaultKind.NAN_LOSS
    watched.lines_missing()
    assert watched.shown_at_end is None
