"""Tests that many logs can be read in many threads at once.

In 0.1.0 all readers shared one hyperscan scratch: `ScratchInUseError` ended the observation of a job.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from rung.recovery.detect.detector import Detector
from rung.recovery.detect.prefilter import Prefilter
from rung.recovery.detect.scan import Scan

THREADS = 4
# Hyperscan lets other threads run while it searches: a block this long is still searched when the next one begins.
BLOCK = b"all is well in this line, too\n" * 500_000


def test_logs_can_be_searched_in_many_threads_at_once() -> None:
    ready = threading.Barrier(THREADS)
    # The prefilters of readers, without the work in Python around them, which hardly ever overlaps.
    prefilters = [Scan(Detector(()))._prefilter for _ in range(THREADS)]

    def search(prefilter: Prefilter) -> list[int]:
        ready.wait()
        return [len(prefilter.find_keywords(BLOCK)) for _ in range(5)]

    with ThreadPoolExecutor(THREADS) as pool:
        searches = [pool.submit(search, each) for each in prefilters]
    assert [each.result() for each in searches] == [[0] * 5] * THREADS
