"""Makes the pictures of README from a real run: the demo's first job, which fails three times and recovers each time.

`python -m tests.pictures.recovery HOME` takes the run of that RUNG_HOME instead of making one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rung.jobs.model.paths import HomePaths
from rung.runner.plots.svg import DARK, LIGHT, stand_alone
from rung.runner.report.curves import job_figure, read_series
from rung.runner.state.store import Store

ROOT = Path(__file__).resolve().parents[2]
JOB = "three-faults"
PICTURES = ROOT / "docs" / "pictures"
# Few enough that a picture is small.
POINTS = 150
MOST_BYTES = 60_000


def draw(home: Path) -> None:
    store = Store(home / "rung.db")
    job = store.find(JOB)
    attempts = store.attempts(job.id)
    figure = job_figure(job, attempts, read_series(job, attempts, HomePaths(home)), limit=POINTS)
    store.close()
    PICTURES.mkdir(exist_ok=True)
    for theme in (LIGHT, DARK):
        svg = stand_alone(figure, theme)
        assert svg is not None and len(svg) < MOST_BYTES, "the picture is empty or too large"
        (PICTURES / f"recovery-{theme}.svg").write_text(svg, encoding="utf-8")


def main() -> None:
    if len(sys.argv) > 1:
        draw(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        file = ROOT / "jobs" / "catalog" / JOB / "job.yaml"
        subprocess.run(["rung", "launch", "-f", str(file)], env={**os.environ, "RUNG_HOME": str(home)}, check=True)
        draw(home)


if __name__ == "__main__":
    main()
