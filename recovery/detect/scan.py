"""Reads a log as it grows: bytes in, faults out, in constant memory.

The prefilter searches a block of whole lines at once. A line with a hit goes to the detector in full; of any other
line only the numbers are read, and those of lines that are alike at once. How the bytes are cut into chunks never
changes the result.
A part of a log that grows faster than it can be read so is skimmed (skim.py): messages are found in all of it, and most
numbers are left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence, Set

from rung.jobs.model.fault import Fault, FaultKind
from rung.recovery.detect.detector import Detector
from rung.recovery.detect.prefilter import Prefilter
from rung.recovery.detect.skim import Skimmer
from rung.recovery.logs.lines import MAX_RAW, Line, bare, count_lines, text_of
from rung.recovery.logs.segments import Segments, runs

# Lines after a hit that a quick scan reads too: the next few losses show whether a run got past a bad value.
AFTER_HIT = 8
# Fewer lines that are alike are taken one by one; after those that bring something new, so many are at first.
FEWEST_ALIKE = 4
# Lines at the head of a log that a quick scan reads too: the header of a table and the first numbers.
HEAD = 200

_BREAK = re.compile(rb"[\r\n]")


class Scan:
    """Feeds one log to one detector. A quick scan finds only faults: no steps and no early warnings.

    `decided` is the first fault of a kind in `latched` that decided at some line, so that it does not matter how much
    of a log was read at a time.
    """

    def __init__(self, detector: Detector, *, quick: bool = False, latched: Set[FaultKind] = frozenset()) -> None:
        self.detector = detector
        self._quick = quick
        self._prefilter = Prefilter(values=quick)
        self._held = b""
        # The number of the line that is held.
        self._number = 1
        # Whether the next block begins a line: the one before did not end with a bar that is redrawn.
        self._begins_line = True
        # Lines that a quick scan still has to read, with a keyword or not.
        self._reading_on = HEAD
        self._latched = latched
        self.decided: Fault | None = None
        self._skimmer: Skimmer | None = None

    def outside(self) -> dict[str, object]:
        """Return what is no part of the state of reading, by name: it is made anew from the settings of the job."""
        return {"prefilter": self._prefilter, **self.detector.outside()}

    def feed(self, chunk: bytes) -> list[Fault]:
        """Take the next bytes of the log; return the faults that the lines they complete bring."""
        self._end_skimming()
        block = self._whole_lines(chunk)
        return self._take(block) if block else []

    def skim(self, chunk: bytes) -> list[Fault]:
        """Take the next bytes of the log, and read only the lines around messages."""
        if self._skimmer is None:
            self._skimmer = Skimmer(self.detector)
        found: list[Fault] = []
        block = self._whole_lines(chunk)
        number, self._number = self._number, self._number + count_lines(block)
        for line in self._skimmer.lines(block, number):
            found += self.detector.feed(line)
            if self._latched and self.decided is None and self.detector.candidates.by_kind:
                self._latch()
        return found

    @property
    def is_skimming(self) -> bool:
        return self._skimmer is not None

    def _end_skimming(self) -> None:
        if self._skimmer is not None and not self._skimmer.has_read_all:
            self.detector.lines_missing()
        self._skimmer = None

    def _whole_lines(self, chunk: bytes) -> bytes:
        """Return the lines that a chunk completes, and hold the rest of it."""
        cut = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        if not cut:
            self._held += chunk[: MAX_RAW - len(self._held)]
            return b""
        first = _BREAK.search(chunk)
        assert first is not None, "there is a break: cut is not 0"
        head = chunk[: min(first.start(), MAX_RAW - len(self._held))]
        block, self._held = self._held + head + chunk[first.start() : cut], chunk[cut:][:MAX_RAW]
        return block

    def finish(self) -> list[Fault]:
        """Take the last line without an end, and return the faults that only the end of the log decides."""
        self._end_skimming()
        block, self._held = self._held, b""
        return self._take(block) + self.detector.finish()

    def _take(self, block: bytes) -> list[Fault]:
        if self._prefilter.needs_cleaning(block):
            block = bare(block)
        places = self._prefilter.find_keywords(block)
        number, self._number = self._number, self._number + count_lines(block)
        return self._scan_quickly(block, number, places) if self._quick else self._scan_fully(block, number, places)

    def _scan_fully(self, block: bytes, number: int, places: Sequence[int]) -> list[Fault]:
        """Take every line: the messages of those with a hit, the numbers of all."""
        found: list[Fault] = []
        begins_line, self._begins_line = self._begins_line, block.endswith(b"\n")
        segments = Segments(block, number, begins_line=begins_line)
        hits = segments.with_places(places)
        at = 0
        for start, end in self._alike(block, segments, hits):
            self._take_each(segments, at, start, hits, found)
            at = self._take_alike(segments, start, end, found)
        self._take_each(segments, at, len(segments.texts), hits, found)
        return found

    def _alike(self, block: bytes, segments: Segments, hits: Set[int]) -> Iterable[tuple[int, int]]:
        """Return where lines in a row of one template begin and end."""
        if not segments.is_plain or len(segments.texts) <= FEWEST_ALIKE:
            return ()
        templates = self.detector.alike.templates(block)
        for hit in hits:
            templates[hit] = ""
        return runs(templates, FEWEST_ALIKE)

    def _take_alike(self, segments: Segments, at: int, end: int, found: list[Fault]) -> int:
        """Take lines of one template, as many at once as bring nothing new; return where they end."""
        detector, texts, number, single = self.detector, segments.texts, segments.numbers[0], FEWEST_ALIKE
        while end - at >= FEWEST_ALIKE:
            taken = 0 if detector.needs_full_line else detector.alike.feed(number + at, texts[at:end])
            # What is new may last for a while.
            single, at = FEWEST_ALIKE if taken else 2 * single, at + taken
            stop = min(end, at + single)
            self._take_each(segments, at, stop, (), found)
            at = stop
        self._take_each(segments, at, end, (), found)
        return end

    def _take_each(self, segments: Segments, at: int, end: int, hits: Collection[int], found: list[Fault]) -> None:
        """Take lines one by one."""
        detector, candidates = self.detector, self.detector.candidates
        whole, latches = detector.needs_full_line, bool(self._latched) and self.decided is None
        numbers, sizes, texts = segments.numbers, segments.sizes, segments.texts
        for place in range(at, end):
            if whole or place in hits:
                # An empty line ends a traceback; an empty state of a bar is none.
                is_line = sizes[place] or segments.is_empty_line(place)
                found += detector.feed(Line(numbers[place], texts[place])) if is_line else ()
                whole = detector.needs_full_line
            elif sizes[place]:
                found += detector.feed_numbers(Line(numbers[place], texts[place]))
            if latches and candidates.by_kind:
                latches = not self._latch()

    def _latch(self) -> bool:
        fault = self.detector.first_fault(ended=False)
        if fault is not None and fault.kind in self._latched:
            self.decided = fault
        return self.decided is not None

    def _scan_quickly(self, block: bytes, number: int, places: Sequence[int]) -> list[Fault]:
        """Take the lines with a hit and a few after each."""
        found: list[Fault] = []
        at = counted = 0
        if self._reading_on:
            at = self._read_on(block, 0, number, found)
        for hit in places:
            if hit < at:
                continue
            start = max(block.rfind(b"\n", at, hit), block.rfind(b"\r", at, hit), at - 1) + 1
            number += count_lines(block[counted:start])
            counted = start
            self._reading_on = 1 + AFTER_HIT
            at = self._read_on(block, start, number, found)
        return found

    def _read_on(self, block: bytes, at: int, number: int, found: list[Fault]) -> int:
        """Feed as many lines as are still wanted; return where they end."""
        while self._reading_on and at < len(block):
            stop = _BREAK.search(block, at)
            end = stop.start() if stop else len(block)
            if end > at:
                found += self.detector.feed(Line(number, text_of(block[at:end])))
                self._reading_on -= 1
            number += block.startswith(b"\n", end)
            at = end + 1
        return at
