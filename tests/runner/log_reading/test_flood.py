"""Tests logs that grow faster than they can be read: faults are found in all of them, and none is made up."""

from __future__ import annotations

import pytest

from rung.jobs.job import Attempt
from rung.jobs.model.event import EventKind
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.knobs import Knobs
from rung.jobs.spec.job_spec import JobSpec
from rung.recovery.detect.detector import Detector
from rung.recovery.detect.scan import Scan
from rung.runner.log_reading.cursor import cursor_path, read_cursor
from rung.runner.log_reading.flood import BEHIND, FAR_BEHIND, GROWING, KEPT, Flood
from rung.runner.log_reading.watch import CHUNK
from rung.runner.series.read import attempt_series
from rung.runner.state import transitions
from rung.runner.state.store import Store
from tests.runner.log_reading.watched import append, attempt_paths, new_watch

SIZE = 3 << 20
OOM = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
FILLER = b" -- " + b"words " * 20 + b"\n"
TRACEBACK = b'Traceback (most recent call last):\n  File "train.py", line 31, in step\n    loss.backward()\n'


def lines(first: int, size: int, every: int = 1) -> list[bytes]:
    """Return about so many bytes of lines, of which every few have a step and a loss that falls slowly."""
    found: list[bytes] = []
    while size > 0:
        step = first + len(found)
        numbers = b"step %d loss %.4f lr 1e-4" % (step, 2.0 + 0.1 * (step % 5) - 1e-6 * step)
        text = numbers if step % every == 0 else b"moved the samples of %06d" % step
        found.append(text + FILLER)
        size -= len(found[-1])
    return found


def flood(tmp_path, parts: list[bytes], **recovery: object):
    """Let a log grow by a part after each slice, as a job does that prints too fast; then read it to its end."""
    paths = attempt_paths(tmp_path)
    paths.log.touch()
    watch = new_watch(paths, slices=True, **recovery)
    for part in parts:
        append(paths, part)
        watch.read()
    while watch.read():
        pass
    return paths, watch


def grown(before: list[bytes], skipped: list[bytes]) -> list[bytes]:
    """Return the parts of a log whose second half is skipped, all but its end."""
    third = len(before) // 4
    parts = [b"".join(before[n * third : (n + 1) * third]) for n in range(4)]
    return [*parts, b"".join(before[4 * third :]) + b"".join(skipped)]


def test_a_message_in_the_part_that_is_skipped_is_found_with_its_line_and_program_text(tmp_path):
    before = lines(0, 5 << 17)
    skipped = lines(len(before), SIZE)
    # After the message, lines without a number: nothing shows that the run got past it.
    after = lines(1, 2 * KEPT, every=1 << 30)
    _, watch = flood(tmp_path, grown(before, [*skipped, TRACEBACK, OOM, *after]))
    watch.read_to_end()
    assert watch._flood.skipped > BEHIND // 4
    found = watch.detector.first_fault(ended=True)
    assert found is not None and found.kind is FaultKind.OOM
    assert found.line == len(before) + len(skipped) + 4
    assert found.source == "train.py:31: loss.backward()"
    assert "Tried to allocate" in found.evidence


@pytest.mark.parametrize("every", [1, 40])
def test_a_healthy_flood_has_no_fault_and_its_latest_numbers(tmp_path, every):
    before = lines(0, 5 << 17, every)
    skipped = lines(len(before), SIZE, every)
    # A scaler that skips one step now and then, bad losses with good ones after them, and an exception that is caught.
    for place, text in (
        (300, b"step 1 loss nan lr 1e-4\n"),
        (5000, b"step 1 loss nan lr 1e-4\n"),
        (9000, b"Reducing dynamic loss scale from 4096.0 to 2048.0\n"),
        (11_000, TRACEBACK + b"ValueError: one bad file\n"),
        (14_000, b"Reducing dynamic loss scale from 4096.0 to 2048.0\n"),
        (16_000, b"step 1 loss inf lr 1e-4\n"),
    ):
        skipped.insert(place, text)
    _, watch = flood(tmp_path, grown(before, skipped))
    assert watch._flood.skipped > BEHIND // 4
    assert watch.fault is None
    watch.read_to_end()
    assert watch.detector.first_fault(ended=True, clean_exit=True) is None
    assert watch.detector.ending_exception() is None
    last = max(number for number, line in enumerate(skipped) if line.startswith(b"step") and number > 17_000)
    assert watch.detector.progress.step == int(skipped[last].split()[1])
    assert watch.detector.progress.loss == float(skipped[last].split()[3])


def test_a_flood_of_bad_losses_is_found(tmp_path):
    before = lines(0, 5 << 17)
    skipped = lines(len(before), SIZE)
    half = len(skipped) // 2
    skipped[half:] = [b"step %d loss nan lr 1e-4" % (len(before) + n) + FILLER for n in range(half, len(skipped))]
    _, watch = flood(tmp_path, grown(before, skipped))
    assert watch.decided is not None
    assert watch.decided.kind is FaultKind.NAN_LOSS
    assert watch.decided.line == len(before) + half + 1


def test_a_message_among_a_flood_of_lines_with_the_same_keyword_is_found():
    noise = [b"worker %d: nan values in 0 of %d samples\n" % (n, n) for n in range(20_000)]
    noise[13_000] = OOM
    detector = Detector()
    scan = Scan(detector)
    scan.skim(b"".join(noise))
    scan.finish()
    found = detector.first_fault(ended=True)
    assert found is not None and found.kind is FaultKind.OOM and found.line == 13_001


def test_a_rule_of_the_job_file_is_matched_in_what_is_skipped(tmp_path):
    before = lines(0, 5 << 17)
    skipped = lines(len(before), SIZE)
    skipped.insert(11_000, b"my disk went away\n")
    rules = [{"name": "mine", "pattern": "disk went away$", "action": "stop"}]
    _, watch = flood(tmp_path, grown(before, skipped), rules=rules)
    assert watch._flood.skipped > BEHIND // 4
    assert watch.fault is not None and watch.fault.kind is FaultKind.RULE_STOP


def test_records_from_inside_are_read_in_what_is_skipped(tmp_path):
    before = lines(0, 5 << 17)
    skipped = lines(len(before), SIZE)
    skipped.insert(11_000, b'rung| saved step=7 file="a.pt"\n')
    skipped.insert(12_000, b"rung| metric val_acc=0.75\n")
    _, watch = flood(tmp_path, grown(before, skipped))
    assert watch._flood.skipped > BEHIND // 4
    assert watch.detector.progress.saved == {"a.pt": 7}
    assert watch.detector.progress.values["val_acc"] == 0.75


def test_sampling_is_said_once_and_how_much(tmp_path):
    _, watch = flood(tmp_path, grown(lines(0, 5 << 17), lines(9000, SIZE)))
    note = watch.new_sampling_note()
    assert "grows faster than it can be read" in note and "MiB of the first 3.6 MiB" in note
    assert watch.new_sampling_note() == ""


def test_a_long_log_that_does_not_grow_is_read_in_full(tmp_path):
    paths = attempt_paths(tmp_path)
    append(paths, b"".join(lines(0, SIZE + BEHIND, every=50)))
    watch = new_watch(paths, slices=True)
    reads = 1
    while watch.read():
        reads += 1
    assert reads == -(-watch.offset // CHUNK) + 1
    assert watch._flood.skipped == 0 and watch.new_sampling_note() == ""


def test_curves_of_a_sampled_log_are_neither_doubled_nor_torn_by_a_restart(tmp_path):
    parts = grown(lines(0, 5 << 17), lines(9000, SIZE))
    paths, watch = flood(tmp_path, parts)
    watch.keep_cursor()
    append(paths, b"".join(lines(90_000, 1 << 16)))
    watch.read_to_end()
    for damage in (lambda: None, lambda: cursor_path(paths.log).write_bytes(head_of(paths) + b"\nno state")):
        damage()
        again = new_watch(paths, slices=True)
        again.read_to_end()
        steps = [point.step for point in attempt_series(paths).points(limit=100_000)]
        assert steps == sorted(steps) and steps[0] == 0
        assert attempt_series(paths).rows[-1].last_step == 90_000 + last_step(1 << 16)
        assert sum(row.readings for row in attempt_series(paths).rows) == again.detector.history.count


def head_of(paths) -> bytes:
    return cursor_path(paths.log).read_bytes().partition(b"\n")[0]


def last_step(size: int) -> int:
    return len(lines(90_000, size)) - 1


def test_a_cursor_says_that_numbers_were_sampled_before_any_is_left_out(tmp_path):
    paths = attempt_paths(tmp_path)
    paths.log.touch()
    watch = new_watch(paths, slices=True)
    while not watch._flood.is_skipping:
        append(paths, b"".join(lines(0, BEHIND)))
        watch.read()
    kept = read_cursor(paths.log, watch._settings)
    assert kept is not None and kept.sampled and kept.place is not None and kept.place.offset == watch.offset


def test_the_state_at_a_gap_holds_nothing_that_must_come_in_a_row():
    """Two bad losses with a gap between them are not two in a row."""
    for gap in (False, True):
        detector = Detector()
        scan = Scan(detector)
        scan.feed(b"".join(lines(0, 2000)) + b"step 99 loss nan\n")
        if gap:
            detector.lines_missing()
        scan.feed(b"step 999 loss nan\n")
        assert (detector.first_fault(ended=False) is None) is gap


def test_what_is_skipped_does_not_depend_on_the_chunks():
    data = b"".join(lines(0, 1 << 18))
    data = data[: 1 << 17] + b"\n" + TRACEBACK + OOM + data[1 << 17 :]
    states = []
    listed: list[Fault] = []
    for size in (1 << 18, 4096, 777):
        scan = Scan(Detector())
        for at in range(0, len(data), size):
            listed += scan.skim(data[at : at + size])
        scan.finish()
        states.append((scan.detector.tail, scan.detector.progress, scan.detector.history.count))
    assert states[0] == states[1] == states[2]
    assert [fault.kind for fault in listed] == [FaultKind.OOM] * 3
    assert listed[0] == listed[1] == listed[2]


def test_a_flood_begins_when_more_is_behind_each_time_and_ends_with_the_log():
    flood = Flood()
    for behind in (BEHIND, BEHIND + 1, BEHIND + 2):
        flood.look(0, behind)
        assert not flood.is_skipping
    assert GROWING == 3
    flood.look(100, BEHIND + 3)
    assert flood.is_skipping and flood.begins
    assert flood.bounded(100, 1 << 30) == BEHIND + 3 - KEPT
    flood.count(100 + BEHIND + 3 - KEPT, BEHIND + 3 - KEPT)
    assert not flood.is_skipping and flood.is_flooded
    # While it lasts, one look is enough.
    flood.look(0, BEHIND + 1)
    assert flood.is_skipping and not flood.begins
    flood.caught_up()
    assert not flood.is_skipping and not flood.is_flooded
    flood.look(0, FAR_BEHIND + 1)
    assert flood.is_skipping


def test_a_backlog_that_shrinks_is_no_flood():
    flood = Flood()
    for behind in range(FAR_BEHIND, 0, -CHUNK):
        flood.look(0, behind)
    assert not flood.is_skipping


def test_the_history_has_one_event_per_attempt(tmp_path):
    store = Store(tmp_path / "store.db")
    with store.transaction():
        job = store.add_job(JobSpec.model_validate({"name": "j", "run": "x"}), tmp_path, at=1.0)
    for number in (1, 1, 2):
        transitions.sampled(store, Attempt(job.id, number, "here", Knobs(), None, "why"), f"part {number}", at=2.0)
    events = [event for event in store.events(job.id) if event.kind == EventKind.SAMPLED]
    store.close()
    assert [(event.attempt, EventKind.SAMPLED.describe(event.data)) for event in events] == [
        (1, "part 1"),
        (2, "part 2"),
    ]
