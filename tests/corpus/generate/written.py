"""Writes the logs of runs that need a GPU or several machines, in the documented formats of their messages.

`python -m tests.corpus.generate.written FOLDER`. Each has a healthy beginning from tests/corpus/healthy.py and an end from
endings.txt.
"""

import math
import random
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path

from tests.corpus.healthy import FORMATS, course, healthy_log

ENDINGS = Path(__file__).parent / "endings.txt"


def endings() -> dict[str, tuple[str, int, str]]:
    """Return by name: the format of the beginning, how many lines of it, and the end."""
    found = {}
    for block in ENDINGS.read_text().split("\n=== ")[1:]:
        head, _, text = block.partition("\n")
        name, style, lines = head.split()
        found[name] = (style, int(lines), text)
    return found


def turned_nan(style: str, good: int, bad: int) -> str:
    """Return a log whose loss is NaN after `good` steps."""
    rng = random.Random(style)
    lines = []
    for state in islice(course(rng), good + bad):
        shown = state if state.step < good else replace(state, loss=math.nan, norm=math.nan)
        lines.append(FORMATS[style](shown, rng))
    return "\n".join(lines) + "\n"


def main(folder: Path) -> None:
    for name, (style, lines, end) in endings().items():
        begin = b"".join(healthy_log(style, lines, seed=1)).decode() if lines else ""
        (folder / f"{name}.log").write_text(begin + end.strip("\n") + "\n", newline="")
    for style in (
        "apex",
        "detectron2",
        "fairseq",
        "fairseq_json",
        "mmengine",
        "torchvision",
        "ultralytics",
        "transformers",
        "keras",
    ):
        (folder / f"written_{style}_nan.log").write_text(turned_nan(style, 24, 12), newline="")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
