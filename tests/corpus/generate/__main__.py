"""Runs all generators: `python -m tests.corpus.generate FOLDER [NAME...]`, in an environment with the frameworks in it.

Each log is shortened, and paths and names of the machine are removed. The tests do not run this, because they do not
install all the frameworks.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
# Name of the log, then the script and its arguments.
RUNS = [line.split(maxsplit=1) for line in (HERE / "runs.txt").read_text().splitlines() if line and line[0] != "#"]
KEPT_LINES = 150


def shorten(lines: list[str]) -> list[str]:
    """Keep the beginning and the end of a long log."""
    return lines if len(lines) <= KEPT_LINES else lines[: KEPT_LINES // 3] + lines[-KEPT_LINES * 2 // 3 :]


def shorten_bar(line: str) -> str:
    """Keep the beginning and the end of a line that was drawn many times."""
    states = line.split("\r")
    return line if len(states) <= 40 else "\r".join(states[:12] + states[-24:])


def clean(text: str) -> str:
    text = text.replace(sys.prefix, "/usr").replace(sys.base_prefix, "/usr")
    text = re.sub(r"(?:/[\w.+-]+)+/(?:site-packages|lib/python3\.\d+)/", "/usr/lib/python3/", text)
    text = text.replace(f"{HERE}/", "/home/user/").replace(str(Path.cwd()), "/home/user")
    text = re.sub(r"https?://[\w./#-]+", "https://example.org/", text)
    return re.sub(r"/tmp/\w+", "/tmp/run", text)


def make(folder: Path, name: str, command: str) -> None:
    words = command.split()
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2"] if words[0] == "ranks.py" else []
    quiet = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    run = subprocess.run(
        [sys.executable, *launcher, str(HERE / words[0]), *words[1:]],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ | quiet, check=False, timeout=600,
    )  # fmt: skip
    text = clean(run.stdout.decode(errors="replace"))
    lines = [shorten_bar(line) for line in text.split("\n")]
    (folder / f"{name}.log").write_text("\n".join(shorten(lines)), newline="")
    print(f"{name}: exit code {run.returncode}, {len(lines)} lines")


if __name__ == "__main__":
    target, wanted = Path(sys.argv[1]), sys.argv[2:]
    target.mkdir(exist_ok=True)
    for name, command in RUNS:
        if not wanted or name in wanted:
            make(target, name, command)
