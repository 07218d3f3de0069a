"""Compares ways to search a log for keywords, odd bytes and line ends, each over the same blocks of a made-up log.

The first way of each group is Rung's. For tests/bench/emulated.py, `--marks` lets each way pass once over each log
between two calls of the system that it knows, and `--results` prints a digest of what Rung finds in the corpus and in
random blocks.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import re2

from rung.recovery.detect import prefilter
from rung.recovery.detect.detector import Detector
from rung.recovery.detect.prefilter import Prefilter
from rung.recovery.detect.scan import Scan
from rung.recovery.logs.lines import CONTROLS, HIDDEN_IN_UTF8, count_lines
from rung.recovery.signatures import ANCHORS
from tests.bench import speed

BLOCK, BLOCKS, ROUNDS = 1 << 20, 2, 9
CORPUS = Path(__file__).parents[1] / "corpus"
Way = Callable[[bytes], object]


def main(options: Sequence[str] = ()) -> None:
    asked = {word.partition("=")[0]: word.partition("=")[2] for word in options}
    rounds = int(asked.get("--rounds", ROUNDS))
    if "--results" in asked:
        print(results())
        return
    if "--marks" in asked:
        mark_each()
        return
    blocks = {kind: make() for kind, make in KINDS.items()}
    _assert_alike(blocks)
    print(f"Searching blocks of 1 MiB; MB/s of CPU time of one core, the best of {rounds} rounds")
    print(f"  {'':<40}" + "".join(f"{kind:>10}" for kind in KINDS))
    for name in available():
        way = WAYS[name]()
        speeds = (sum(map(len, each)) / _seconds(way, each, rounds) / 1e6 for each in blocks.values())
        print(f"  {name:<40}" + "".join(f"{value:10.0f}" for value in speeds))


def mark_each() -> None:
    """Let each way pass over each log, and print which it was and over how many bytes."""
    for kind, make in KINDS.items():
        blocks = make()
        for name in available():
            way = WAYS[name]()
            _seconds(way, blocks, 1)
            os.sched_yield()
            _seconds(way, blocks, 1)
            os.sched_yield()
            print(f"{name}\t{kind}\t{sum(map(len, blocks))}")


def available() -> list[str]:
    """Return the names of the ways that this Python has the packages for."""
    return [name for name in WAYS if name != AHO or find_spec("ahocorasick_rs")]


def _seconds(way: Way, blocks: Sequence[bytes], rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        before = time.process_time()
        for block in blocks:
            way(block)
        best = min(best, time.process_time() - before)
    return best


def _blocks(lines: Iterator[str]) -> list[bytes]:
    text = b""
    while len(text) < BLOCKS * BLOCK:
        text += "".join(islice(lines, 5000)).encode()
    return [text[at : text.rfind(b"\n", at, at + BLOCK) + 1] for at in range(0, BLOCKS * BLOCK, BLOCK)]


def _bars() -> Iterator[str]:
    dice, step = random.Random(7), 0
    while True:
        step += 1
        yield speed._bar(step, dice) + "\n" * (step % speed.RUN == 0)


def _faults() -> Iterator[str]:
    logs = [path.read_text("utf-8", "replace") for path in sorted(CORPUS.glob("*.log"))]
    while True:
        yield from logs


def _ascii() -> Iterator[str]:
    return (line for line in speed.lines(random.Random(7)) if line.isascii())


# A mixed log of healthy trainings; what of it is ASCII; bars that are drawn with other characters; the logs of the
# corpus, most of them with faults.
KINDS: dict[str, Callable[[], list[bytes]]] = {
    "mixed": lambda: _blocks(speed.lines(random.Random(7))),
    "ascii": lambda: _blocks(_ascii()),
    "bars": lambda: _blocks(_bars()),
    "corpus": lambda: _blocks(_faults()),
}


def _keywords() -> Way:
    return Prefilter(values=True).find_keywords


def _by_re2() -> Way:
    options = re2.Options()
    options.max_mem, options.encoding = 1 << 28, re2.Options.Encoding.LATIN1
    words = b"|".join(re2.escape(word.encode()) for word in prefilter._shortest(ANCHORS))
    cased = b"|".join(prefilter._TRACES)
    values = b"|".join(prefilter._VALUES)
    pattern = re2.compile(
        b"(?m)" + cased.replace(rb"\xe2\x80\xa2", "•".encode()) + b"|(?i:%s|%s)" % (words, values), options
    )
    return lambda block: [match.end() - 1 for match in pattern.finditer(block)]


def _by_aho_corasick() -> Way:
    import ahocorasick_rs

    # Without the values that are not finite, which are no literals.
    words = [
        *(word.encode() for word in prefilter._shortest(ANCHORS)),
        *(b'file "', b"error:", b"error :", "•".encode()),
    ]
    words += [word + end for word in (b"exception", b"exit") for end in (b":", b" :")]
    search = ahocorasick_rs.BytesAhoCorasick(words, implementation=ahocorasick_rs.Implementation.DFA)
    return lambda block: [end - 1 for _, _, end in search.find_matches_as_indexes(block.lower())]


def _by_fragments() -> Way:
    """Search the rarest fragments of the words one after the other, as if what is found were searched again by line."""
    common = Counter(text[at : at + 3] for text in islice(_ascii(), 20_000) for at in range(len(text) - 2))
    fragments: set[str] = set()
    for word in prefilter._shortest(ANCHORS):
        pieces = [word[at : at + 3] for at in range(max(1, len(word) - 2))]
        if fragments.isdisjoint(pieces):
            fragments.add(min(pieces, key=lambda piece: common[piece]))
    needles = [fragment.encode() for fragment in fragments]

    def search(block: bytes) -> list[int]:
        lowered = block.lower()
        return [lowered.find(needle) for needle in needles]

    return search


def _by_class(pattern: bytes) -> Way:
    database = prefilter._compile([(pattern, prefilter._ONCE)])
    memory = prefilter.hyperscan.Scratch(database)
    return lambda block: bool(prefilter._places(database, memory, block))


ODD_BYTES = b"[%s]|%s" % (b"".join(rb"\x%02x" % code for code in CONTROLS), b"|".join(map(re.escape, HIDDEN_IN_UTF8)))
AHO = "keywords: Aho-Corasick in Rust"
_FLAGGED = bytes(0xFF if code in CONTROLS else code for code in range(256))
WAYS: dict[str, Callable[[], Way]] = {
    "keywords: Rung, by hyperscan": _keywords,
    "keywords: RE2": _by_re2,
    AHO: _by_aho_corasick,
    "keywords: bytes.find of fragments": _by_fragments,
    "odd bytes: Rung": lambda: Prefilter(values=True).needs_cleaning,
    "odd bytes: hyperscan": lambda: _by_class(ODD_BYTES),
    "odd bytes: hyperscan, controls alone": lambda: _by_class(ODD_BYTES.partition(b"|")[0]),
    "odd bytes: bytes.translate, controls": lambda: lambda block: block.translate(_FLAGGED) == block,
    "line ends: Rung, by bytes.replace": lambda: count_lines,
    "line ends: bytes.count": lambda: lambda block: block.count(b"\n"),
    "a whole quick scan": lambda: Scan(Detector(), quick=True).feed,
}


def _assert_alike(blocks: dict[str, list[bytes]]) -> None:
    """Hold what RE2 finds against what Rung finds: the same lines."""
    ours, theirs = _keywords(), _by_re2()
    for block in (block for each in blocks.values() for block in each):
        assert _lines(block, ours(block)) == _lines(block, theirs(block))


def _lines(block: bytes, places: Sequence[int]) -> set[int]:
    starts = [match.end() for match in re.finditer(rb"[\r\n]", block)]
    return {bisect_right(starts, place) for place in places}


def results() -> str:
    """Return a digest of what is found in the corpus and in random blocks."""
    dice, digest = random.Random(7), hashlib.sha256()
    logs = [path.read_bytes() for path in sorted(CORPUS.glob("*.log"))]
    pieces = [
        *(word.encode() for word in ANCHORS),
        *(bytes([code]) for code in range(256)),
        b"NaN",
        b"inf",
        b" ",
        b"\n",
    ]
    blocks = [b"".join(dice.choices(pieces, k=dice.randint(1, 60))) for _ in range(5000)]
    for search in (Prefilter(values=False), Prefilter(values=True), Prefilter(values=True, records=True)):
        for block in (*logs, *blocks):
            found = (search.find_keywords(block), search.needs_cleaning(block), count_lines(block))
            digest.update(repr(found).encode())
    return digest.hexdigest()
