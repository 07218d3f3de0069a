"""Measures what reading one line of a log costs, by the kind of line: plain ones, bars, records from inside, real ones.

The peer is a loop that decodes and splits the same lines and searches each with one regular expression. Both take turns
in one process, and what counts is CPU time, so that the ratio means something on a busy machine too.
"""

from __future__ import annotations

import random
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median

from rung.jobs.model.paths import AttemptPaths
from rung.recovery.detect.detector import Detector
from rung.recovery.detect.scan import Scan
from rung.runner.log_reading.watch import CHUNK
from tests.bench import speed
from tests.bench.logs import new_watch

LINES, ROUNDS = 10_000, 7
# As a simple reader would look for a loss.
LOSS = re.compile(r"\bloss[=: ]{1,4}([-+0-9.eE]+|nan|inf)")
CORPUS = Path(__file__).parents[1] / "corpus"
# Longer parts of a single log would be the measurement.
MOST_OF_ONE = 400


def main(options: Sequence[str] = ()) -> None:
    asked = {word.partition("=")[0]: word.partition("=")[2] for word in options}
    count, rounds = int(asked.get("--lines", LINES)), int(asked.get("--rounds", ROUNDS))
    print(f"Reading lines; CPU time of one core, the median of {rounds} rounds of {count} lines")
    print(
        "  alone: numbers and faults; with curves: from a file as the controller does; the peer: one regular expression"
    )
    print(f"  {'':<42}{'alone':>12}{'with curves':>14}{'peer':>10}{'ratio':>9}")
    for name, lines in kinds(count).items():
        print(f"  {name:<42}{_measured(lines, rounds)}")


def kinds(count: int) -> dict[str, list[str]]:
    """Return lines of each kind, seeded."""
    dice = random.Random(7)
    return {
        "step 12 loss 0.5 lr 1e-4": [f"step {n} loss {_loss(n, dice):.4f} lr 1e-4\n" for n in range(count)],
        "a bar of tqdm": [speed._bar(n, dice) for n in range(count)],
        "a record from inside": [_record(n, dice) for n in range(count)],
        "lines of several frameworks": list(islice(speed.lines(dice), count)),
        "real logs, with their faults": _real(count),
    }


def _loss(step: int, dice: random.Random) -> float:
    return 2 + 0.1 * dice.random() - 1e-6 * step


def _record(step: int, dice: random.Random) -> str:
    """Return a record as rung_inside writes it: six digits, without zeros at the end."""
    loss, norm = f"{_loss(step, dice):.6g}", f"{1 + dice.random():.6g}"
    lr = 1e-4 * min(1.0, (step + 1) / 500)
    return f"rung| step step={step + 1} loss={loss} lr={lr:.6g} grad_norm={norm} scale=65536.0 skipped=0\n"


def _real(count: int) -> list[str]:
    """Return lines of the logs of the corpus, some of each."""
    found: list[str] = []
    for path in sorted(CORPUS.glob("*.log")):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        found += lines[:MOST_OF_ONE]
    return (found * (1 + count // len(found)))[:count]


def _measured(lines: Sequence[str], rounds: int) -> str:
    """Return the microseconds of each line, and the ratio to the peer, as a row of the table."""
    data, count = "".join(lines).encode(), len(lines)
    times: dict[str, list[float]] = {"scan": [], "watch": [], "peer": []}
    for _ in range(rounds):
        for name, work in (("peer", peer), ("scan", scan), ("watch", watch)):
            times[name].append(1e6 * _cpu(partial(work, data)) / count)
    ratio = median(mine / theirs for mine, theirs in zip(times["scan"], times["peer"], strict=True))
    scanned, watched, bare = (median(times[name]) for name in ("scan", "watch", "peer"))
    return f"{scanned:9.1f} us{watched:11.1f} us{bare:7.2f} us{ratio:7.1f} x"


def peer(data: bytes) -> int:
    """Do the least that a reader of losses does."""
    return sum(LOSS.search(line) is not None for line in re.split(r"[\r\n]", data.decode("utf-8", "replace")))


def scan(data: bytes) -> None:
    taken = Scan(Detector())
    for at in range(0, len(data), CHUNK):
        taken.feed(data[at : at + CHUNK])


def watch(data: bytes) -> None:
    """Read it as the controller does: from a file, and write its curves."""
    with tempfile.TemporaryDirectory() as folder:
        attempt = Path(folder) / "jobs" / "a-1" / "attempts" / "1"
        attempt.mkdir(parents=True)
        paths = AttemptPaths(attempt)
        paths.log.write_bytes(data)
        read = new_watch(paths)
        while read.read():
            pass


def _cpu(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


if __name__ == "__main__":
    main()
