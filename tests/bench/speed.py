"""Measures how fast a log is taken in, beside ripgrep with the same patterns and a plain loop over `re`, in one run.

The log is made up of the formats that people really have, seeded; times are CPU seconds of one core.
"""

from __future__ import annotations

import random
import re
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rung.recovery.detect.detector import Detector
from rung.recovery.detect.scan import Scan
from rung.recovery.logs.line_reader import read
from rung.recovery.logs.lines import text_of
from rung.recovery.signatures import ANCHORS, BACKOFFS, SIGNATURES

SIZE = 50_000_000
# Faults alone are looked for in the same log, so many times over, so that what a start costs does not show.
TIMES = 10
# The plain loop is slow; its share of the log is enough to know its speed.
PLAIN_SIZE = 2_000_000
CHUNK = 1 << 20
# Lines of one format follow each other, as in a log of one job.
RUN = 2_000
LINES_PER_SECOND = 100
RIPGREP = ("rg", "--count", "--ignore-case", "--no-unicode", "--no-config", "-j1")
VALUES = r"\b(?:nan|inf|infinity)\b"


def lines(dice: random.Random) -> Iterator[str]:
    """Yield the lines of healthy trainings of several frameworks, one after the other, without end."""
    formats: tuple[Callable[[int, random.Random], str], ...] = (_plain, _trainer, _bar, _megatron, _mmengine, _other)
    step = 0
    while True:
        for form in formats:
            for _ in range(RUN):
                step += 1
                yield form(step, dice)


def _plain(step: int, dice: random.Random) -> str:
    loss, lr, norm = 2 + dice.random(), 1e-4 * dice.random(), dice.random()
    return f"step {step} | loss {loss:.4f} | lr {lr:.3e} | grad_norm {norm:.3f} | {dice.randint(3000, 4000)} tok/s\n"


def _trainer(step: int, dice: random.Random) -> str:
    loss, norm, lr = 2 + dice.random(), dice.random(), 1e-4 * dice.random()
    return f"{{'loss': {loss:.4f}, 'grad_norm': {norm:.6f}, 'learning_rate': {lr}, 'epoch': {step / 1000:.2f}}}\n"


def _bar(step: int, dice: random.Random) -> str:
    done = step % RUN + 1
    filled = "\u2588" * (10 * done // RUN) + " " * (10 - 10 * done // RUN)
    clock = f"{done // 60 % 60:02d}:{done % 60:02d}<00:{step % 60:02d}"
    speed, loss = 9 * dice.random(), 2 + dice.random()
    return f"\rEpoch 3: {100 * done // RUN:3d}%|{filled}| {done}/{RUN} [{clock}, {speed:.2f}it/s, loss={loss:.3f}]"


def _megatron(step: int, dice: random.Random) -> str:
    return (
        f" iteration {step:8d}/  500000 | consumed samples: {step * 256:12d} | elapsed time per iteration (ms): "
        f"{1000 * dice.random():.1f} | learning rate: {1e-4 * dice.random():.3E} | global batch size:   256 | lm loss: "
        f"{2 + dice.random():.6E} | loss scale: 131072.0 | grad norm: {dice.random():.3f} | number of skipped "
        "iterations:   0 | number of nan iterations:   0 |\n"
    )


def _mmengine(step: int, dice: random.Random) -> str:
    loss = 2 + dice.random()
    return (
        f"2026/01/15 08:00:{step % 60:02d} - mmengine - INFO - Epoch(train)  [{step // 1000}][{step % 1000:4d}/1000]  "
        f"lr: {1e-4 * dice.random():.4e}  eta: 1:02:{step % 60:02d}  time: {dice.random():.4f}  data_time: 0.0123  "
        f"memory: {dice.randint(9000, 9999)}  loss: {loss:.4f}  loss_cls: {loss / 2:.4f}  loss_bbox: {loss / 3:.4f}\n"
    )


def _other(step: int, dice: random.Random) -> str:
    shard, seconds = dice.randint(0, 99999), dice.random()
    return f"[INFO] [loader.py:{dice.randint(1, 900)}] rank {step % 8}: read part-{shard:05d}.tar in {seconds:.3f}s\n"


def write_log(path: Path, size: int) -> None:
    source = lines(random.Random(7))
    with path.open("w", encoding="utf-8") as file:
        written = 0
        while written < size:
            written += file.write("".join(next(source) for _ in range(1000)))


def scan(path: Path, *, quick: bool) -> int:
    """Return how many faults a scan of the whole log finds."""
    taken, found = Scan(Detector(), quick=quick), 0
    with path.open("rb") as log:
        while chunk := log.read(CHUNK):
            found += len(taken.feed(chunk))
    return found + len(taken.finish())


def plain_loop(path: Path) -> int:
    """Search the simple way: every line against every pattern, then its numbers."""
    with path.open("rb") as log:
        raw = log.read(PLAIN_SIZE)
    found = 0
    for line in re.split(rb"[\r\n]", raw):
        text = text_of(line)
        found += any(row.pattern.search(text) for row in (*SIGNATURES, *BACKOFFS))
        read(text)
    return found


def patterns() -> list[str]:
    """Return the patterns of all signatures as ripgrep takes them."""
    # Some rows have letters that ripgrep takes only with its slower Unicode tables: it is spared those.
    return [in_rust(row.pattern.pattern) for row in (*SIGNATURES, *BACKOFFS) if _is_ascii(row.pattern.pattern)]


def words() -> list[str]:
    """Return the texts that Rung looks for first, as patterns."""
    return [re.sub(r"([][(){}.*+?|^$\\])", r"\\\1", anchor) for anchor in ANCHORS if anchor.isascii()]


def ripgrep(path: Path, wanted: list[str]) -> None:
    """Count the lines that ripgrep finds with these patterns."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(wanted))
        file.flush()
        done = subprocess.run([*RIPGREP, "-f", file.name, str(path)], capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr.decode()


def _is_ascii(pattern: str) -> bool:
    """Return whether ripgrep can take a pattern, which reads bytes here and refuses other letters."""
    return pattern.isascii() and "\\u" not in pattern


def in_rust(pattern: str) -> str:
    """Return a pattern as ripgrep's engine writes it: it knows no lookaround, and so finds a little more."""
    while match := re.search(r"\(\?<?[!=]", pattern):
        pattern = pattern[: match.start()] + pattern[_end_of_group(pattern, match.start()) :]
    pattern = re.sub(r"(?<=[}*+?])\+", "", pattern).replace("(?P<attempted>", "(").replace("(?P<to>", "(")
    return re.sub(r"\\([\"'`])", r"\1", pattern)


def _end_of_group(pattern: str, start: int) -> int:
    depth = 0
    for match in re.finditer(r"\\.|\[(?:\\.|[^]\\])+\]|[()]", pattern[start:]):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if depth == 0 and match[0] == ")":
            return start + match.end()
    raise AssertionError(f"no end of the group at {start} of {pattern}")


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of a piece of work, with that of the processes it starts."""

    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + used.ru_utime + used.ru_stime

    before = spent()
    work()
    return spent() - before


def main(options: Sequence[str] = ()) -> None:
    assert shutil.which("rg"), "ripgrep is needed to compare with: apt-get install ripgrep"
    with tempfile.TemporaryDirectory() as folder:
        log, large = Path(folder) / "log", Path(folder) / "large.log"
        write_log(log, SIZE)
        content = log.read_bytes()
        count = len(re.findall(rb"[\r\n]", content))
        with large.open("wb") as file:
            file.writelines([content] * TIMES)
        size = TIMES * len(content)
        times = {
            "ripgrep, the same patterns": (size, cpu_seconds(lambda: ripgrep(large, [*patterns(), VALUES]))),
            "ripgrep, their words alone": (size, cpu_seconds(lambda: ripgrep(large, [*words(), VALUES]))),
            "rung explain --quick": (size, cpu_seconds(lambda: scan(large, quick=True))),
            "plain loop over re": (PLAIN_SIZE, cpu_seconds(lambda: plain_loop(log))),
            "rung, with metrics": (len(content), cpu_seconds(lambda: scan(log, quick=False))),
        }
    print(
        f"Taking in a log of {size / 1e6:.0f} MB, {TIMES * count} lines, {len(patterns())} patterns; CPU time of a core"
    )
    for name, (taken, seconds) in times.items():
        print(f"  {name:<28} {taken / seconds / 1e6:8.1f} MB/s")
    speed = {name: taken / seconds for name, (taken, seconds) in times.items()}
    core = times["rung, with metrics"][1] / count * LINES_PER_SECOND
    peer = speed["rung explain --quick"] / speed["ripgrep, the same patterns"]
    print(f"  faults alone: {peer:.2f} x ripgrep with the same patterns (aim: 1)")
    print(f"  with metrics: {speed['rung, with metrics'] / speed['plain loop over re']:.1f} x the plain loop (aim: 20)")
    print(f"  a job that prints {LINES_PER_SECOND} lines a second takes {100 * core:.3f} % of a core (aim: 1)")


if __name__ == "__main__":
    main()
