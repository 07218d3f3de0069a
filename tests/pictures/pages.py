"""Takes pictures of every page of `rung web` and of `rung report`, wide and narrow, light and dark: `make pictures`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from playwright.sync_api import Page

from rung.jobs.job import Outcome
from rung.jobs.model.fault import Fault, FaultKind
from rung.jobs.model.state import JobState
from tests.support.browser import chromium
from tests.support.web_home import WebHome

FOLDER = Path(__file__).resolve().parents[2] / ".pictures"
SIZES = {"wide": (1360, 900), "narrow": (360, 740)}
PAGES = {
    "jobs": "/",
    "job": "/jobs/recovered-1",
    "failed": "/jobs/overflow-2",
    "log": "/jobs/recovered-1/log/1?line=700#L700",
    "hosts": "/hosts",
    "ledger": "/ledger",
    "error": "/jobs/none",
}
# What `rung report` is asked for, by the name of the picture.
REPORTS = {
    "report-job": ("recovered-1",),
    "report-failed": ("overflow-2",),
    "report-since": ("--since", "7d"),
}
RUNG = (sys.executable, "-m", "rung.runner.cli.main")


def fill(home: Path) -> None:
    """Write jobs of all kinds."""
    with closing(WebHome(home)) as made:
        recovered = made.recovered()
        lines = [f"step {step} loss {1.6 - step / 1200:.4f} lr 0.0001" for step in range(401, 1201)]
        made.paths.attempt(recovered.id, 2).log.write_text("\n".join(lines) + "\n", encoding="utf-8")
        failed = (
            "fp16_overflow at step 12: the same in FP32, so the model or the data is the cause; see line 31 of the log"
        )
        overflow = made.add("overflow", JobState.FAILED, failed, ago=7200)
        evidence = "RuntimeError: value cannot be converted to type at::Half without overflow"
        fault = Fault(FaultKind.FP16_OVERFLOW, evidence, line=3, step=12)
        log = f"step 11 loss 0.7\nstep 12 loss 0.69\n{evidence}\n"
        ran = {"started_at": overflow.created_at, "ended_at": overflow.created_at + 60, "outcome": Outcome.FAULT}
        made.attempt(overflow, 1, log, fault=fault, furthest_step=12, **ran)
        again = {"rung": "fp32", "after_fault": "fp16_overflow", "because": "fp16_overflow at step 12: fp32"}
        made.attempt(overflow, 2, log, fault=fault, furthest_step=12, **ran, **again)
        away = made.add("vision-large", JobState.RUNNING, "titan3 does not answer", ago=90_000)
        made.attempt(
            away, 1, host="titan3", unreachable_since=away.created_at + 80_000, furthest_step=48_000, loss=2.31
        )
        made.add("sweep lr=3e-4 seed=2", JobState.QUEUED, "waiting for a free GPU: TITANRTX:1", ago=300)
        made.add("speech", JobState.SUCCEEDED, "val_loss 1.12 is below 2", ago=200_000)
        made.add("tiny", JobState.CANCELLED, "as asked", ago=150)
        made.add("dbnet", JobState.RECOVERING, "checkpoints are verified", ago=45)


def write_reports(home: Path) -> dict[str, str]:
    """Write the reports as files; return their addresses."""
    addresses = {}
    for name, words in REPORTS.items():
        file = home.parent / f"{name}.html"
        command = [*RUNG, "report", *words, "-o", str(file)]
        subprocess.run(command, env={**os.environ, "RUNG_HOME": str(home)}, check=True, capture_output=True)
        addresses[name] = file.as_uri()
    return addresses


def take(home: Path) -> None:
    reports = write_reports(home)
    command = [*RUNG, "web", "--port", "0"]
    with subprocess.Popen(
        command, env={**os.environ, "RUNG_HOME": str(home)}, stdout=subprocess.PIPE, text=True
    ) as web:
        try:
            assert web.stdout is not None
            link = web.stdout.readline().split()[-1]
            addresses = {name: link.partition("/?")[0] + path for name, path in PAGES.items()} | reports
            with chromium() as browser:
                for size, (width, height) in SIZES.items():
                    for scheme in ("light", "dark"):
                        view = {"width": width, "height": height}
                        page = browser.new_page(viewport=view, color_scheme=scheme, device_scale_factor=1)
                        page.goto(link)
                        for name, address in addresses.items():
                            shoot(page, address, name, FOLDER / f"{name}-{size}-{scheme}.png")
                        page.close()
        finally:
            web.terminate()


def shoot(page: Page, address: str, name: str, file: Path) -> None:
    page.goto(address)
    page.wait_for_timeout(600)
    if name == "failed":
        page.locator("#retry summary").click()
    page.screenshot(path=file, full_page=name != "log")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder) / "home")
        take(Path(folder) / "home")
