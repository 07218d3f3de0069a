"""Tests that a followed log is copied completely: nothing lost, nothing twice, wherever it is cut."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rung.jobs.model.paths import AttemptPaths
from rung.runner.engines.docker.log_copy import GAP, MARGIN, STEP, LogCopy
from rung.runner.engines.docker.log_stream import Entry


def asked(log: list[Entry], since: str | None) -> list[Entry]:
    """Return the entries of an engine's log from a time on."""
    if since is None:
        return log
    seconds, _, rest = since.partition(".")
    return [entry for entry in log if entry.at >= int(seconds) * 10**9 + int(rest)]


@settings(deadline=None, max_examples=200)
@given(
    # Few different times in any order: many entries share a time, and the clock often goes back.
    moments=st.lists(st.sampled_from([0, 1, 2, 3, STEP, STEP + 1, 3 * STEP, MARGIN]), max_size=40),
    cuts=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 5), st.booleans(), st.booleans()), max_size=12),
)
def test_no_line_is_lost_or_doubled_when_the_stream_or_the_controller_ends(
    moments: list[int], cuts: list[tuple[int, int, bool, bool]], tmp_path_factory: object
) -> None:
    paths = AttemptPaths(Path(tmp_path_factory.mktemp("log")))  # type: ignore[attr-defined]
    log = [Entry(10**18 + moment, f"{number} {'x' * number}\n".encode()) for number, moment in enumerate(moments)]
    copy = LogCopy(paths)
    for written, batch, save, killed in cuts:
        copy.begin()
        stream = asked(log[:written], copy.since)
        for at in range(0, len(stream), batch):
            copy.take(stream[at : at + batch])
        if save:
            copy.save()
        copy.end()
        if killed:
            copy = LogCopy(paths)
    copy.begin()
    copy.take(asked(log, copy.since))
    copy.end()
    # An engine keeps its log, so it returns the same entries again.
    assert paths.log.read_bytes() == b"".join(entry.piece for entry in log)


def test_lines_that_the_host_deleted_are_reported(tmp_path: Path) -> None:
    paths = AttemptPaths(tmp_path)
    copy = LogCopy(paths)
    copy.begin()
    copy.take([Entry(1, b"a\n"), Entry(2 + MARGIN, b"b\n")])
    copy.begin()
    copy.take([Entry(7 + MARGIN, b"h\n")])
    copy.end()
    assert paths.log.read_bytes() == b"a\nb\n" + GAP + b"h\n"


def test_only_the_last_minute_of_a_long_run_is_requested_again(tmp_path: Path) -> None:
    copy = LogCopy(AttemptPaths(tmp_path))
    copy.begin()
    log = [Entry(number * 10**9, b"%d\n" % number) for number in range(10_000)]
    copy.take(log)
    copy.end()
    copy.save()
    assert len(asked(log, copy.since)) <= 80
    assert (tmp_path / "cursor.json").stat().st_size < 500


def test_a_cursor_beyond_the_end_of_the_log_starts_again(tmp_path: Path) -> None:
    paths = AttemptPaths(tmp_path)
    copy = LogCopy(paths)
    copy.begin()
    copy.take([Entry(1, b"abc\n")])
    copy.end()
    copy.save()
    paths.log.write_bytes(b"a")
    again = LogCopy(paths)
    assert again.since is None
    again.begin()
    again.take([Entry(1, b"abc\n")])
    again.end()
    assert paths.log.read_bytes() == b"abc\n"


def test_our_own_note_is_removed_when_the_log_is_read_again(tmp_path: Path) -> None:
    paths = AttemptPaths(tmp_path)
    copy = LogCopy(paths)
    copy.begin()
    copy.take([Entry(1, b"a\n")])
    copy.end()
    copy.append_note("rung: a word")
    copy.append_note("rung: a word")
    assert paths.log.read_bytes() == b"a\nrung: a word\n"
    copy.finish(complete=True)
    again = LogCopy(paths)
    assert again.complete
    again.begin()
    assert not again.complete
    again.take([Entry(1, b"a\n")])
    again.end()
    assert paths.log.read_bytes() == b"a\n"


def test_our_own_note_begins_a_line_of_its_own(tmp_path: Path) -> None:
    copy = LogCopy(AttemptPaths(tmp_path))
    copy.begin()
    copy.take([Entry(1, b"no end")])
    copy.end()
    copy.append_note("rung: a word")
    copy.append_note("rung: a word")
    assert (tmp_path / "log").read_bytes() == b"no end\nrung: a word\n"
