"""Counts the instructions a byte that the ways of searching.py and ripgrep take on emulated ARM.

`--root=FOLDER --packages=FOLDER` say where an arm64 Debian and its Python packages are.
Instructions are no time: they say what is worth a measurement on a real machine. Needs gcc and qemu-user. Both folders:

    debootstrap --arch=arm64 --foreign --include=python3,ripgrep bookworm ROOT
    for file in ROOT/var/cache/apt/archives/*.deb; do dpkg-deb -x $file ROOT; done
    pip install --platform manylinux_2_28_aarch64 --only-binary=:all: --no-deps --target PACKAGES -r requirements.lock
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.bench import searching, speed

REPOSITORY = Path(__file__).parents[2]
# How many times ripgrep reads a log. What it takes to start is the same in both runs, and left out of the difference.
FEW, MORE = 1, 3
MARK = re.compile(r"^instructions (\d+)$", re.MULTILINE)


def main(options: Sequence[str] = ()) -> None:
    asked = {word.partition("=")[0]: word.partition("=")[2] for word in options}
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(asked["--root"]), Path(asked["--packages"]), Path(folder))
        same = machine.python("-m", "tests.bench", "searching", "--results") == searching.results()
        print(f"The results are {'the same' if same else 'NOT the same'} as on this machine")
        print("Instructions a byte on emulated aarch64, not a time")
        print(f"  {'':<40}" + "".join(f"{kind:>10}" for kind in searching.KINDS))
        for name, counts in machine.of_ways().items():
            print(f"  {name:<40}" + "".join(f"{count:10.1f}" for count in counts))
        for name, patterns in (("the same patterns", speed.patterns()), ("their words alone", speed.words())):
            counts = (machine.of_ripgrep([*patterns, speed.VALUES], kind) for kind in searching.KINDS)
            print(f"  {'ripgrep, ' + name:<40}" + "".join(f"{count:10.1f}" for count in counts), flush=True)


class Machine:
    """Runs programs of an arm64 root, and counts their instructions."""

    def __init__(self, root: Path, packages: Path, folder: Path) -> None:
        self._root, self._folder, self._plugin = root, folder, folder / "instructions.so"
        source = Path(__file__).with_name("instructions.c")
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", self._plugin, source], check=True)
        paths = f"{packages}:{REPOSITORY}"
        # The same hashes in each run, and no compiled modules of another machine.
        self._settings = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}

    def python(self, *words: str) -> str:
        """Return what a command of Python prints."""
        return self._run("python3.11", *words).stdout.strip()

    def of_ways(self) -> dict[str, list[float]]:
        """Return the instructions a byte of each way, in the order of the kinds of logs."""
        done = self._run("python3.11", "-m", "tests.bench", "searching", "--marks")
        marks = [int(number) for number in MARK.findall(done.stderr)]
        rows = [line.split("\t") for line in done.stdout.splitlines()]
        # The last one is the end of the program.
        assert len(marks) == 2 * len(rows) + 1
        counts: dict[str, list[float]] = {}
        for (name, _, size), before, after in zip(rows, marks[0::2], marks[1::2], strict=False):
            counts.setdefault(name, []).append((after - before) / int(size))
        return counts

    def of_ripgrep(self, patterns: Sequence[str], kind: str) -> float:
        wanted, content = self._folder / "patterns", b"".join(searching.KINDS[kind]())
        wanted.write_text("\n".join(patterns))
        counts = []
        for times in (FEW, MORE):
            log = self._folder / f"log-{times}"
            log.write_bytes(content * times)
            counts.append(int(MARK.findall(self._run(*speed.RIPGREP, "-f", str(wanted), str(log)).stderr)[-1]))
        return (counts[1] - counts[0]) / (MORE - FEW) / len(content)

    def _run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        emulated = ["qemu-aarch64", "-plugin", self._plugin, "-L", self._root, self._root / "usr/bin" / program]
        done = subprocess.run([*emulated, *words], env=self._settings, cwd=REPOSITORY, capture_output=True, text=True)
        assert done.returncode in (0, 1 if program == "rg" else 0), done.stderr[-2000:]
        return done


if __name__ == "__main__":
    main()
